// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Finds the tensors and roles of one layout in another.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "flagstone/partition.h"
#include "flagstone/status.h"

namespace flagstone::partition {

inline constexpr uint32_t kUnknown = std::numeric_limits<uint32_t>::max();

/// Where a role of a tensor is in the saved layout.
struct Place {
  uint32_t partition = kUnknown;
  uint32_t role = 0;
  uint32_t member = 0;
};

/// Finds wanted tensors and roles in the saved layout; both are borrowed. The order of things is
/// mostly the same on both sides, so that what follows the last find is tried first and the indexes
/// are made only when needed.
class Matcher {
 public:
  Matcher(const Layout& saved, const Layout& wanted)
      : saved_(saved), wanted_(wanted), tensors_(wanted.tensors.size(), kUnknown) {}

  /// The saved tensor of a wanted one, of the same shape. Errors: kNotFound (nearest names),
  /// kInvalidArgument (both shapes).
  Result<uint32_t> FindTensor(uint32_t wanted_index);
  /// A place where the checkpoint has `role` of a saved tensor. `last` is the place found before.
  /// Errors: kNotFound (nearest names).
  Result<Place> FindRoleOf(uint32_t tensor, const Role& role, const Place& last);
  /// Every such place: several where boxes of the tensor have it.
  void AppendPlaces(uint32_t tensor, const Role& role, std::vector<Place>& out);
  /// The place of the first member of a partition: where the checkpoint has an equally named
  /// partition in the same place it is likely the same one.
  Place FirstGuess(uint32_t wanted_partition, const Role& role, uint32_t tensor) const;

 private:
  struct Use {
    uint32_t partition = 0;
    uint32_t member = 0;
  };

  uint32_t Search(const Tensor& wanted, uint32_t wanted_index);
  void MakeNames();
  std::vector<std::string> AllNames() const;
  void MakeUses();

  const Layout& saved_;
  const Layout& wanted_;
  std::vector<uint32_t> tensors_;  // by wanted tensor: the saved one, once found
  std::unordered_map<std::string_view, uint32_t> names_;
  std::vector<uint32_t>
      first_use_;  // by saved tensor: its first entry in uses_; one more at the end
  std::vector<Use> uses_;
};

}  // namespace flagstone::partition
