// SPDX-License-Identifier: Apache-2.0
// Tensors and offsets beyond 2 and 4 GiB, on sparse files.

#include <algorithm>
#include <map>

#include "load_support.h"

namespace flagstone::testing {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Zero but for some places, which are known to be so: the file stays sparse.
class HoleSource final : public Source {
 public:
  HoleSource(uint64_t size, std::map<uint64_t, std::vector<std::byte>> places)
      : size_(size), places_(std::move(places)) {}
  uint64_t size_bytes() const override { return size_; }
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    std::ranges::fill(out, std::byte{0});
    for (const auto& [at, bytes] : places_) {
      const uint64_t begin = std::max(at, offset);
      const uint64_t end = std::min(at + bytes.size(), offset + out.size());
      for (uint64_t i = begin; i < end; ++i) out[i - offset] = bytes[i - at];
    }
    return {};
  }
  bool IsZero(uint64_t offset, uint64_t size) const override {
    return std::ranges::none_of(places_, [&](const auto& place) {
      return place.first < offset + size && offset < place.first + place.second.size();
    });
  }
  const std::map<uint64_t, std::vector<std::byte>>& places() const { return places_; }

 private:
  const uint64_t size_;
  const std::map<uint64_t, std::vector<std::byte>> places_;
};

std::vector<std::byte> Mark(uint64_t number) {
  std::vector<std::byte> bytes(64);
  FillValue("mark", "", number, 0, bytes);
  return bytes;
}

// Checks what comes against a source, and that all of it does.
class ComparingSink final : public Sink {
 public:
  explicit ComparingSink(HoleSource& source) : source_(source) {}
  Status Write(uint64_t offset, std::span<const std::byte> bytes) override {
    count += bytes.size();
    expected_.resize(bytes.size());
    if (Status status = source_.Read(offset, expected_); !status.ok()) return status;
    if (!std::ranges::equal(bytes, expected_)) ++wrong;
    return {};
  }
  uint64_t count = 0;
  uint64_t wrong = 0;

 private:
  HoleSource& source_;
  std::vector<std::byte> expected_;
};

Layout TwoTensors(uint64_t a, uint64_t b) {
  Layout layout;
  layout.world_size = 1;
  for (const uint64_t size : {a, b}) {
    Tensor tensor;
    tensor.name = layout.tensors.empty() ? "a" : "b";
    tensor.dtype = DType::kInt8;
    tensor.shape = {size};
    layout.tensors.push_back(tensor);
  }
  Role role{"codes", DType::kInt8};
  role.chunk_bytes = 4u << 20;
  layout.partitions.push_back(MakeWhole("p", {0, 1}, RankList::World(1), {role}, {0, 0}));
  return layout;
}

void Save(const std::filesystem::path& path, const Layout& layout, HoleSource& a, HoleSource& b) {
  SaveOptions options;
  options.run = "large";
  auto writer = Writer::Create(path, layout, 0, options);
  ASSERT_OK(writer);
  ASSERT_OK(writer->AddTensor("p", "codes", "a", a));
  ASSERT_OK(writer->AddTensor("p", "codes", "b", b));
  ASSERT_OK(writer->Commit());
}

TEST(LoadLarge, FieldCase_C13_C14_BeyondTwoAndFourGiB) {
  const ScratchDirectory scratch;
  const uint64_t size = 4 * kGiB + 1;
  HoleSource a(size, {{0, Mark(0)},
                      {2 * kGiB - 32, Mark(1)},
                      {4 * kGiB - 63, Mark(2)}});  // the last 64 bytes, over the mark of 4 GiB
  HoleSource b(1000, {{0, Mark(3)}, {936, Mark(4)}});
  Save(scratch / "c", TwoTensors(size, 1000), a, b);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  const SegmentInfo& segment = reader->segments()[0];
  ASSERT_EQ(segment.offsets, (std::vector<uint64_t>{0, 4 * kGiB + 64}));
  EXPECT_EQ(segment.bytes, 4 * kGiB + 64 + 1000);

  const auto small = reader->ViewTensor("p", "codes", "b");  // behind 4 GiB
  ASSERT_OK(small);
  std::vector<std::byte> expected(1000);
  ASSERT_OK(b.Read(0, expected));
  EXPECT_TRUE(std::ranges::equal(small->bytes(), expected));

  LoadOptions trusting;
  trusting.verify = false;
  const auto quick = checkpoint->OpenRank(0, trusting);
  ASSERT_OK(quick);
  const auto whole = quick->ViewTensor("p", "codes", "a");
  ASSERT_OK(whole);
  ASSERT_EQ(whole->bytes().size(), size);
  for (const auto& [at, bytes] : a.places()) {
    EXPECT_TRUE(std::ranges::equal(whole->bytes().subspan(at, bytes.size()), bytes)) << at;
  }
}

TEST(LoadLarge, FieldCase_C13_EveryByteOfATensorAboveTwoGiB) {
  const ScratchDirectory scratch;
  const uint64_t size = 2 * kGiB + 4096 + 7;
  HoleSource a(size, {{12345, Mark(5)}, {2 * kGiB - 32, Mark(6)}, {size - 64, Mark(7)}});
  HoleSource b(1, {});
  Save(scratch / "c", TwoTensors(size, 1), a, b);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  // The segment is a, zeros up to 64 bytes, and b.
  HoleSource segment(reader->segments()[0].bytes, a.places());
  ComparingSink sink(segment);
  const Destination destination{"p", "codes", {}, &sink};
  const auto report = reader->Load({&destination, 1});
  ASSERT_OK(report);
  EXPECT_EQ(sink.count, reader->segments()[0].bytes);
  EXPECT_EQ(sink.wrong, 0u);
  EXPECT_EQ(report->verified_bytes, reader->plan().read_bytes);
}

}  // namespace
}  // namespace flagstone::testing
