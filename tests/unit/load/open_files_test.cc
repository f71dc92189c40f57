// SPDX-License-Identifier: Apache-2.0
// Which files a load opens and what a device that fails does to it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

#include "flagstone/zero.h"
#include "load/open_with.h"
#include "saved_files.h"
#include "support/fault_file_system.h"
#include "support/temporary_directory.h"

namespace flagstone {
namespace {

using testing::Call;
using testing::Fault;
using testing::FaultFileSystem;
using ::testing::HasSubstr;
using testing::Operation;

class OpenFiles : public ::testing::Test {
 protected:
  OpenFiles() {
    Layout layout;
    layout.world_size = 4;
    Tensor tensor;
    tensor.name = "t";
    tensor.shape = {2400000};
    layout.tensors.push_back(tensor);
    layout.partitions = {
        MakeZero3("p", {0}, RankList::World(4), {{"fp32", DType::kFloat32}}),
        MakeReplicated(layout, "w", {0}, RankList::World(4), {{"weight", DType::kFloat32}})
            .value()};
    saved_ = testing::MakeCheckpoint(layout);
    testing::WriteFiles(saved_, directory_ / "c");
    fs_.Add([this](const Call& call) -> std::optional<Fault> {
      if (call.operation == Operation::kOpen) opened_.push_back(call.path.filename().string());
      return std::nullopt;
    });
  }

  testing::TemporaryDirectory directory_;
  testing::SavedCheckpoint saved_;
  FaultFileSystem fs_{io::PosixFileSystem()};
  std::vector<std::string> opened_;
};

TEST_F(OpenFiles, OpenReadsTheManifestAndStatsNothingElse) {
  const auto checkpoint = load::OpenWith(fs_, directory_ / "c");
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(opened_, std::vector<std::string>{"manifest.flagstone"});
  EXPECT_EQ(fs_.calls(Operation::kStat), 0u);
  opened_.clear();
  EXPECT_TRUE(checkpoint->PlanRank(2).ok());
  EXPECT_TRUE(opened_.empty());
}

TEST_F(OpenFiles, FieldCase_A01_OwnIsOneFile) {
  const auto checkpoint = load::OpenWith(fs_, directory_ / "c");
  ASSERT_TRUE(checkpoint.ok());
  opened_.clear();
  LoadOptions options;
  options.backend = Backend::kPread;
  const auto reader = checkpoint->OpenRank(2, options);
  ASSERT_TRUE(reader.ok());
  const auto memory = reader->Allocate();
  ASSERT_TRUE(reader->Load(memory->destinations).ok());
  EXPECT_EQ(opened_, std::vector<std::string>{saved_.files[2].name});
}

TEST_F(OpenFiles, ABlockThatCannotBeReadIsAnErrorOfEveryWayToReadIt) {
  const auto path = directory_ / "c" / saved_.files[1].name;
  fs_.FailRange(Operation::kRead, path, 65536, 65537, EIO);
  const auto checkpoint = load::OpenWith(fs_, directory_ / "c");
  ASSERT_TRUE(checkpoint.ok());
  for (const Backend backend : {Backend::kAuto, Backend::kUring, Backend::kPread}) {
    if (backend == Backend::kUring && !fs_.MakeQueue(io::QueueKind::kUring, 1).ok()) continue;
    LoadOptions options;
    options.backend = backend;
    const auto reader = checkpoint->OpenRank(1, options);
    ASSERT_TRUE(reader.ok());
    const auto memory = reader->Allocate();
    const Status status = reader->Load(memory->destinations).status();
    EXPECT_EQ(status.code(), StatusCode::kIoError) << Name(backend);
    EXPECT_THAT(status.message(), HasSubstr(path.string()));
  }
  // Verify goes on behind it and names the chunk.
  VerifyOptions options;
  options.backend = Backend::kPread;
  const auto report = load::VerifyWith(fs_, directory_ / "c", options);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].code, StatusCode::kIoError);
  EXPECT_EQ(report->problems[0].file, saved_.files[1].name);
  EXPECT_EQ(report->problems[0].segment, "p/fp32");
  EXPECT_EQ(report->problems[0].chunk, (65536u - 4096) / 16384);
}

// A digest page that cannot be read again makes its chunks unknown, not sound: here it fails once,
// and a chunk of the same batch does, so that all is read a second time.
TEST_F(OpenFiles, VerifyForgetsNoChunkWhenItReadsASecondTime) {
  const auto path = directory_ / "c" / saved_.files[1].name;
  const uint64_t digests = saved_.files[1].index.placement.digests_offset;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 3);
    file.put('x');
  }
  uint64_t digest_reads = 0;
  bool failed = false;
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.path != path) return std::nullopt;
    if (call.operation == Operation::kRead && call.offset == digests && ++digest_reads == 2)
      return Fault{EIO, {}};
    // A window behind the one whose digests could not be read.
    if (call.operation != Operation::kMap || digest_reads < 2 || failed) return std::nullopt;
    failed = true;
    return Fault{EIO, {}};
  });
  VerifyOptions options;
  options.backend = Backend::kMmap;
  const auto report = load::VerifyWith(fs_, directory_ / "c", options);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(failed);
  EXPECT_GE(digest_reads, 3u);
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].segment, "p/fp32");
  EXPECT_EQ(report->problems[0].chunk, 0u);
}

TEST_F(OpenFiles, AMappingThatIsRefusedIsAnError) {
  const auto checkpoint = load::OpenWith(fs_, directory_ / "c");
  ASSERT_TRUE(checkpoint.ok());
  const auto reader = checkpoint->OpenRank(1);
  ASSERT_TRUE(reader.ok());
  fs_.Fail(Operation::kMap, ENOMEM);
  const Status status = reader->ViewSegment("p", "fp32").status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr(saved_.files[1].name));
}

TEST_F(OpenFiles, DescriptorsThatRunOutAreAnErrorWithThePath) {
  const auto checkpoint = load::OpenWith(fs_, directory_ / "c");
  ASSERT_TRUE(checkpoint.ok());
  fs_.Fail(Operation::kOpen, EMFILE);
  const Status status = checkpoint->OpenRank(3).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(saved_.files[3].name));
}

}  // namespace
}  // namespace flagstone
