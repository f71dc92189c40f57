// SPDX-License-Identifier: Apache-2.0
#include "train_zero/text_loader.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace train_zero {
namespace {

// SplitMix64: its whole state is one number, which is what a checkpoint keeps of it.
uint64_t NextRandom(uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

int64_t TokenOf(unsigned char character) {
  if (character == '\n') return kVocabulary - 1;
  return character >= ' ' && character <= '~' ? character - ' ' : -1;
}

}  // namespace

std::string Digest(const void* bytes, uint64_t size) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const unsigned char byte : std::string_view(static_cast<const char*>(bytes), size)) {
    digest = (digest ^ byte) * 0x100000001b3;
  }
  std::array<char, 17> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(digest));
  return digits.data();
}

Text ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string characters(std::istreambuf_iterator<char>(file), {});
  if (!file) throw std::runtime_error("cannot read the text " + path.string());

  Text text;
  text.tokens.reserve(characters.size());
  for (const char character : characters) {
    const int64_t token = TokenOf(static_cast<unsigned char>(character));
    if (token < 0) {
      throw std::runtime_error(path.string() + ": byte " + std::to_string(text.tokens.size()) +
                               " has the value " +
                               std::to_string(static_cast<unsigned char>(character)) +
                               "; the model knows printable ASCII and newlines only");
    }
    text.tokens.push_back(token);
  }
  text.digest = Digest(characters.data(), characters.size());
  return text;
}

TextLoader::TextLoader(const Text& text, uint64_t context, uint32_t rank, uint32_t world_size,
                       uint64_t seed)
    : text_(text),
      context_(context),
      windows_(text.tokens.empty() ? 0 : (text.tokens.size() - 1) / context) {
  if (windows_ < world_size) {
    throw std::runtime_error("a text of " + std::to_string(text.tokens.size()) +
                             " characters is too short: " + std::to_string(world_size) +
                             " ranks need " + std::to_string(world_size * context + 1));
  }
  for (uint64_t window = rank; window < windows_; window += world_size) {
    state_.order.push_back(static_cast<int64_t>(window));
  }
  // Two draws apart from the seed itself, so that neighbouring ranks and seeds have nothing in
  // common.
  uint64_t mixer = seed;
  state_.generator = NextRandom(mixer) + rank;
  state_.generator = NextRandom(state_.generator);
  Shuffle();
}

void TextLoader::Shuffle() {
  for (uint64_t left = state_.order.size(); left > 1; --left) {
    std::swap(state_.order[left - 1], state_.order[NextRandom(state_.generator) % left]);
  }
}

Batch TextLoader::Next(uint64_t batch) {
  Batch result;
  result.inputs.reserve(batch * context_);
  result.targets.reserve(batch * context_);
  for (uint64_t row = 0; row < batch; ++row) {
    if (state_.position == state_.order.size()) {
      Shuffle();
      state_.position = 0;
      ++state_.epoch;
    }
    const uint64_t begin = static_cast<uint64_t>(state_.order[state_.position++]) * context_;
    const auto first = text_.tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = first + static_cast<std::ptrdiff_t>(context_);
    result.inputs.insert(result.inputs.end(), first, last);
    result.targets.insert(result.targets.end(), first + 1, last + 1);
  }
  return result;
}

void TextLoader::Restore(LoaderState state) {
  if (state.order.size() != state_.order.size() || state.position > state.order.size()) {
    throw std::runtime_error("the saved data order has " + std::to_string(state.order.size()) +
                             " windows and stands at " + std::to_string(state.position) +
                             "; this rank has " + std::to_string(state_.order.size()));
  }
  for (const int64_t window : state.order) {
    if (window < 0 || static_cast<uint64_t>(window) >= windows_) {
      throw std::runtime_error("the saved data order names window " + std::to_string(window) +
                               " of " + std::to_string(windows_));
    }
  }
  state_ = std::move(state);
}

}  // namespace train_zero
