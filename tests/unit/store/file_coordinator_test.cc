// SPDX-License-Identifier: Apache-2.0
#include "store/file_coordinator.h"

#include <atomic>
#include <thread>

#include "store_test_util.h"
#include "support/fault_file_system.h"

namespace flagstone::store {
namespace {

using flagstone::testing::FaultFileSystem;
using flagstone::testing::Operation;
using flagstone::testing::TemporaryDirectory;
using ::testing::UnorderedElementsAre;

Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(10); }

class FileCoordinatorTest : public ::testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::shared_ptr<Coordinator> board_ =
      MakeFileCoordinator(io::PosixFileSystem(), directory_.path());
};

TEST_F(FileCoordinatorTest, SetGetDeleteList) {
  EXPECT_EQ(board_->Get("a", Soon()).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(IsOk(board_->Set("a", "long value", Soon())));
  EXPECT_TRUE(IsOk(board_->Set("a", "short", Soon())));
  EXPECT_TRUE(IsOk(board_->Set("ab", std::string("\0\n", 2), Soon())));
  EXPECT_TRUE(IsOk(board_->Set("c", "", Soon())));
  EXPECT_EQ(board_->Get("a", Soon()).value(), "short");
  EXPECT_EQ(board_->Get("ab", Soon()).value(), std::string("\0\n", 2));
  EXPECT_EQ(board_->Get("c", Soon()).value(), "");
  WriteText(directory_ / "foreign", "x");
  EXPECT_THAT(board_->List("a", Soon()).value(), UnorderedElementsAre("a", "ab"));
  EXPECT_THAT(board_->List("", Soon()).value(), UnorderedElementsAre("a", "ab", "c"));
  EXPECT_TRUE(IsOk(board_->Delete("a", Soon())));
  EXPECT_TRUE(IsOk(board_->Delete("a", Soon())));
  EXPECT_THAT(board_->List("a", Soon()).value(), UnorderedElementsAre("ab"));
}

TEST_F(FileCoordinatorTest, AValueThatIsTooLongIsRefused) {
  const std::string value(kMaxValueBytes + 1, 'x');
  EXPECT_EQ(board_->Set("a", value, Soon()).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(NamesIn(directory_.path()).empty());
}

TEST_F(FileCoordinatorTest, ATornValueIsAbsentUntilItIsWhole) {
  ASSERT_TRUE(IsOk(board_->Set("a", "the old value", Soon())));
  const path file = directory_ / ".flagstone-key.a";
  const std::string whole = ReadText(file);
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteText(file, whole.substr(0, size));
    EXPECT_EQ(board_->Get("a", std::chrono::steady_clock::now()).status().code(),
              StatusCode::kNotFound)
        << size;
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    WriteText(file, changed);
    EXPECT_FALSE(board_->Get("a", std::chrono::steady_clock::now()).ok()) << i;
  }
  WriteText(file, whole);
  EXPECT_EQ(board_->Get("a", Soon()).value(), "the old value");
}

// A reader beside a writer sees whole values only.
TEST_F(FileCoordinatorTest, ReadersSeeWholeValues) {
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (size_t i = 0; i < 300; ++i)
      EXPECT_TRUE(IsOk(board_->Set(
          "a", std::string(1 + i * 97 % 9000, static_cast<char>('a' + i % 26)), Soon())));
    over = true;
  });
  while (!over) {
    const auto value = board_->Get("a", Soon());
    if (!value.ok()) continue;
    EXPECT_EQ(value->find_first_not_of(value->front()), std::string::npos);
  }
  writer.join();
}

TEST_F(FileCoordinatorTest, TroubleOfTheFileSystemIsReported) {
  FaultFileSystem fs(io::PosixFileSystem());
  const auto board = MakeFileCoordinator(fs, directory_.path());
  fs.Fail(Operation::kWrite, ENOSPC);
  EXPECT_EQ(board->Set("a", "v", Soon()).code(), StatusCode::kResourceExhausted);
  fs.Clear();
  fs.Fail(Operation::kList, EIO);
  EXPECT_EQ(board->List("", Soon()).status().code(), StatusCode::kIoError);
}

TEST_F(FileCoordinatorTest, WaitGivesTheValueOrSaysThatItDidNotCome) {
  std::thread setter([&] { EXPECT_TRUE(IsOk(board_->Set("late", "v", Soon()))); });
  EXPECT_EQ(board_->Wait("late", Soon()).value(), "v");
  setter.join();
  EXPECT_EQ(board_->Wait("never", std::chrono::steady_clock::now()).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST(InProcessCoordinatorTest, SetGetDeleteList) {
  const auto board = MakeInProcessCoordinator();
  EXPECT_TRUE(IsOk(board->Set("a", "1", Soon())));
  EXPECT_TRUE(IsOk(board->Set("ab", "2", Soon())));
  EXPECT_TRUE(IsOk(board->Set("b", "3", Soon())));
  EXPECT_THAT(board->List("a", Soon()).value(), UnorderedElementsAre("a", "ab"));
  EXPECT_TRUE(IsOk(board->Delete("a", Soon())));
  EXPECT_EQ(board->Get("a", Soon()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(board->Get("b", Soon()).value(), "3");
}

}  // namespace
}  // namespace flagstone::store
