// SPDX-License-Identifier: Apache-2.0
#include "partition/matcher.h"

#include <numeric>
#include <optional>

#include "base/text.h"
#include "partition/normalize.h"

namespace flagstone::partition {

using base::Join;
using base::Quote;

Result<uint32_t> Matcher::FindTensor(uint32_t wanted_index) {
  uint32_t& known = tensors_[wanted_index];
  if (known != kUnknown) return known;
  const Tensor& wanted = wanted_.tensors[wanted_index];
  const uint32_t found = Search(wanted, wanted_index);
  if (found == kUnknown) {
    return Status(StatusCode::kNotFound, Join("the checkpoint has no tensor ", Quote(wanted.name),
                                              base::NearestNames(wanted.name, AllNames())));
  }
  const Tensor& saved = saved_.tensors[found];
  if (saved.shape != wanted.shape) {
    return Status(
        StatusCode::kInvalidArgument,
        Join("tensor ", Quote(wanted.name), " has shape ", base::ShapeText(saved.shape),
             " in the checkpoint, but shape ", base::ShapeText(wanted.shape), " is wanted"));
  }
  return known = found;
}

Result<Place> Matcher::FindRoleOf(uint32_t tensor, const Role& role, const Place& last) {
  if (last.partition != kUnknown) {
    const std::vector<Member>& members = saved_.partitions[last.partition].members;
    const uint32_t next = last.member + 1;
    if (next < members.size() && members[next].tensor == tensor) {
      return Place{last.partition, last.role, next};
    }
  }
  MakeUses();
  for (uint32_t i = first_use_[tensor]; i < first_use_[tensor + 1]; ++i) {
    const auto found = FindRole(saved_.partitions[uses_[i].partition], role.name);
    if (found) return Place{uses_[i].partition, *found, uses_[i].member};
  }
  std::vector<std::string> names;
  for (uint32_t i = first_use_[tensor]; i < first_use_[tensor + 1]; ++i) {
    for (const Role& other : saved_.partitions[uses_[i].partition].roles) {
      names.push_back(other.name);
    }
  }
  return Status(StatusCode::kNotFound,
                Join("the checkpoint has no role ", Quote(role.name), " of tensor ",
                     Quote(saved_.tensors[tensor].name), base::NearestNames(role.name, names)));
}

void Matcher::AppendPlaces(uint32_t tensor, const Role& role, std::vector<Place>& out) {
  MakeUses();
  for (uint32_t i = first_use_[tensor]; i < first_use_[tensor + 1]; ++i) {
    const auto found = FindRole(saved_.partitions[uses_[i].partition], role.name);
    if (found) out.push_back({uses_[i].partition, *found, uses_[i].member});
  }
}

Place Matcher::FirstGuess(uint32_t wanted_partition, const Role& role, uint32_t tensor) const {
  if (wanted_partition >= saved_.partitions.size()) return {};
  const Partition& saved = saved_.partitions[wanted_partition];
  if (saved.members.empty() || saved.members[0].tensor != tensor) return {};
  const auto found = FindRole(saved, role.name);
  return found ? Place{wanted_partition, *found, 0} : Place{};
}

uint32_t Matcher::Search(const Tensor& wanted, uint32_t wanted_index) {
  if (wanted_index < saved_.tensors.size() && saved_.tensors[wanted_index].name == wanted.name) {
    return wanted_index;
  }
  MakeNames();
  if (const auto at = names_.find(wanted.name); at != names_.end()) return at->second;
  for (const std::string& alias : wanted.aliases) {
    if (const auto at = names_.find(alias); at != names_.end()) return at->second;
  }
  return kUnknown;
}

void Matcher::MakeNames() {
  if (!names_.empty()) return;
  names_.reserve(saved_.tensors.size());
  for (uint32_t t = 0; t < saved_.tensors.size(); ++t) {
    names_.emplace(saved_.tensors[t].name, t);
    for (const std::string& alias : saved_.tensors[t].aliases) names_.emplace(alias, t);
  }
}

std::vector<std::string> Matcher::AllNames() const {
  std::vector<std::string> names;
  for (const Tensor& tensor : saved_.tensors) {
    names.push_back(tensor.name);
    names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
  }
  return names;
}

// In which partitions each saved tensor is: a counting sort of all members.
void Matcher::MakeUses() {
  if (!first_use_.empty()) return;
  first_use_.resize(saved_.tensors.size() + 1);
  for (const Partition& partition : saved_.partitions) {
    for (const Member& member : partition.members) ++first_use_[member.tensor + 1];
  }
  std::partial_sum(first_use_.begin(), first_use_.end(), first_use_.begin());
  uses_.resize(first_use_.back());
  std::vector<uint32_t> slots = first_use_;
  for (uint32_t p = 0; p < saved_.partitions.size(); ++p) {
    const std::vector<Member>& members = saved_.partitions[p].members;
    for (uint32_t m = 0; m < members.size(); ++m) uses_[slots[members[m].tensor]++] = {p, m};
  }
}

}  // namespace flagstone::partition
