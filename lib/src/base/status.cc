// SPDX-License-Identifier: Apache-2.0
#include "flagstone/status.h"

namespace flagstone {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "kOk";
    case StatusCode::kInvalidArgument:
      return "kInvalidArgument";
    case StatusCode::kNotFound:
      return "kNotFound";
    case StatusCode::kAlreadyExists:
      return "kAlreadyExists";
    case StatusCode::kCorruption:
      return "kCorruption";
    case StatusCode::kUnsupported:
      return "kUnsupported";
    case StatusCode::kResourceExhausted:
      return "kResourceExhausted";
    case StatusCode::kIoError:
      return "kIoError";
    case StatusCode::kCancelled:
      return "kCancelled";
    case StatusCode::kDeadlineExceeded:
      return "kDeadlineExceeded";
    case StatusCode::kInternal:
      return "kInternal";
  }
  return "kInternal";
}

Status::Status(StatusCode code, std::string message, ErrorPlace place)
    : state_(code == StatusCode::kOk ? nullptr
                                     : std::make_unique<const State>(
                                           State{code, std::move(message), std::move(place)})) {}

Status::Status(const Status& other)
    : state_(other.state_ ? std::make_unique<const State>(*other.state_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other)
    state_ = other.state_ ? std::make_unique<const State>(*other.state_) : nullptr;
  return *this;
}

const std::string& Status::message() const {
  static const std::string empty;
  return state_ ? state_->message : empty;
}

const ErrorPlace& Status::place() const {
  static const ErrorPlace nowhere;
  return state_ ? state_->place : nowhere;
}

std::string Status::ToString() const {
  std::string out(StatusCodeName(code()));
  if (!ok()) out += ": " + message();
  return out;
}

Status Status::Annotated(std::string_view prefix, ErrorPlace place) const {
  if (ok()) return *this;
  ErrorPlace merged = state_->place;
  if (merged.path.empty()) merged.path = std::move(place.path);
  if (merged.segment.empty()) merged.segment = std::move(place.segment);
  if (!merged.offset) merged.offset = place.offset;
  std::string message =
      prefix.empty() ? state_->message : std::string(prefix) + ": " + state_->message;
  return Status(state_->code, std::move(message), std::move(merged));
}

bool Status::operator==(const Status& other) const {
  return code() == other.code() && message() == other.message() && place() == other.place();
}

BadResultAccess::BadResultAccess(Status status)
    : std::logic_error("Result without a value: " + status.ToString()),
      status_(std::move(status)) {}

}  // namespace flagstone
