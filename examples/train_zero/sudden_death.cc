// SPDX-License-Identifier: Apache-2.0
#include "train_zero/sudden_death.h"

#include <csignal>
#include <utility>

namespace train_zero {

class SuddenDeath::CountingSource final : public flagstone::Source {
 public:
  CountingSource(SuddenDeath& death, std::span<const std::byte> bytes)
      : death_(death), source_(bytes) {}

  uint64_t size_bytes() const override { return source_.size_bytes(); }

  // The bytes taken before this call are on their way to the file, or there; those of this call
  // never get there.
  flagstone::Status Read(uint64_t offset, std::span<std::byte> out) override {
    if (death_.taken_bytes_ >= death_.after_bytes_) std::raise(SIGKILL);
    death_.taken_bytes_ += out.size();
    return source_.Read(offset, out);
  }

 private:
  SuddenDeath& death_;
  flagstone::SpanSource source_;
};

std::unique_ptr<flagstone::Source> SuddenDeath::MakeSource(std::span<const std::byte> bytes) {
  return std::make_unique<CountingSource>(*this, bytes);
}

}  // namespace train_zero
