// SPDX-License-Identifier: Apache-2.0
#include "flagstone/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/macros.h"

namespace flagstone {
namespace {

TEST(Status, IsOnePointerWideAndOkByDefault) {
  EXPECT_EQ(sizeof(Status), sizeof(void*));
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "kOk");
}

TEST(Status, KeepsCodeMessageAndPlaceThroughCopies) {
  const Status failure(StatusCode::kCorruption, "wrong bytes", {"/a", "p/r", 4096});
  Status copy = failure;
  EXPECT_EQ(copy, failure);
  EXPECT_EQ(copy.ToString(), "kCorruption: wrong bytes");
  EXPECT_EQ(copy.place().path, "/a");
  EXPECT_EQ(copy.place().segment, "p/r");
  EXPECT_EQ(copy.place().offset, 4096u);
  copy = Status();
  EXPECT_TRUE(copy.ok());
  EXPECT_FALSE(failure.ok());
}

TEST(Status, AnnotationAddsOnlyWhatIsAbsent) {
  const Status failure(StatusCode::kIoError, "read failed", {"", "p/r", std::nullopt});
  const Status annotated = failure.Annotated("rank 3", {"/file", "other", 8});
  EXPECT_EQ(annotated.message(), "rank 3: read failed");
  EXPECT_EQ(annotated.code(), StatusCode::kIoError);
  EXPECT_EQ(annotated.place(), (ErrorPlace{"/file", "p/r", 8}));
  EXPECT_EQ(failure.Annotated("").message(), "read failed");
  EXPECT_TRUE(Status().Annotated("x").ok());
}

TEST(Status, EveryCodeHasItsName) {
  EXPECT_EQ(StatusCodeName(StatusCode::kInvalidArgument), "kInvalidArgument");
  EXPECT_EQ(StatusCodeName(StatusCode::kNotFound), "kNotFound");
  EXPECT_EQ(StatusCodeName(StatusCode::kAlreadyExists), "kAlreadyExists");
  EXPECT_EQ(StatusCodeName(StatusCode::kUnsupported), "kUnsupported");
  EXPECT_EQ(StatusCodeName(StatusCode::kResourceExhausted), "kResourceExhausted");
  EXPECT_EQ(StatusCodeName(StatusCode::kCancelled), "kCancelled");
  EXPECT_EQ(StatusCodeName(StatusCode::kDeadlineExceeded), "kDeadlineExceeded");
  EXPECT_EQ(StatusCodeName(StatusCode::kInternal), "kInternal");
}

TEST(Result, HasAValueOrAReason) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(7));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(**good, 7);
  EXPECT_TRUE(good.status().ok());
  const std::unique_ptr<int> taken = *std::move(good);
  EXPECT_EQ(*taken, 7);

  const Result<int> bad(Status(StatusCode::kNotFound, "gone"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "gone");
  try {
    static_cast<void>(bad.value());
    ADD_FAILURE() << "value() of a failure returned";
  } catch (const BadResultAccess& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("gone"), std::string::npos);
  }
}

TEST(Result, FromAnOkStatusIsADefectNotAValue) {
  const Result<int> result{Status()};
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Status(StatusCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  FLAGSTONE_ASSIGN_OR_RETURN(const int half, Half(value));
  FLAGSTONE_RETURN_IF_ERROR(Half(half).status());
  return half / 2;
}

TEST(Macros, PassFailuresOn) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(3).status().message(), "odd");
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

}  // namespace
}  // namespace flagstone
