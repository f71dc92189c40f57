// SPDX-License-Identifier: Apache-2.0
#include "store/record.h"

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "base/digest.h"
#include "base/text.h"

namespace flagstone::store {
namespace {

using base::Join;
using nlohmann::json;

constexpr std::array<std::string_view, 5> kStateNames = {"claimed", "active", "listed", "committed",
                                                         "failed"};
constexpr std::array<std::string_view, 3> kPhaseNames = {"writing", "written", "failed"};

// Messages may quote any bytes; JSON holds UTF-8, and for a message replacing is good enough.
std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json ToJson(const Owner& owner) {
  return json{{"run", owner.party.run},
              {"name", owner.party.name},
              {"step", owner.party.step ? json(*owner.party.step) : json(nullptr)},
              {"world_size", owner.party.world_size},
              {"rank", owner.rank},
              {"nonce", owner.nonce},
              {"host", owner.process.host},
              {"machine", owner.process.machine},
              {"boot_id", owner.process.boot_id},
              {"pid_namespace", owner.process.pid_namespace},
              {"pid", owner.process.pid},
              {"start_time", owner.process.start_time},
              {"beat", owner.beat},
              {"timeout_ms", owner.timeout_ms}};
}

// Reads typed members; one that is absent or of another type makes the whole record invalid.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object), valid_(object.is_object()) {}

  bool valid() const { return valid_; }

  std::string Text(const char* key) {
    const json* value = Member(key);
    if (value && value->is_string()) return value->get<std::string>();
    valid_ = false;
    return "";
  }
  uint64_t Unsigned(const char* key) {
    const json* value = Member(key);
    if (value && value->is_number_unsigned()) return value->get<uint64_t>();
    valid_ = false;
    return 0;
  }
  uint32_t Small(const char* key) {
    const uint64_t value = Unsigned(key);
    if (value > UINT32_MAX) valid_ = false;
    return static_cast<uint32_t>(value);
  }
  int64_t Signed(const char* key) {
    const json* value = Member(key);
    if (value && value->is_number_integer()) return value->get<int64_t>();
    valid_ = false;
    return 0;
  }
  std::optional<int64_t> OptionalSigned(const char* key) {
    const json* value = Member(key);
    if (value && value->is_null()) return std::nullopt;
    return Signed(key);
  }
  bool Flag(const char* key) {
    const json* value = Member(key);
    if (value && value->is_boolean()) return value->get<bool>();
    valid_ = false;
    return false;
  }
  // Not a copy: one of a deeply nested value would overflow the stack.
  const json& Object(const char* key) {
    static const json nothing;
    const json* value = Member(key);
    if (value) return *value;
    valid_ = false;
    return nothing;
  }
  template <size_t n>
  size_t Choice(const char* key, const std::array<std::string_view, n>& names) {
    const std::string text = Text(key);
    for (size_t i = 0; i < n; ++i) {
      if (names[i] == text) return i;
    }
    valid_ = false;
    return 0;
  }
  template <typename T>
  std::vector<T> List(const char* key) {
    std::vector<T> out;
    const json* value = Member(key);
    if (!value || !value->is_array()) {
      valid_ = false;
      return out;
    }
    for (const json& item : *value) {
      if constexpr (std::is_same_v<T, std::string>) {
        valid_ = valid_ && item.is_string();
      } else {
        valid_ = valid_ && item.is_number_unsigned() && item.get<uint64_t>() <= UINT32_MAX;
      }
      if (!valid_) return {};
      out.push_back(item.get<T>());
    }
    return out;
  }

