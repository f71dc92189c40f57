// SPDX-License-Identifier: Apache-2.0
#include "save/segment_stream.h"

#include <algorithm>
#include <cstring>

#include "base/macros.h"
#include "base/range.h"

namespace flagstone::save {

SegmentStream::~SegmentStream() {
  if (!buffer_.empty()) writer_.Return(buffer_);
}

Status SegmentStream::Ensure() {
  if (!buffer_.empty()) return {};
  FLAGSTONE_ASSIGN_OR_RETURN(buffer_, writer_.Buffer());
  chunk_in_buffer_ = 0;
  return {};
}

Status SegmentStream::Flush() {
  if (buffer_.empty() || filled_ == 0) return {};
  if (chunk_bytes_ != 0 && chunk_filled_ > 0) {
    // The chunk goes on in the next buffer.
    stream_.Update(buffer_.subspan(chunk_in_buffer_, filled_ - chunk_in_buffer_));
    chunk_streams_ = true;
  }
  const std::span<std::byte> full = std::exchange(buffer_, {});
  const uint64_t size = std::exchange(filled_, 0);
  const uint64_t offset = buffer_offset_;
  buffer_offset_ += size;
  chunk_in_buffer_ = 0;
  FLAGSTONE_RETURN_IF_ERROR(writer_.Write(full, offset, size));
  return checkpoint_ ? checkpoint_(buffer_offset_) : Status();
}

void SegmentStream::CloseChunk() {
  const auto rest = buffer_.subspan(chunk_in_buffer_, filled_ - chunk_in_buffer_);
  if (chunk_streams_) {
    stream_.Update(rest);
    digests_.push_back(stream_.Finish());
    stream_.Reset();
    chunk_streams_ = false;
  } else {
    digests_.push_back(base::Digest64(rest));
  }
  chunk_in_buffer_ = filled_;
  chunk_filled_ = 0;
}

// `size` bytes were put at the front of Free(): at most to the end of the buffer and of the open
// chunk.
Status SegmentStream::Advance(uint64_t size) {
  filled_ += size;
  if (chunk_bytes_ != 0) {
    chunk_filled_ += size;
    if (chunk_filled_ == chunk_bytes_) CloseChunk();
  }
  return filled_ == buffer_.size() ? Flush() : Status();
}

Status SegmentStream::BeginSegment(uint32_t chunk_bytes) {
  chunk_bytes_ = chunk_bytes;
  chunk_filled_ = 0;
  chunk_in_buffer_ = filled_;
  return {};
}

Status SegmentStream::SkipZeroChunk() {
  FLAGSTONE_RETURN_IF_ERROR(Flush());
  if (zero_chunk_bytes_ != chunk_bytes_) {
    zero_chunk_bytes_ = chunk_bytes_;
    zero_digest_ = base::Digest64(std::vector<std::byte>(chunk_bytes_));
  }
  digests_.push_back(zero_digest_);
  buffer_offset_ += chunk_bytes_;
  return {};
}

Status SegmentStream::AppendSource(Source& source, uint64_t offset, uint64_t size) {
  while (size > 0) {
    if (AtChunkStart() && size >= chunk_bytes_ && source.IsZero(offset, chunk_bytes_)) {
      FLAGSTONE_RETURN_IF_ERROR(SkipZeroChunk());
      offset += chunk_bytes_;
      size -= chunk_bytes_;
      continue;
    }
    FLAGSTONE_RETURN_IF_ERROR(Ensure());
    // One chunk at a time, so that it is digested while the cache still holds it.
    const uint64_t step = std::min({size, uint64_t{Free().size()}, chunk_bytes_ - chunk_filled_});
    FLAGSTONE_RETURN_IF_ERROR(source.Read(offset, Free().first(step)));
    FLAGSTONE_RETURN_IF_ERROR(Advance(step));
    offset += step;
    size -= step;
  }
  return {};
}

Status SegmentStream::AppendZeros(uint64_t size) {
  while (size > 0) {
    FLAGSTONE_RETURN_IF_ERROR(Ensure());
    uint64_t step = std::min(size, uint64_t{Free().size()});
    if (chunk_bytes_ != 0) step = std::min(step, chunk_bytes_ - chunk_filled_);
    std::memset(Free().data(), 0, step);
    FLAGSTONE_RETURN_IF_ERROR(Advance(step));
    size -= step;
  }
  return {};
}

Status SegmentStream::EndSegment() {
  FLAGSTONE_RETURN_IF_ERROR(PadPlain());
  if (chunk_filled_ > 0) {
    FLAGSTONE_RETURN_IF_ERROR(Ensure());
    CloseChunk();
  }
  chunk_bytes_ = 0;
  return {};
}

Status SegmentStream::AppendPlain(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    FLAGSTONE_RETURN_IF_ERROR(Ensure());
    const size_t step = std::min(bytes.size(), Free().size());
    std::memcpy(Free().data(), bytes.data(), step);
    FLAGSTONE_RETURN_IF_ERROR(Advance(step));
    bytes = bytes.subspan(step);
  }
  return {};
}

Status SegmentStream::PadPlain() {
  return AppendZeros(base::AlignUp(position(), base::kPageBytes) - position());
}

}  // namespace flagstone::save
