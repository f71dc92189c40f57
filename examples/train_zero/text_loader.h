// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Characters as tokens, and the order in which one rank reads a text.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace train_zero {

/// Printable ASCII and the newline.
inline constexpr int64_t kVocabulary = 96;

/// A text as tokens, and a digest of it by which a resumed run knows that it reads the same one.
struct Text {
  std::vector<int64_t> tokens;
  std::string digest;  ///< 16 hexadecimal digits.
};

/// Throws std::runtime_error: the file cannot be read, or a character is outside the vocabulary
/// (names its offset).
Text ReadText(const std::filesystem::path& path);

/// 64-bit FNV-1a as 16 hexadecimal digits: to compare, not to protect.
std::string Digest(const void* bytes, uint64_t size);

/// Inputs and the tokens that follow them: `batch` rows of `context` tokens each.
struct Batch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;
};

/// Where a rank is in the text; what its next batches are follows from this alone.
struct LoaderState {
  int64_t epoch = 0;
  uint64_t position = 0;       ///< Windows of `order` already read.
  std::vector<int64_t> order;  ///< This rank's windows in the order of this epoch.
  uint64_t generator = 0;      ///< State of the generator that shuffles the next epoch.

  bool operator==(const LoaderState&) const = default;
};

/// Reads the windows of one rank, each once an epoch, in an order shuffled anew each epoch.
class TextLoader {
 public:
  /// `text` must outlive the loader. Throws std::runtime_error when it has no window for a rank.
  TextLoader(const Text& text, uint64_t context, uint32_t rank, uint32_t world_size, uint64_t seed);

  Batch Next(uint64_t batch);

  const LoaderState& state() const { return state_; }
  /// Go on from a saved state. Throws std::runtime_error when it does not fit the text or the
  /// number of ranks.
  void Restore(LoaderState state);

 private:
  void Shuffle();

  const Text& text_;
  uint64_t context_;
  uint64_t windows_;
  LoaderState state_;
};

}  // namespace train_zero
