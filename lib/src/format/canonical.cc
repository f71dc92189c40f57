// SPDX-License-Identifier: Apache-2.0
// The canonical encoding of a layout (spec/format.md, "Canonical encoding"). Written by hand and
// not by FlatBuffers, whose bytes depend on its version, so that equal declarations have equal
// digests.
#include <cstring>
#include <string_view>

#include "base/endian.h"
#include "format/layout_codec.h"
#include "format/value_codec.h"

namespace flagstone::format {
namespace {

class CanonicalWriter {
 public:
  base::Digest128 Digest(const Layout& layout) {
    Append(std::as_bytes(std::span("FLAGSTONE-LAYOUT-1", 18)));
    Put(layout.world_size);
    Each(layout.tensors, [this](const Tensor& tensor) { PutTensor(tensor); });
    Each(layout.partitions, [this](const Partition& partition) { PutPartition(partition); });
    Each(layout.groups, [this](const ParameterGroup& group) {
      std::vector<std::byte> bytes;
      // Cannot fail: a valid layout has been through the same rules.
      static_cast<void>(AppendValue(group.hyper_parameters, ArrayBytes::kInline, "", bytes));
      Append(bytes);
    });
    Flush();
    return stream_.Finish();
  }

 private:
  void PutTensor(const Tensor& tensor) {
    PutText(tensor.name);
    Put(static_cast<uint8_t>(tensor.dtype));
    PutNumbers(tensor.shape);
    Put(static_cast<uint8_t>(tensor.kind));
    Put(uint8_t{tensor.group.has_value()});
    if (tensor.group) Put(*tensor.group);
    Put(uint8_t{tensor.trainable});
    Each(tensor.aliases, [this](const std::string& alias) { PutText(alias); });
  }

  void PutRanks(const RankList& list) {
    Each(list.ranges, [this](const RankRange& range) {
      Put(range.first);
      Put(range.count);
      Put(range.stride);
    });
  }

  void PutPartition(const Partition& partition) {
    PutText(partition.id);
    PutRanks(partition.ranks);
    Each(partition.replicas, [this](const RankList& list) { PutRanks(list); });
    Each(partition.members, [this](const Member& member) {
      Put(member.tensor);
      Put(uint8_t{member.box.has_value()});
      if (!member.box) return;
      PutNumbers(member.box->offsets);
      PutNumbers(member.box->sizes);
    });
    Each(partition.roles, [this](const Role& role) { PutRole(role); });
    Put(static_cast<uint8_t>(partition.cut.index()));
    std::visit([this](const auto& cut) { PutCut(cut); }, partition.cut);
  }

  void PutRole(const Role& role) {
    PutText(role.name);
    Put(static_cast<uint8_t>(role.dtype));
    Put(static_cast<uint8_t>(role.form));
    Each(role.shapes, [this](const std::vector<uint64_t>& shape) { PutNumbers(shape); });
    Put(role.block);
    Put(role.chunk_bytes);
  }

  void PutCut(const FlatCut& cut) { PutNumbers(cut.cuts); }
  void PutCut(const PerTensorCut& cut) { Put(static_cast<uint8_t>(cut.unit)); }
  void PutCut(const MeshCut& cut) {
    Each(cut.axes, [this](const MeshAxis& axis) {
      Put(axis.size);
      Put(static_cast<uint8_t>(axis.placement));
      Put(axis.dimension);
      Put(axis.split_factor);
    });
  }
  void PutCut(const WholeCut& cut) { PutNumbers(cut.owners); }
  void PutCut(const ReplicatedCut& cut) { PutNumbers(cut.storing); }
  void PutCut(const ExplicitCut& cut) {
    Each(cut.pieces, [this](const ExplicitPiece& piece) {
      Put(piece.rank_index);
      Put(piece.member);
      Put(piece.begin);
      Put(piece.end);
    });
  }

  // A count, then the items. Valid layouts have fewer than 2^32 of anything.
  template <typename Items, typename Function>
  void Each(const Items& items, Function put) {
    Put(static_cast<uint32_t>(items.size()));
    for (const auto& item : items) put(item);
  }

  template <typename T>
  void PutNumbers(const std::vector<T>& numbers) {
    Put(static_cast<uint32_t>(numbers.size()));
    Append(std::as_bytes(std::span(numbers)));  // Little-endian as in memory (base/endian.h).
  }

  void PutText(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    Append(std::as_bytes(std::span(text)));
  }

  template <typename T>
  void Put(T number) {
    std::byte bytes[sizeof(T)];
    base::StoreLittle(bytes, number);
    Append(bytes);
  }

  void Append(std::span<const std::byte> bytes) {
    if (bytes.size() > sizeof(buffer_) - used_) Flush();
    if (bytes.size() > sizeof(buffer_)) {
      stream_.Update(bytes);
      return;
    }
    if (!bytes.empty()) std::memcpy(buffer_ + used_, bytes.data(), bytes.size());
    used_ += bytes.size();
  }

  void Flush() {
    stream_.Update({buffer_, used_});
    used_ = 0;
  }

  base::Digest128Stream stream_;
  std::byte buffer_[4096];
  size_t used_ = 0;
};

}  // namespace

base::Digest128 LayoutDigest(const Layout& layout) { return CanonicalWriter().Digest(layout); }

}  // namespace flagstone::format
