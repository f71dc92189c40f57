// SPDX-License-Identifier: Apache-2.0
#include "save/given.h"

#include <algorithm>

#include "base/macros.h"
#include "base/text.h"

namespace flagstone::save {
namespace {

using base::Join;
using base::Quote;

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

bool IsPlain(const Value& value) {
  return value.is_null() || value.get_if<bool>() || value.get_if<int64_t>() ||
         value.get_if<double>();
}

}  // namespace

Given::Given(const Layout& layout, uint32_t rank) : layout_(layout), rank_(rank) {
  for (uint32_t i = 0; i < layout.partitions.size(); ++i) geometries_.emplace_back(layout, i);
}

std::string Given::NameOf(const Place& place) const {
  const Partition& partition = layout_.partitions[place.partition];
  return Quote(Join(partition.id, "/", partition.roles[place.role].name));
}

Result<Given::Place> Given::Find(std::string_view partition, std::string_view role,
                                 bool plain) const {
  const auto& partitions = layout_.partitions;
  const auto found = std::find_if(partitions.begin(), partitions.end(),
                                  [&](const auto& p) { return p.id == partition; });
  if (found == partitions.end()) {
    std::vector<std::string> ids;
    for (const Partition& candidate : partitions) ids.push_back(candidate.id);
    return Status(StatusCode::kNotFound, Join("the layout has no partition ", Quote(partition),
                                              base::NearestNames(partition, ids)));
  }
  std::vector<std::string> names;
  for (uint32_t k = 0; k < found->roles.size(); ++k) {
    const bool is_plain = found->roles[k].form == RoleForm::kPlain;
    if (found->roles[k].name == role) {
      if (is_plain == plain) return Place{static_cast<uint32_t>(found - partitions.begin()), k};
      return Invalid(Join("role ", Quote(role), " of partition ", Quote(partition),
                          is_plain ? " is plain: give it with AddPlain"
                                   : " has bytes: give it with Add or AddTensor"));
    }
    if (is_plain == plain) names.push_back(found->roles[k].name);
  }
  return Status(StatusCode::kNotFound,
                Join("partition ", Quote(partition), " has no ", plain ? "plain " : "", "role ",
                     Quote(role), base::NearestNames(role, names)));
}

Result<uint32_t> Given::FindMember(uint32_t partition, std::string_view tensor) {
  const auto& members = layout_.partitions[partition].members;
  const auto [at, is_new] = members_.try_emplace(partition);
  auto& by_name = at->second;
  if (is_new) {
    for (uint32_t i = 0; i < members.size(); ++i) {
      const Tensor& candidate = layout_.tensors[members[i].tensor];
      by_name.emplace(candidate.name, i);
      for (const std::string& alias : candidate.aliases) by_name.emplace(alias, i);
    }
  }
  const auto found = by_name.find(tensor);
  if (found != by_name.end()) return found->second;
  std::vector<std::string> names;
  for (const Member& member : members) names.push_back(layout_.tensors[member.tensor].name);
  return Status(StatusCode::kNotFound,
                Join("partition ", Quote(layout_.partitions[partition].id), " has no tensor ",
                     Quote(tensor), base::NearestNames(tensor, names)));
}

// The role's state, made at first use.
Result<Given::HeldRole*> Given::Held(const Place& place) {
  const auto index = geometries_[place.partition].HolderIndex(rank_);
  if (!index) {
    return Invalid(Join("rank ", rank_, " holds nothing of partition ",
                        Quote(layout_.partitions[place.partition].id),
                        ": it is in none of its rank lists"));
  }
  const auto [at, is_new] = held_.try_emplace({place.partition, place.role});
  if (is_new) {
    at->second.held = geometries_[place.partition].HeldSegment(place.role, *index);
    const auto& pieces = at->second.held.pieces;
    at->second.sources.resize(pieces.size());
    for (uint32_t i = 0; i < pieces.size(); ++i)
      at->second.of_member[pieces[i].slice.member].push_back(i);
  }
  return &at->second;
}

Status Given::AddSegment(std::string_view partition, std::string_view role, Source& source) {
  FLAGSTONE_ASSIGN_OR_RETURN(const Place place, Find(partition, role, /*plain=*/false));
  FLAGSTONE_ASSIGN_OR_RETURN(HeldRole* const held, Held(place));
  if (source.size_bytes() != held->held.bytes) {
    return Invalid(Join("rank ", rank_, " gives ", source.size_bytes(), " bytes for ",
                        NameOf(place), " but holds ", held->held.bytes, " bytes of it"));
  }
  for (size_t i = 0; i < held->sources.size(); ++i) {
    if (held->sources[i].source)
      return Invalid(Join(NameOf(place), " was given before, whole or in part"));
  }
  for (size_t i = 0; i < held->sources.size(); ++i) {
    held->sources[i] = {&source, held->held.pieces[i].byte_offset};
  }
  return {};
}

Status Given::AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                        Source& source) {
  FLAGSTONE_ASSIGN_OR_RETURN(const Place place, Find(partition, role, /*plain=*/false));
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t member, FindMember(place.partition, tensor));
  FLAGSTONE_ASSIGN_OR_RETURN(HeldRole* const held, Held(place));
  const auto found = held->of_member.find(member);
  const std::vector<uint32_t> mine =
      found == held->of_member.end() ? std::vector<uint32_t>() : found->second;
  uint64_t bytes = 0;
  for (const uint32_t i : mine) bytes += held->held.pieces[i].byte_size;
  if (source.size_bytes() != bytes) {
    return Invalid(Join("rank ", rank_, " gives ", source.size_bytes(), " bytes for tensor ",
                        Quote(tensor), " of ", NameOf(place), " but holds ", bytes,
                        " bytes of it"));
  }
  uint64_t offset = 0;
  for (const uint32_t i : mine) {
    if (held->sources[i].source) {
      return Invalid(Join("tensor ", Quote(tensor), " of ", NameOf(place), " was given before"));
    }
    held->sources[i] = {&source, offset};
    offset += held->held.pieces[i].byte_size;
  }
  return {};
}

