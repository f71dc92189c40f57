// SPDX-License-Identifier: Apache-2.0
#include "random_layout.h"

#include <rapidcheck.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "base/text.h"
#include "flagstone/zero.h"

namespace flagstone::partition_tests {
namespace {

uint64_t Count(const std::vector<uint64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

template <typename T>
void Shuffle(const Draw& draw, std::vector<T>& items) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[draw(i)]);
}

std::vector<uint64_t> RandomShape(const Draw& draw, uint64_t most_elements) {
  static constexpr uint64_t kSizes[] = {1, 2, 3, 5, 7, 13, 16, 33, 57, 64, 100, 129, 513};
  std::vector<uint64_t> shape;
  const uint64_t dimensions = draw(4);
  for (uint64_t d = 0; d < dimensions; ++d) {
    shape.push_back(draw(12) == 0 ? 0 : kSizes[draw(std::size(kSizes))]);
  }
  while (Count(shape) > most_elements) shape.pop_back();
  return shape;
}

// The lists of a partition: `lists` of them, equally long and without a common rank.
std::vector<RankList> RandomRanks(const Draw& draw, uint32_t world) {
  std::vector<uint32_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  const uint64_t kind = draw(4);
  if (kind == 0) return {RankList::World(world)};
  if (kind > 1) Shuffle(draw, ranks);
  const uint64_t lists = 1 + draw(std::min<uint64_t>(world, 3));
  const uint64_t length = 1 + draw(world / lists);
  std::vector<RankList> result;
  for (uint64_t i = 0; i < lists; ++i) {
    std::vector<uint32_t> list;
    for (uint64_t j = 0; j < length; ++j) {
      // Of kind 1 the lists interleave, as those of a mesh do.
      list.push_back(kind == 1 ? ranks[j * lists + i] : ranks[i * length + j]);
    }
    result.push_back(RankList::Of(list));
  }
  return result;
}

class Builder {
 public:
  Builder(const Draw& draw, const std::vector<ModelTensor>& model, const LayoutChoice& choice)
      : draw_(draw), model_(model), choice_(choice) {}

