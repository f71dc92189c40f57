// SPDX-License-Identifier: Apache-2.0
#include "random_layout.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>

#include "base/text.h"
#include "partition/normalize.h"

namespace flagstone::test {
namespace {

std::string RandomName(Random& random, size_t number) {
  static const char* const kParts[] = {"w",     "layers/0", "..", "\x1b[31m", "\xE9\x87\x8D",
                                       "a b;c", "'"};
  return base::Join(kParts[Below(random, std::size(kParts))], number);
}

DType RandomDType(Random& random) { return AllDTypes()[Below(random, AllDTypes().size())]; }

std::vector<uint64_t> RandomShape(Random& random) {
  std::vector<uint64_t> shape(Below(random, 4));
  for (uint64_t& size : shape) size = Below(random, 8) == 0 ? 0 : 1 + Below(random, 9);
  return shape;
}

// Some ranks of the world in some order.
std::vector<uint32_t> RandomRanks(Random& random, uint32_t world) {
  std::vector<uint32_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  if (Below(random, 2) == 0) std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(1 + Below(random, world));
  return ranks;
}

std::vector<uint64_t> RandomCuts(Random& random, uint64_t elements, size_t ranks) {
  std::vector<uint64_t> cuts(ranks + 1);
  for (uint64_t& cut : cuts) cut = Below(random, elements + 1);
  std::sort(cuts.begin(), cuts.end());
  cuts.front() = 0;
  cuts.back() = elements;
  return cuts;
}

std::vector<uint32_t> RandomOwners(Random& random, size_t members, size_t ranks) {
  std::vector<uint32_t> owners(members);
  for (uint32_t& owner : owners) owner = static_cast<uint32_t>(Below(random, ranks));
  return owners;
}

CutRule RandomCut(Random& random, const std::vector<uint64_t>& elements, size_t ranks) {
  const uint64_t total = std::accumulate(elements.begin(), elements.end(), uint64_t{0});
  switch (Below(random, 5)) {
    case 0:
      return FlatCut{RandomCuts(random, total, ranks)};
    case 1:
      return PerTensorCut{Below(random, 2) == 0 ? CutUnit::kElement : CutUnit::kRow};
    case 2:
      return WholeCut{RandomOwners(random, elements.size(), ranks)};
    case 3:
      return ReplicatedCut{RandomOwners(random, elements.size(), ranks)};
    default:
      break;
  }
  ExplicitCut cut;
  for (uint32_t m = 0; m < elements.size(); ++m) {
    const auto cuts = RandomCuts(random, elements[m], 3);
    for (size_t i = 0; i < 3; ++i) {
      if (cuts[i] == cuts[i + 1]) continue;
      cut.pieces.push_back({static_cast<uint32_t>(Below(random, ranks)), m, cuts[i], cuts[i + 1]});
    }
  }
  std::shuffle(cut.pieces.begin(), cut.pieces.end(), random);
  return cut;
}

Partition RandomPartition(Random& random, const Layout& layout, std::string id) {
  Partition partition;
  partition.id = std::move(id);
  auto ranks = RandomRanks(random, layout.world_size);
  if (ranks.size() % 2 == 0 && Below(random, 3) == 0) {
    const auto half = static_cast<std::ptrdiff_t>(ranks.size() / 2);
    partition.replicas = {RankList::Of({ranks.begin() + half, ranks.end()})};
    ranks.resize(ranks.size() / 2);
  }
  partition.ranks = RankList::Of(ranks);
  std::vector<uint64_t> elements;
  for (uint32_t t = 0; t < layout.tensors.size(); ++t) {
    if (Below(random, 3) == 0) continue;
    partition.members.push_back({t, std::nullopt});
    elements.push_back(ElementCount(layout.tensors[t].shape).value());
  }
  partition.cut = RandomCut(random, elements, ranks.size());
  const bool whole = std::holds_alternative<WholeCut>(partition.cut);
  for (size_t r = 0; r < 1 + Below(random, 3); ++r) {
    Role role;
    // Unlike in all partitions, so that nothing has two owners.
    role.name = base::Join(partition.id, " role ", r);
    role.dtype = RandomDType(random);
    if (Below(random, 3) == 0) role.form = RoleForm::kPlain;
    if (whole && Below(random, 2) == 0) {
      role.form = RoleForm::kAttached;
      for (size_t m = 0; m < elements.size(); ++m) role.shapes.push_back(RandomShape(random));
    }
    if (whole) role.block = 1 + Below(random, 5);
    if (Below(random, 2) == 0)
      role.chunk_bytes = static_cast<uint32_t>(4096 * (1 + Below(random, 4)));
    partition.roles.push_back(std::move(role));
  }
  return partition;
}

Value RandomScalar(Random& random) {
  switch (Below(random, 6)) {
    case 0:
      return {};
    case 1:
      return Value(Below(random, 2) == 0);
    case 2:
      return Value(static_cast<int64_t>(random()));
    case 3:
      return Value(std::bit_cast<double>(random()));
    case 4:
      return Value(RandomName(random, Below(random, 1000)));
    default:
      return Value(Value::Bytes(Below(random, 9), static_cast<std::byte>(random())));
  }
}

}  // namespace

Value RandomValue(Random& random, int depth) {
  const uint64_t kind = Below(random, depth > 5 ? 6 : 10);
  if (kind < 6) return RandomScalar(random);
  if (kind == 6) {
    Array array{RandomDType(random), RandomShape(random), {}};
    if (Below(random, 4) == 0) array.shape = {4097};
    array.bytes.resize(ElementCount(array.shape).value() * SizeOf(array.dtype));
    for (std::byte& byte : array.bytes) byte = static_cast<std::byte>(random());
    return array;
  }
  if (kind == 7) {
    Value::List list;
    for (uint64_t i = Below(random, 5); i > 0; --i) list.push_back(RandomValue(random, depth + 1));
    return list;
  }
  Value::Dict dict;
  for (uint64_t i = Below(random, 5); i > 0; --i) {
    Value key = RandomScalar(random);
    const bool known = std::any_of(dict.begin(), dict.end(),
                                   [&](const auto& entry) { return entry.first == key; });
    if (!known) dict.emplace_back(std::move(key), RandomValue(random, depth + 1));
  }
  return dict;
}

Layout RandomLayout(Random& random) {
  Layout layout;
  layout.world_size = static_cast<uint32_t>(1 + Below(random, 9));
  for (uint64_t g = Below(random, 3); g > 0; --g) {
    Value parameters = Value::Dict{{"lr", RandomScalar(random)}, {"more", RandomValue(random)}};
    layout.groups.push_back({Below(random, 3) == 0 ? Value() : parameters});
  }
  const size_t tensors = Below(random, 12);
  for (size_t t = 0; t < tensors; ++t) {
    Tensor tensor;
    tensor.name = RandomName(random, t);
    tensor.dtype = RandomDType(random);
    tensor.shape = RandomShape(random);
    if (Below(random, 3) == 0) tensor.kind = TensorKind::kBuffer;
    if (!layout.groups.empty() && Below(random, 2) == 0) {
      tensor.group = static_cast<uint32_t>(Below(random, layout.groups.size()));
    }
    tensor.trainable = Below(random, 2) == 0;
    if (Below(random, 4) == 0) tensor.aliases = {base::Join("alias ", t), base::Join("tied ", t)};
    layout.tensors.push_back(std::move(tensor));
  }
  for (uint64_t p = Below(random, 5); p > 0; --p) {
    layout.partitions.push_back(RandomPartition(random, layout, RandomName(random, p)));
    std::string& id = layout.partitions.back().id;
    std::replace(id.begin(), id.end(), '/', '.');
    for (Role& role : layout.partitions.back().roles) {
      std::replace(role.name.begin(), role.name.end(), '/', '.');
    }
  }
  return partition::Normalize(std::move(layout));
}

}  // namespace flagstone::test