Status Given::AddPlain(std::string_view partition, std::string_view role, std::string_view tensor,
                       Value value) {
  FLAGSTONE_ASSIGN_OR_RETURN(const Place place, Find(partition, role, /*plain=*/true));
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t member, FindMember(place.partition, tensor));
  if (!IsPlain(value)) {
    return Invalid(Join("the value of plain role ", NameOf(place), " of tensor ", Quote(tensor),
                        " is neither number, bool nor null"));
  }
  plain_[{place.partition, place.role}].insert_or_assign(member, std::move(value));
  return {};
}

Result<std::vector<SegmentPart>> Given::PartsOf(const format::PlacedSegment& segment) const {
  FLAGSTONE_ASSIGN_OR_RETURN(const Place place,
                             Find(segment.partition, segment.role, /*plain=*/false));
  const auto& geometry = geometries_[place.partition];
  const auto held = held_.find({place.partition, place.role});
  const auto index = layout_.partitions[place.partition].ranks.IndexOf(rank_);
  const partition::Segment stored =
      index ? geometry.StoredSegment(place.role, *index) : partition::Segment();
  std::vector<SegmentPart> parts;
  size_t at = 0;
  for (const auto& piece : stored.pieces) {
    const PieceSource* given = nullptr;
    if (held != held_.end()) {
      // Stored pieces are held pieces in the same order.
      const auto& pieces = held->second.held.pieces;
      while (at < pieces.size() && pieces[at].slice != piece.slice) ++at;
      if (at < pieces.size()) given = &held->second.sources[at];
    }
    if (piece.byte_size == 0) continue;
    if (!given || !given->source) {
      const Member& member = layout_.partitions[place.partition].members[piece.slice.member];
      return Invalid(Join("rank ", rank_, " did not give elements [", piece.slice.begin, ", ",
                          piece.slice.end, ") of tensor ",
                          Quote(layout_.tensors[member.tensor].name), " of ", NameOf(place)));
    }
    parts.push_back({piece.byte_offset, piece.byte_size, given->source, given->offset});
  }
  return parts;
}

// The members whose plain values this rank keeps: those of which it owns an element; one without
// elements is kept by the list's first rank.
std::vector<uint32_t> Given::PlainMembers(uint32_t partition) const {
  const Partition& part = layout_.partitions[partition];
  const auto& geometry = geometries_[partition];
  const auto index = part.ranks.IndexOf(rank_);
  if (!index) return {};
  std::vector<uint32_t> members;
  for (const Slice& slice : geometry.Stored(*index)) {
    if (slice.begin < slice.end) members.push_back(slice.member);
  }
  if (*index == 0) {
    for (uint32_t i = 0; i < part.members.size(); ++i) {
      if (geometry.member_elements(i) == 0) members.push_back(i);
    }
  }
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  return members;
}

Result<std::vector<format::PlainValue>> Given::PlainValues() const {
  std::vector<format::PlainValue> out;
  for (uint32_t p = 0; p < layout_.partitions.size(); ++p) {
    const Partition& part = layout_.partitions[p];
    for (uint32_t k = 0; k < part.roles.size(); ++k) {
      if (part.roles[k].form != RoleForm::kPlain) continue;
      const auto given = plain_.find({p, k});
      for (const uint32_t member : PlainMembers(p)) {
        const Value* value = nullptr;
        if (given != plain_.end()) {
          const auto found = given->second.find(member);
          if (found != given->second.end()) value = &found->second;
        }
        if (!value) {
          return Invalid(Join("rank ", rank_, " did not give the plain role ", NameOf({p, k}),
                              " of tensor ",
                              Quote(layout_.tensors[part.members[member].tensor].name)));
        }
        out.push_back({part.id, part.roles[k].name, member, *value});
      }
    }
  }
  return out;
}

}  // namespace flagstone::save
