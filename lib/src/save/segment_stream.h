// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The bytes of a rank file behind its header page, one after the other: filled into staging
/// buffers, digested in the same pass, written when a buffer is full.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "flagstone/memory.h"
#include "flagstone/status.h"
#include "format/placement.h"
#include "io/transfer.h"

namespace flagstone::save {

class SegmentStream {
 public:
  /// Begins at `offset` (a multiple of 4096) of the writer's file. `checkpoint` is called now and
  /// then with the bytes streamed so far; its error ends the stream.
  SegmentStream(io::StagedWriter& writer, uint64_t offset,
                std::function<Status(uint64_t)> checkpoint)
      : writer_(writer), buffer_offset_(offset), checkpoint_(std::move(checkpoint)) {}
  SegmentStream(const SegmentStream&) = delete;
  SegmentStream& operator=(const SegmentStream&) = delete;
  ~SegmentStream();

  /// Where the next byte goes.
  uint64_t position() const { return buffer_offset_ + filled_; }

  /// A segment begins here: from now on chunks of `chunk_bytes` are digested.
  Status BeginSegment(uint32_t chunk_bytes);
  /// `size` bytes of a source from `offset` on. Whole chunks that it knows to be zero are left
  /// unallocated.
  Status AppendSource(Source& source, uint64_t offset, uint64_t size);
  Status AppendZeros(uint64_t size);
  /// Pad with zeros to 4096 and close the last chunk.
  Status EndSegment();

  /// Bytes that no digest of this stream covers (digest pages, the index), outside segments.
  Status AppendPlain(std::span<const std::byte> bytes);
  Status PadPlain();
  /// Write what is buffered; position() must be a multiple of 4096.
  Status Flush();

  /// XXH3-64 of every chunk so far, in order.
  const std::vector<uint64_t>& digests() const { return digests_; }

 private:
  Status Ensure();
  std::span<std::byte> Free() const { return buffer_.subspan(filled_); }
  Status Advance(uint64_t size);
  Status SkipZeroChunk();
  bool AtChunkStart() const { return chunk_filled_ == 0; }
  void CloseChunk();

  io::StagedWriter& writer_;
  std::span<std::byte> buffer_;  // empty: none taken
  uint64_t buffer_offset_;       // in the file
  uint64_t filled_ = 0;
  std::function<Status(uint64_t)> checkpoint_;

  uint32_t chunk_bytes_ = 0;      // 0: outside a segment
  uint64_t chunk_filled_ = 0;     // bytes of the open chunk
  uint64_t chunk_in_buffer_ = 0;  // where in buffer_ the part that is not yet digested begins
  bool chunk_streams_ = false;    // the open chunk began in an earlier buffer
  base::Digest64Stream stream_;
  std::vector<uint64_t> digests_;
  uint32_t zero_chunk_bytes_ = 0;
  uint64_t zero_digest_ = 0;  // of zero_chunk_bytes_ zeros
};

}  // namespace flagstone::save
