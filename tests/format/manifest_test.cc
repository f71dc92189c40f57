// SPDX-License-Identifier: Apache-2.0
#include "format/manifest.h"

#include <gmock/gmock.h>

#include "format/rank_index.h"
#include "golden_maker.h"
#include "random_layout.h"
#include "raw_wire.h"

namespace flagstone::test {
namespace {

using testing::HasSubstr;

TEST(Manifest, RoundTrip) {
  const format::Manifest manifest = SmallManifest();
  const auto file = format::EncodeManifest(manifest);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->size() % 4096, 0u);
  EXPECT_EQ(format::DecodeManifest(*file).value(), manifest);
}

TEST(Manifest, RoundTripOfRandomOnes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    format::Manifest manifest;
    manifest.save_id[seed % 16] = std::byte{1};
    if (Below(random, 2) == 0) manifest.step = static_cast<int64_t>(random());
    manifest.committed_at = static_cast<int64_t>(random() >> 1);
    manifest.layout = RandomLayout(random);
    manifest.client_state = RandomValue(random);
    for (Array* array : format::SegmentArrays(manifest.client_state)) array->bytes.clear();
    for (uint32_t rank = 0; rank < manifest.layout.world_size; ++rank) {
      format::RankFileEntry entry{
          rank, 4096 * (2 + Below(random, 1 << 20)), 1 + Below(random, 4096), {}};
      entry.index_digest[3] = static_cast<std::byte>(random());
      manifest.files.push_back(entry);
    }
    const auto file = format::EncodeManifest(manifest);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    ASSERT_EQ(format::DecodeManifest(*file).value(), manifest);
  }
}

TEST(Manifest, StepMayBeAbsentOrNegative) {
  format::Manifest manifest = SmallManifest();
  for (const std::optional<int64_t> step : {std::optional<int64_t>(), {0}, {-1}}) {
    manifest.step = step;
    EXPECT_EQ(format::DecodeManifest(format::EncodeManifest(manifest).value())->step, step);
  }
}

TEST(Manifest, WithoutDataIsDecoded) {
  format::Manifest manifest = SmallManifest();
  manifest.required_features = format::kFeatureNoData;
  for (auto& file : manifest.files) file = {file.rank, 8192, 0, {}};
  const auto decoded = format::DecodeManifest(format::EncodeManifest(manifest).value());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, manifest);
}

// What could not be opened is not written: the reader's rules, as the writer's error.
TEST(Manifest, EncodeRefusesWhatDecodeWould) {
  const auto refused = [](auto edit, std::string_view message) {
    format::Manifest manifest = SmallManifest();
    edit(manifest);
    const Status status = format::EncodeManifest(manifest).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(message));
  };
  refused([](format::Manifest& m) { m.files.pop_back(); }, "names 1 rank files");
  refused([](format::Manifest& m) { m.files[0].index_length = 0; }, "does not fit");
  refused([](format::Manifest& m) { m.layout.tensors[1].name = m.layout.tensors[0].name; },
          "duplicate name 'w'");
  refused([](format::Manifest& m) { std::swap(m.layout.partitions[0], m.layout.partitions[1]); },
          "not in normal form");
  refused([](format::Manifest& m) { m.client_state = "\xFF"; }, "not UTF-8");
  refused([](format::Manifest& m) { m.required_features = 4; }, "feature of bit 2");
}

TEST(Manifest, FaultsSayWhereInTheFile) {
  FileBytes file = format::EncodeManifest(SmallManifest()).value();
  file.back() = std::byte{1};
  EXPECT_EQ(format::DecodeManifest(file).status().place().offset, file.size() - 1);
  file = format::EncodeManifest(SmallManifest()).value();
  file[4200] ^= std::byte{1};
  EXPECT_EQ(format::DecodeManifest(file).status().place().offset, 4096u);
  file[100] ^= std::byte{1};
  EXPECT_EQ(format::DecodeManifest(file).status().place().offset, 0u);
}

// A newer minor version may add fields to tables; those that are known are read (versioning.md).
TEST(Manifest, OfANewerMinorIsRead) {
  const FileBytes file = WrapManifest(RawManifestBody({}), [](format::Header& h) { h.minor = 7; });
  EXPECT_TRUE(format::DecodeManifest(file).ok());
}

}  // namespace
}  // namespace flagstone::test
