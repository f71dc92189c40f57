// SPDX-License-Identifier: Apache-2.0
// Plain roles: a number, bool or null per tensor, kept in the index of every rank that owns a part.
#include <algorithm>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "flagstone/load.h"
#include "load/impl.h"
#include "partition/geometry.h"
#include "partition/normalize.h"

namespace flagstone {

using base::Join;
using base::Quote;

namespace {

// The tensors of which a position has something; of those without elements the first position has
// the plain values.
std::vector<uint32_t> HeldTensors(const partition::Geometry& geometry, uint32_t position) {
  const Partition& part = geometry.partition();
  std::vector<uint32_t> tensors;
  for (const Slice& slice : geometry.Held(position)) {
    tensors.push_back(part.members[slice.member].tensor);
  }
  for (uint32_t m = 0; position == 0 && m < part.members.size(); ++m) {
    if (geometry.member_elements(m) == 0) tensors.push_back(part.members[m].tensor);
  }
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  return tensors;
}

// A rank that keeps the plain values of a member: the one with its first element.
uint32_t KeeperOf(const partition::Geometry& geometry, const partition::Place& place) {
  // Position 0 of a mesh has the first index of every dimension.
  const bool first = geometry.mesh() != nullptr || geometry.member_elements(place.member) == 0;
  if (first) return geometry.RankAt(0);
  return geometry.RankAt(geometry.FindStored(place.role, place.member, 0, 1).front().rank_index);
}

}  // namespace

// That the manifest has them was checked when the index was read.
void RankReader::Impl::IndexPlainValues(store::RankFileReader& file) {
  const Layout& layout = saved();
  for (format::PlainValue& value : file.TakePlain()) {
    const Partition* const part = partition::FindPartition(layout, value.partition);
    const PlainKey key{static_cast<uint32_t>(part - layout.partitions.data()),
                       *partition::FindRole(*part, value.role), value.member};
    const auto found = plain_.find(key);
    if (found == plain_.end()) {
      plain_.emplace(key, PlainEntry{std::move(value.value), file.rank(), std::nullopt});
    } else if (!found->second.unlike && found->second.value != value.value) {
      found->second.unlike = file.rank();
    }
  }
}

// Where the checkpoint has a plain role of a wanted tensor.
Result<std::vector<partition::Place>> RankReader::Impl::PlainPlaces(const Role& role,
                                                                    uint32_t tensor) const {
  const std::lock_guard lock(matcher_mutex_);
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t found, matcher_.FindTensor(tensor));
  FLAGSTONE_RETURN_IF_ERROR(matcher_.FindRoleOf(found, role, {}).status());
  std::vector<partition::Place> places;
  matcher_.AppendPlaces(found, role, places);
  return places;
}

const RankReader::Impl::PlainEntry* RankReader::Impl::FindPlain(
    const partition::Place& place) const {
  const auto found = plain_.find({place.partition, place.role, place.member});
  return found == plain_.end() ? nullptr : &found->second;
}

// The files that hold a wanted slice mostly have the plain values of its tensor as well; where those
// are in another partition, open one that has them.
Status RankReader::Impl::OpenForPlainValues() {
  if (given_layout_ == nullptr) return {};
  const auto wants = [&](const Role& role) {
    return role.form == RoleForm::kPlain &&
           (options_.roles.empty() || std::ranges::count(options_.roles, role.name) > 0);
  };
  std::map<uint32_t, partition::Geometry> geometries;  // by saved partition
  for (uint32_t p = 0; p < wanted_.partitions.size(); ++p) {
    const Partition& part = wanted_.partitions[p];
    const auto holder = partition::HolderIndex(part, rank_);
    const bool replicated = std::holds_alternative<ReplicatedCut>(part.cut);
    if (!holder || (replicated && !options_.replicated)) continue;
    if (std::ranges::none_of(part.roles, wants)) continue;
    const std::vector<uint32_t> tensors = HeldTensors(partition::Geometry(wanted_, p), *holder);
    for (const Role& role : part.roles) {
      if (!wants(role)) continue;
      for (const uint32_t tensor : tensors) {
        FLAGSTONE_ASSIGN_OR_RETURN(const auto places, PlainPlaces(role, tensor));
        for (const partition::Place& place : places) {
          if (FindPlain(place) != nullptr) continue;
          const auto geometry =
              geometries.try_emplace(place.partition, saved(), place.partition).first;
          FLAGSTONE_RETURN_IF_ERROR(OpenFile(KeeperOf(geometry->second, place)).status());
        }
      }
    }
  }
  return {};
}