  Layout Build() {
    layout_.world_size = 1 + static_cast<uint32_t>(draw_(choice_.most_ranks));
    layout_.groups.resize(draw_(3));
    std::vector<uint32_t> chosen(model_.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    Shuffle(draw_, chosen);
    if (choice_.subset && !chosen.empty()) chosen.resize(draw_(chosen.size() + 1));
    ids_ = chosen;
    for (const uint32_t id : chosen) AddTensor(id);
    // Bundles of roles, each with partitions of its own.
    AddPartitions({{.name = "weight"}}, false);
    AddPartitions({{.name = "fp32"}, Plain("step")}, false);
    AddPartitions(
        {{.name = "exp_avg", .dtype = DType::kBFloat16}, {.name = "codes", .dtype = DType::kUint8}},
        false);
    AddPartitions({{.name = "wide", .dtype = DType::kComplex128}}, false);
    AddPartitions({{.name = "factor", .dtype = DType::kFloat64, .form = RoleForm::kAttached},
                   {.name = "scale", .dtype = DType::kFloat16}},
                  true);
    Shuffle(draw_, layout_.partitions);
    return std::move(layout_);
  }

 private:
  static Role Plain(std::string name) {
    return {.name = std::move(name), .dtype = DType::kInt64, .form = RoleForm::kPlain};
  }

  void AddTensor(uint32_t id) {
    const ModelTensor& source = model_[id];
    Tensor tensor;
    tensor.dtype = source.dtype;
    tensor.shape = source.shape;
    tensor.kind = draw_(2) == 0 ? TensorKind::kParameter : TensorKind::kBuffer;
    if (!layout_.groups.empty() && draw_(2) == 0) {
      tensor.group = static_cast<uint32_t>(draw_(layout_.groups.size()));
    }
    std::vector<std::string> names = source.names;
    if (choice_.rename) {
      std::swap(names[0], names[draw_(names.size())]);
      if (draw_(3) == 0) names.resize(1);
    }
    tensor.name = names[0];
    tensor.aliases.assign(names.begin() + 1, names.end());
    layout_.tensors.push_back(std::move(tensor));
  }

  // Each tensor, or boxes that together are it.
  std::vector<Member> RandomMembers(bool whole) {
    std::vector<Member> members;
    for (uint32_t t = 0; t < layout_.tensors.size(); ++t) {
      std::vector<Box> boxes;
      if (choice_.boxes && whole) boxes = model_[ids_[t]].attached_boxes;
      if (choice_.boxes && !whole && draw_(3) == 0) {
        boxes = RandomBoxes(draw_, layout_.tensors[t].shape);
      }
      if (boxes.empty()) members.push_back({t, std::nullopt});
      for (Box& box : boxes) members.push_back({t, std::move(box)});
    }
    Shuffle(draw_, members);
    return members;
  }

  void AddPartitions(const std::vector<Role>& roles, bool whole) {
    std::vector<Member> units = RandomMembers(whole);
    const bool by_dtype = roles[0].name == "weight";
    const bool leave_out = !choice_.all_roles && draw_(3) == 0;
    if (leave_out && !units.empty()) {
      const uint32_t tensor = units.back().tensor;
      std::erase_if(units, [&](const Member& unit) { return unit.tensor == tensor; });
    }
    while (!units.empty()) {
      const DType dtype = layout_.tensors[units.back().tensor].dtype;
      const uint64_t most = 1 + draw_(units.size());
      std::vector<Member> members;
      std::vector<Member> rest;
      for (size_t i = units.size(); i-- > 0;) {
        const bool fits = !by_dtype || layout_.tensors[units[i].tensor].dtype == dtype;
        (fits && members.size() < most ? members : rest).push_back(units[i]);
      }
      units = rest;
      AddPartition(members, roles, dtype, whole);
    }
    if (draw_(8) == 0) AddPartition({}, roles, DType::kFloat32, whole);  // no members at all
  }

  void AddPartition(const std::vector<Member>& members, std::vector<Role> roles, DType dtype,
                    bool whole) {
    Partition partition;
    partition.id = base::Join("p", layout_.partitions.size());
    auto lists = RandomRanks(draw_, layout_.world_size);
    partition.ranks = lists[0];
    partition.replicas.assign(lists.begin() + 1, lists.end());
    partition.members = members;
    for (Role& role : roles) {
      if (role.name == "weight") role.dtype = dtype;
      if (role.form != RoleForm::kAttached) continue;
      for (const Member& member : members) {
        role.shapes.push_back(model_[ids_[member.tensor]].attached);
      }
    }
    Shuffle(draw_, roles);
    partition.roles = std::move(roles);
    partition.cut = RandomCut(members, partition.ranks.size(), whole);
    layout_.partitions.push_back(std::move(partition));
  }

  const std::vector<uint64_t>& ShapeOf(const Member& member) const {
    return member.box ? member.box->sizes : layout_.tensors[member.tensor].shape;
  }

  CutRule RandomCut(const std::vector<Member>& members, uint32_t ranks, bool whole) {
    std::vector<uint64_t> elements;
    for (const Member& member : members) elements.push_back(Count(ShapeOf(member)));
    std::vector<uint32_t> owners;
    for (size_t i = 0; i < members.size(); ++i) {
      owners.push_back(static_cast<uint32_t>(draw_(ranks)));
    }
    if (draw_(4) == 0) std::fill(owners.begin(), owners.end(), 0);
    if (whole) return WholeCut{owners};
    switch (draw_(8)) {
      case 0:
        return PerTensorCut{CutUnit::kElement};
      case 1:
        return PerTensorCut{CutUnit::kRow};
      case 2:
        return WholeCut{owners};
      case 3:
        return ReplicatedCut{owners};
      case 4:
        return RandomPieces(elements, ranks);
      case 5:
        return RandomFlat(std::accumulate(elements.begin(), elements.end(), uint64_t{0}), ranks);
      default:
        return RandomMesh(members, ranks);
    }
  }

  // The rank list as a mesh of up to four axes.
  CutRule RandomMesh(const std::vector<Member>& members, uint32_t ranks) {
    size_t dimensions = 3;
    for (const Member& member : members) {
      dimensions = std::min(dimensions, ShapeOf(member).size());
    }
    MeshCut cut;
    while (cut.axes.size() < 4 && (ranks > 1 || draw_(2) == 0)) {
      std::vector<uint32_t> sizes;
      for (uint32_t size = 1; size <= ranks; ++size) {
        if (ranks % size == 0) sizes.push_back(size);
      }
      MeshAxis axis;
      axis.size = cut.axes.size() == 3 ? ranks : sizes[draw_(sizes.size())];
      ranks /= axis.size;
      axis.placement = dimensions == 0 ? MeshPlacement::kReplicate
                                       : static_cast<MeshPlacement>(draw_(3));
      if (axis.placement != MeshPlacement::kReplicate) {
        axis.dimension = static_cast<uint32_t>(draw_(dimensions));
      }
      if (axis.placement == MeshPlacement::kStridedShard) {
        axis.split_factor = 1 + static_cast<uint32_t>(draw_(5));
      }
      cut.axes.push_back(axis);
    }
    return cut;
  }

  CutRule RandomFlat(uint64_t total, uint32_t ranks) {
    if (draw_(2) == 0) return FlatCut{EvenCuts(total, ranks, 1 + draw_(8))};
    FlatCut cut;
    for (uint32_t i = 1; i < ranks; ++i) cut.cuts.push_back(draw_(total + 1));
    cut.cuts.push_back(0);
    cut.cuts.push_back(total);
    std::sort(cut.cuts.begin(), cut.cuts.end());
    return cut;
  }

  CutRule RandomPieces(const std::vector<uint64_t>& elements, uint32_t ranks) {
    ExplicitCut cut;
    for (uint32_t m = 0; m < elements.size(); ++m) {
      for (uint64_t begin = 0; begin < elements[m];) {
        const uint64_t end = begin + 1 + draw_(elements[m] - begin);
        cut.pieces.push_back({static_cast<uint32_t>(draw_(ranks)), m, begin, end});
        begin = end;
      }
    }
    if (draw_(2) == 0) Shuffle(draw_, cut.pieces);
    return cut;
  }

  const Draw& draw_;
  const std::vector<ModelTensor>& model_;
  const LayoutChoice& choice_;
  Layout layout_;
  std::vector<uint32_t> ids_;  // of the layout's tensors
};

}  // namespace

Draw SeededDraw(uint64_t seed) {
  auto generator = std::make_shared<std::mt19937_64>(seed);
  return [generator](uint64_t bound) { return (*generator)() % bound; };
}

Draw RapidCheckDraw() {
  return [](uint64_t bound) { return *rc::gen::inRange<uint64_t>(0, bound); };
}

std::vector<ModelTensor> RandomModel(const Draw& draw, uint64_t most_tensors,
                                     uint64_t most_elements) {
  static constexpr DType kDTypes[] = {DType::kBFloat16, DType::kFloat32, DType::kBool};
  std::vector<ModelTensor> model(draw(most_tensors + 1));
  for (size_t id = 0; id < model.size(); ++id) {
    model[id].shape = RandomShape(draw, most_elements);
    model[id].dtype = kDTypes[draw(std::size(kDTypes))];
    model[id].attached = RandomShape(draw, most_elements);
    if (draw(3) == 0) model[id].attached_boxes = RandomBoxes(draw, model[id].shape);
    const uint64_t tied = 1 + (draw(4) == 0 ? draw(3) : 0);
    for (uint64_t n = 0; n < tied; ++n) {
      model[id].names.push_back(base::Join(std::string(n + 1, 't'), id));
    }
  }
  return model;
}

Layout RandomLayout(const Draw& draw, const std::vector<ModelTensor>& model,
                    const LayoutChoice& choice) {
  return Builder(draw, model, choice).Build();
}

std::vector<Box> RandomBoxes(const Draw& draw, const std::vector<uint64_t>& shape) {
  std::vector<Box> boxes = {{std::vector<uint64_t>(shape.size(), 0), shape}};
  for (uint64_t cuts = draw(4); cuts > 0 && !shape.empty(); --cuts) {
    Box& box = boxes[draw(boxes.size())];
    const uint64_t d = draw(shape.size());
    if (box.sizes[d] < 2) continue;
    Box rest = box;
    box.sizes[d] = 1 + draw(box.sizes[d] - 1);
    rest.offsets[d] += box.sizes[d];
    rest.sizes[d] -= box.sizes[d];
    boxes.push_back(rest);
  }
  Shuffle(draw, boxes);
  return boxes;
}

uint64_t ModelId(const Tensor& tensor) {
  const size_t digits = tensor.name.find_first_not_of('t');
  uint64_t id = 0;
  std::from_chars(tensor.name.data() + digits, tensor.name.data() + tensor.name.size(), id);
  return id;
}

}  // namespace flagstone::partition_tests
