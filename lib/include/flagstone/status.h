// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// How Flagstone reports failure: `Status` for calls without a value, `Result<T>` for calls with
/// one.

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "flagstone/export.h"

namespace flagstone {

/// Why an operation failed. The values appear in `--json` output by name.
enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument,    ///< The caller's request cannot be meant.
  kNotFound,           ///< A file, checkpoint, rank, tensor, role or partition is not there.
  kAlreadyExists,      ///< The name is taken, by a checkpoint or by a live save.
  kCorruption,         ///< Bytes are not what was written; nothing of them may be used.
  kUnsupported,        ///< Valid, but this build, kernel, file system or version cannot do it.
  kResourceExhausted,  ///< Memory, disk space, descriptors or budget do not suffice.
  kIoError,            ///< The operating system failed an operation.
  kCancelled,          ///< Given up on request or because another participant failed.
  kDeadlineExceeded,   ///< No progress within the stated time.
  kInternal,           ///< A defect of Flagstone itself.
};

/// The code's name as `--json` prints it, for example "kCorruption".
FLAGSTONE_EXPORT std::string_view StatusCodeName(StatusCode code);

/// Where in a checkpoint a failure was met; every part may be absent (empty or nullopt).
struct ErrorPlace {
  std::string path;                ///< File or directory.
  std::string segment;             ///< "partition/role".
  std::optional<uint64_t> offset;  ///< Byte offset in the file.

  bool operator==(const ErrorPlace&) const = default;
};

/// Success, or a code with one line that says what failed, on what, with which numbers, and what to
/// do.
///
/// One pointer wide; success allocates nothing. Thread-compatible.
class [[nodiscard]] FLAGSTONE_EXPORT Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, ErrorPlace place = {});
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return state_ == nullptr; }
  StatusCode code() const { return state_ ? state_->code : StatusCode::kOk; }
  /// Empty when ok.
  const std::string& message() const;
  const ErrorPlace& place() const;
  /// "kCorruption: message", or "kOk".
  std::string ToString() const;

  /// The same failure with "prefix: " before its message and those parts of `place` filled in that
  /// were absent.
  Status Annotated(std::string_view prefix, ErrorPlace place = {}) const;

  bool operator==(const Status& other) const;

 private:
  struct State {
    StatusCode code;
    std::string message;
    ErrorPlace place;
  };
  std::unique_ptr<const State> state_;
};

/// Thrown by `Result<T>::value()` alone; the library itself never throws it.
class FLAGSTONE_EXPORT BadResultAccess : public std::logic_error {
 public:
  explicit BadResultAccess(Status status);
  const Status& status() const { return status_; }

 private:
  Status status_;
};

/// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<1>, std::move(value)) {}  // NOLINT: implicit by design
  /// `status` must not be ok: a result without a value has a reason.
  Result(Status status)
      : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT: implicit by design
    if (std::get<0>(state_).ok()) {
      state_.template emplace<0>(StatusCode::kInternal, "a Result was made from an ok Status");
    }
  }

  bool ok() const { return state_.index() == 1; }
  explicit operator bool() const { return ok(); }
  /// The reason; ok when there is a value. Of a temporary it is a copy, so that what is taken from
  /// it lives on.
  const Status& status() const& {
    static const Status kNone;
    return ok() ? kNone : std::get<0>(state_);
  }
  Status status() && { return ok() ? Status() : std::move(std::get<0>(state_)); }

  /// The value; throws BadResultAccess when there is none.
  T& value() & {
    Require();
    return std::get<1>(state_);
  }
  const T& value() const& {
    Require();
    return std::get<1>(state_);
  }
  /// By value, so that a loop over `F().value()` does not outlive what it loops over.
  T value() && {
    Require();
    return std::get<1>(std::move(state_));
  }

  /// The value without a check beyond `std::get`'s; call after `ok()`.
  T& operator*() & { return std::get<1>(state_); }
  const T& operator*() const& { return std::get<1>(state_); }
  T&& operator*() && { return std::get<1>(std::move(state_)); }
  T* operator->() { return &std::get<1>(state_); }
  const T* operator->() const { return &std::get<1>(state_); }

 private:
  void Require() const {
    if (!ok()) throw BadResultAccess(std::get<0>(state_));
  }
  std::variant<Status, T> state_;
};

}  // namespace flagstone