Status RankReader::Impl::NoPlain(std::string_view name, std::string_view partition) const {
  std::vector<std::string> names;
  const Layout& layout = saved();
  for (const auto& [key, entry] : plain_) {
    const auto [p, role, member] = key;
    const Partition& part = layout.partitions[p];
    names.push_back(Join(part.id, "/", part.roles[role].name, "/",
                         layout.tensors[part.members[member].tensor].name));
  }
  return Status(StatusCode::kNotFound,
                Join("rank ", rank_, " keeps no plain value ", Quote(name),
                     " (partition/role/tensor)", base::NearestNames(name, names)),
                {checkpoint_->opened.directory.string(), std::string(partition), std::nullopt});
}

Result<Value> RankReader::Impl::PlainOf(const Partition& part, const Role& role,
                                        uint32_t tensor) const {
  const std::string name = Join(part.id, "/", role.name, "/", wanted_.tensors[tensor].name);
  const std::string directory = checkpoint_->opened.directory.string();
  const ErrorPlace where{directory, Join(part.id, "/", role.name), std::nullopt};
  FLAGSTONE_ASSIGN_OR_RETURN(const auto places, PlainPlaces(role, tensor));
  const PlainEntry* first = nullptr;
  for (const partition::Place& place : places) {
    const PlainEntry* entry = FindPlain(place);
    if (entry == nullptr) continue;
    if (entry->unlike) {
      return Status(StatusCode::kCorruption,
                    Join("ranks ", entry->rank, " and ", *entry->unlike, " saved unlike values of ",
                         Quote(name), " in ", Quote(directory)),
                    where);
    }
    if (first == nullptr) first = entry;
    if (entry->value == first->value) continue;
    return Status(StatusCode::kInvalidArgument,
                  Join("boxes of one tensor have unlike values of ", Quote(name), " in ",
                       Quote(directory), ": those of ranks ", first->rank, " and ", entry->rank),
                  where);
  }
  if (first == nullptr) return NoPlain(name, where.segment);
  return first->value;
}

Result<Value> RankReader::Impl::Plain(std::string_view partition, std::string_view role,
                                      std::string_view tensor) const {
  const Partition* const part = partition::FindPartition(wanted_, partition);
  const auto role_index = part != nullptr ? partition::FindRole(*part, role) : std::nullopt;
  const auto tensor_index = tensor_names_.Find(tensor);
  const bool is_member =
      role_index && tensor_index && part->roles[*role_index].form == RoleForm::kPlain &&
      std::ranges::any_of(part->members, [&](const Member& m) { return m.tensor == *tensor_index; });
  if (!is_member) return NoPlain(Join(partition, "/", role, "/", tensor), Join(partition, "/", role));
  return PlainOf(*part, part->roles[*role_index], *tensor_index);
}

Result<Value> RankReader::Impl::PlainOfAll(std::string_view partition,
                                           std::string_view role) const {
  const Partition* const part = partition::FindPartition(wanted_, partition);
  const auto index = part != nullptr ? partition::FindRole(*part, role) : std::nullopt;
  if (!index || part->roles[*index].form != RoleForm::kPlain) {
    return NoPlain(Join(partition, "/", role, "/*"), Join(partition, "/", role));
  }
  const auto holder = partition::HolderIndex(*part, rank_);
  if (!holder) return Value();
  const auto p = static_cast<uint32_t>(part - wanted_.partitions.data());
  std::optional<Value> common;
  uint32_t first = 0;
  std::vector<std::string> unlike;
  for (const uint32_t tensor : HeldTensors(partition::Geometry(wanted_, p), *holder)) {
    FLAGSTONE_ASSIGN_OR_RETURN(const Value value, PlainOf(*part, part->roles[*index], tensor));
    if (!common) {
      common = value;
      first = tensor;
    } else if (value != *common) {
      unlike.push_back(Quote(wanted_.tensors[tensor].name));
    }
  }
  if (unlike.empty()) return common.value_or(Value());
  std::string names = unlike[0];
  for (size_t i = 1; i < std::min<size_t>(unlike.size(), 3); ++i) names += ", " + unlike[i];
  if (unlike.size() > 3) names += Join(" and ", unlike.size() - 3, " more");
  return Status(StatusCode::kInvalidArgument,
                Join("the tensors of ", Quote(Join(partition, "/", role)), " in ",
                     Quote(checkpoint_->opened.directory.string()),
                     " do not have one value: that of ", names, " differs from that of ",
                     Quote(wanted_.tensors[first].name), "; ask for each by itself (Plain)"));
}

}  // namespace flagstone
