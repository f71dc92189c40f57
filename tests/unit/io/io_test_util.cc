// SPDX-License-Identifier: Apache-2.0
#include "io_test_util.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/range.h"
#include "base/text.h"

namespace flagstone::io {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr uint64_t kGuardBytes = 512;

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

uint64_t CountDescriptors() {
  uint64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Threads of this process. The kernel's own workers of a ring ("iou-wrk-...") are listed too and
// stay for some seconds after it; one that ends meanwhile has no name any more.
uint64_t CountThreads() {
  uint64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (!name.empty() && !name.starts_with("iou-")) ++count;
  }
  return count;
}

// Joining a thread returns a moment before the kernel takes it off the list.
bool ThreadsBecome(uint64_t count) {
  for (int i = 0; i < 500 && CountThreads() != count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return CountThreads() == count;
}

}  // namespace

void FillExpected(uint64_t offset, std::span<std::byte> out) {
  uint64_t at = 0;
  const auto take = [&](uint64_t size) {
    if (size == 0) return;  // an empty span may have no address, which memcpy does not take
    const uint64_t word = Mix((offset + at) / 8 + 1);
    const auto* const bytes = reinterpret_cast<const std::byte*>(&word) + (offset + at) % 8;
    std::memcpy(out.data() + at, bytes, size);
    at += size;
  };
  if (offset % 8 != 0) take(std::min<uint64_t>(8 - offset % 8, out.size()));
  while (out.size() - at >= 8) take(8);
  if (at < out.size()) take(out.size() - at);
}

std::vector<std::byte> Expected(uint64_t offset, uint64_t size) {
  std::vector<std::byte> bytes(size);
  FillExpected(offset, bytes);
  return bytes;
}

::testing::AssertionResult IsOk(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.ToString();
}

void WriteTestFile(const std::filesystem::path& path, uint64_t size) {
  auto file = PosixFileSystem().Open(path, {.mode = OpenOptions::Mode::kCreate});
  ASSERT_TRUE(IsOk(file));
  constexpr uint64_t kPart = uint64_t{1} << 20;
  for (uint64_t at = 0; at < size; at += kPart) {
    ASSERT_TRUE(IsOk(WriteFully(**file, at, Expected(at, std::min(kPart, size - at)))));
  }
  ASSERT_TRUE(IsOk((*file)->Truncate(size)));
  ASSERT_TRUE(IsOk((*file)->Sync()));
}

std::shared_ptr<File> OpenForReading(FileSystem& fs, const std::filesystem::path& path) {
  auto file = fs.Open(path, {});
  EXPECT_TRUE(IsOk(file));
  return file.ok() ? std::shared_ptr<File>(std::move(*file)) : nullptr;
}

std::optional<std::string> RunInChild(const std::function<std::string()>& body,
                                      std::string* skipped) {
  int ends[2];
  if (pipe(ends) != 0) return "pipe failed";
  const pid_t child = fork();
  if (child < 0) return "fork failed";
  if (child == 0) {
    close(ends[0]);
    const std::string said = body();
    const bool sent = write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char part[512];
  for (;;) {
    const ssize_t got = read(ends[0], part, sizeof(part));
    if (got <= 0) break;
    said.append(part, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return base::Join("the child ended with status ", status, "; it said: ", said);
  }
  if (!said.starts_with("SKIP: ")) return said;
  *skipped = said.substr(6);
  return std::nullopt;
}

GuardedMemory::GuardedMemory(uint64_t size, uint64_t modulo) {
  auto buffer = PageAllocator().Allocate(size + modulo + 4096 + kGuardBytes, 4096);
  EXPECT_TRUE(IsOk(buffer));
  buffer_ = std::move(*buffer);
  std::fill(buffer_.bytes().begin(), buffer_.bytes().end(), kGuard);
  bytes_ = buffer_.bytes().subspan(4096 + modulo, size);
}

bool GuardsIntact(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == kGuard; });
}

bool GuardedMemory::GuardsIntact() const {
  const std::byte* const begin = buffer_.bytes().data();
  const std::byte* const end = begin + buffer_.bytes().size();
  return io::GuardsIntact({begin, bytes_.data()}) &&
         io::GuardsIntact({bytes_.data() + bytes_.size(), end});
}

BlockChecker::BlockChecker(std::span<const ReadRange> ranges) : ranges_(ranges) {
  for (const ReadRange& range : ranges) {
    const uint64_t block =
        range.block_bytes == 0 ? std::max<uint64_t>(range.size, 1) : range.block_bytes;
    seen_.emplace_back(base::DivideUp(range.size, block), false);
  }
}

BlockConsumer BlockChecker::consumer() {
  return [this](const ReadRange& range, uint64_t offset, std::span<const std::byte> bytes) {
    return See(range, offset, bytes);
  };
}

Status BlockChecker::See(const ReadRange& range, uint64_t offset,
                         std::span<const std::byte> bytes) {
  const auto wrong = [&](std::string_view what) {
    return Status(StatusCode::kInternal,
                  base::Join(what, ": block at ", offset, " of the range at ", range.offset, ", ",
                             bytes.size(), " bytes"));
  };
  const auto index = static_cast<size_t>(&range - ranges_.data());
  if (index >= ranges_.size()) return wrong("not one of the ranges");
  const uint64_t block = range.block_bytes == 0 ? range.size : range.block_bytes;
  if (offset % block != 0 || bytes.size() != std::min(block, range.size - offset)) {
    return wrong("not a whole block");
  }
  if (seen_[index][offset / block]) return wrong("a second time");
  seen_[index][offset / block] = true;
  const auto expected = Expected(range.offset + offset, bytes.size());
  if (!std::ranges::equal(bytes, expected)) return wrong("wrong bytes");
  return Status();
}

::testing::AssertionResult BlockChecker::Complete() const {
  for (size_t i = 0; i < seen_.size(); ++i) {
    for (size_t block = 0; block < seen_[i].size(); ++block) {
      if (seen_[i][block]) continue;
      return ::testing::AssertionFailure()
             << "block " << block << " of range " << i << " did not come";
    }
  }
  return ::testing::AssertionSuccess();
}

void IoTest::SetUp() {
  // A sanitizer starts a thread of its own with the first one of the program.
  static const uint64_t threads = [] {
    std::thread([] {}).join();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return CountThreads();
  }();
  descriptors_ = CountDescriptors();
  threads_ = threads;
  mapped_bytes_ = LibraryMemory().current_bytes;
}

void IoTest::TearDown() {
  EXPECT_EQ(CountDescriptors(), descriptors_) << "descriptors are left open";
  EXPECT_TRUE(ThreadsBecome(threads_)) << "of " << CountThreads() << " threads " << threads_
                                       << " were there before";
  EXPECT_EQ(LibraryMemory().current_bytes, mapped_bytes_) << "memory is left mapped";
}

bool Works(FileSystem& fs, const std::shared_ptr<File>& file, Backend backend) {
  return ChooseReadBackend(fs, {&file, 1}, backend).ok();
}

std::vector<Backend> WorkingBackends(FileSystem& fs, const std::shared_ptr<File>& file) {
  std::vector<Backend> working;
  for (const Backend backend :
       {Backend::kUringDirect, Backend::kUring, Backend::kPread, Backend::kMmap}) {
    if (Works(fs, file, backend)) working.push_back(backend);
  }
  return working;
}

}  // namespace flagstone::io