 private:
  const json* Member(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  const json& object_;
  bool valid_;
};

std::optional<Owner> OwnerFrom(const json& object) {
  Fields fields(object);
  Owner owner;
  owner.party = {fields.Text("run"), fields.Text("name"), fields.OptionalSigned("step"),
                 fields.Small("world_size")};
  owner.rank = fields.Small("rank");
  owner.nonce = fields.Text("nonce");
  owner.process.host = fields.Text("host");
  owner.process.machine = fields.Text("machine");
  owner.process.boot_id = fields.Text("boot_id");
  owner.process.pid_namespace = fields.Unsigned("pid_namespace");
  owner.process.pid = fields.Signed("pid");
  owner.process.start_time = fields.Unsigned("start_time");
  owner.beat = fields.Unsigned("beat");
  owner.timeout_ms = fields.Signed("timeout_ms");
  // More than a year is nobody's; sums of such times would overflow.
  constexpr int64_t kMostMs = int64_t{366} * 24 * 3600 * 1000;
  const bool has_sense = owner.timeout_ms > 0 && owner.timeout_ms <= kMostMs;
  return fields.valid() && has_sense ? std::optional(owner) : std::nullopt;
}

// The JSON line of a record; the payload, if any, comes after the line's end.
json ParseLine(std::string_view text) {
  return json::parse(text.substr(0, text.find('\n')), nullptr, /*allow_exceptions=*/false);
}

StatusCode CodeFrom(uint64_t number, Fields& fields, bool& valid) {
  valid = fields.valid() && number <= static_cast<uint64_t>(StatusCode::kInternal);
  return valid ? static_cast<StatusCode>(number) : StatusCode::kInternal;
}

std::string PartyDigest(const Party& party) {
  // Lengths keep ("a", "bc") and ("ab", "c") apart.
  const std::string text =
      Join(party.run.size(), ":", party.run, party.name.size(), ":", party.name,
           party.step ? Join(*party.step) : std::string("-"), ":", party.world_size);
  return base::Hex(base::DigestOf(std::as_bytes(std::span(text)))).substr(0, 16);
}

}  // namespace

std::string RecordText(std::string_view text) {
  if (base::IsUtf8(text)) return std::string(text);
  return Join("hex:", base::Hex(std::as_bytes(std::span(text))));
}

std::string EncodeAttempt(const Attempt& attempt) {
  const json object{{"kind", "attempt"},
                    {"owner", ToJson(attempt.owner)},
                    {"save_id", attempt.save_id},
                    {"state", kStateNames[static_cast<size_t>(attempt.state)]},
                    {"wanted_declarations", attempt.wanted_declarations},
                    {"accepted", attempt.accepted},
                    {"code", static_cast<uint64_t>(attempt.code)},
                    {"message", attempt.message},
                    {"committed_at", attempt.committed_at},
                    {"durability_unknown", attempt.durability_unknown}};
  return Dump(object) + "\n";
}

std::string EncodeAnswer(const Answer& answer) {
  const json object{{"kind", "answer"},
                    {"owner", ToJson(answer.owner)},
                    {"save_id", answer.save_id},
                    {"phase", kPhaseNames[static_cast<size_t>(answer.phase)]},
                    {"declaration", answer.declaration},
                    {"client_state", answer.client_state},
                    {"file_length", answer.file_length},
                    {"index_length", answer.index_length},
                    {"index_digest", answer.index_digest},
                    {"code", static_cast<uint64_t>(answer.code)},
                    {"message", answer.message}};
  return Join(Dump(object), "\n", answer.payload);
}

std::optional<Attempt> DecodeAttempt(std::string_view text) {
  const json object = ParseLine(text);
  Fields fields(object);
  if (fields.Text("kind") != "attempt") return std::nullopt;
  const auto owner = OwnerFrom(fields.Object("owner"));
  if (!owner) return std::nullopt;
  Attempt attempt;
  attempt.owner = *owner;
  attempt.save_id = fields.Text("save_id");
  attempt.state = static_cast<AttemptState>(fields.Choice("state", kStateNames));
  attempt.wanted_declarations = fields.List<uint32_t>("wanted_declarations");
  attempt.accepted = fields.List<std::string>("accepted");
  attempt.message = fields.Text("message");
  attempt.committed_at = fields.Signed("committed_at");
  attempt.durability_unknown = fields.Flag("durability_unknown");
  bool valid = false;
  attempt.code = CodeFrom(fields.Unsigned("code"), fields, valid);
  return valid ? std::optional(attempt) : std::nullopt;
}

std::optional<Answer> DecodeAnswer(std::string_view text) {
  const json object = ParseLine(text);
  Fields fields(object);
  if (fields.Text("kind") != "answer") return std::nullopt;
  const auto owner = OwnerFrom(fields.Object("owner"));
  if (!owner) return std::nullopt;
  Answer answer;
  answer.owner = *owner;
  answer.save_id = fields.Text("save_id");
  answer.phase = static_cast<AnswerPhase>(fields.Choice("phase", kPhaseNames));
  answer.declaration = fields.Text("declaration");
  answer.client_state = fields.Text("client_state");
  answer.file_length = fields.Unsigned("file_length");
  answer.index_length = fields.Unsigned("index_length");
  answer.index_digest = fields.Text("index_digest");
  answer.message = fields.Text("message");
  bool valid = false;
  answer.code = CodeFrom(fields.Unsigned("code"), fields, valid);
  if (!valid) return std::nullopt;
  const size_t line_end = text.find('\n');
  if (line_end == std::string_view::npos) return std::nullopt;  // cut
  answer.payload = std::string(text.substr(line_end + 1));
  return answer;
}

std::optional<Owner> DecodeOwner(std::string_view text) {
  const json object = ParseLine(text);
  Fields fields(object);
  return OwnerFrom(fields.Object("owner"));
}

std::string Describe(const Owner& owner) {
  return Join("rank ", owner.rank, " of run ", base::Quote(owner.party.run), ", host ",
              owner.process.host, ", pid ", owner.process.pid);
}

std::string AttemptKey(const Party& party) { return PartyDigest(party) + ".attempt"; }

std::string AnswerPrefix(const Party& party) { return PartyDigest(party) + ".answer-"; }

std::string AnswerKey(const Party& party, uint32_t rank, std::string_view nonce) {
  return Join(AnswerPrefix(party), rank, "-", nonce);
}

}  // namespace flagstone::store
