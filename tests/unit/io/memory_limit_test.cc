// SPDX-License-Identifier: Apache-2.0
// Limits of cgroups, from trees that look like /proc and /sys of other machines.

#include "io/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_directory.h"

namespace flagstone::io {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

class MemoryLimits : public ::testing::Test {
 protected:
  MemoryLimits() {
    Write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   33554432 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = directory_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // A group of version 2 below /sys/fs/cgroup.
  void Group2(const std::string& group, const std::string& max, uint64_t current,
              const std::string& stat = "") {
    const std::string folder = "sys/fs/cgroup" + group;
    Write(folder + "/memory.max", max + "\n");
    Write(folder + "/memory.current", std::to_string(current) + "\n");
    Write(folder + "/memory.stat", stat);
  }
  void Version2(const std::string& group, const std::string& top = "/") {
    Write("proc/self/cgroup", "0::" + group + "\n");
    Write("proc/self/mountinfo",
          "22 28 0:21 / /proc rw,nosuid - proc proc rw\n"
          "35 24 0:30 " + top + " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  MemoryLimit Read() {
    auto limit = ReadMemoryLimit(directory_.path());
    EXPECT_TRUE(limit.ok()) << limit.status().ToString();
    return limit.ok() ? *limit : MemoryLimit();
  }
  std::filesystem::path At(const std::string& path) { return directory_.path() / path; }

  testing::TemporaryDirectory directory_;
};

TEST_F(MemoryLimits, WithoutCgroupsItIsTheMachines) {
  const MemoryLimit limit = Read();
  EXPECT_EQ(limit.limit_bytes, 64 * kGib);
  EXPECT_EQ(limit.available_bytes, 32 * kGib);
  EXPECT_FALSE(limit.is_cgroup);
}

// FieldCase_A14: page cache is not memory that is used up.
TEST_F(MemoryLimits, FieldCase_A14_CacheThatCanBeDroppedIsLeft) {
  Version2("/job");
  Group2("/job", std::to_string(kGib), kGib - 4096,
         "anon 100\ninactive_file 536870912\nactive_file 268435456\nfile 900000000\n");
  const MemoryLimit limit = Read();
  EXPECT_EQ(limit.limit_bytes, kGib);
  EXPECT_EQ(limit.available_bytes, kGib - (kGib - 4096 - 536870912 - 268435456));
  EXPECT_TRUE(limit.is_cgroup);
  EXPECT_EQ(limit.source, At("sys/fs/cgroup/job"));
}

TEST_F(MemoryLimits, FieldCase_A15_AGroupAboveMayBeTheOneThatLimits) {
  Version2("/slice/job/step");
  Group2("/slice", std::to_string(8 * kGib), 7 * kGib);
  Group2("/slice/job", "max", 0);
  Group2("/slice/job/step", std::to_string(4 * kGib), 2 * kGib);
  EXPECT_EQ(Read().available_bytes, kGib);
  EXPECT_EQ(Read().source, At("sys/fs/cgroup/slice"));
  Group2("/slice", std::to_string(8 * kGib), 3 * kGib);
  EXPECT_EQ(Read().source, At("sys/fs/cgroup/slice/job/step"));
}

TEST_F(MemoryLimits, NoLimitIsTheMachines) {
  Version2("/job");
  Group2("/job", "max", 5 * kGib);
  EXPECT_FALSE(Read().is_cgroup);
  Group2("/job", std::to_string(100 * kGib), 5 * kGib);  // more than there is
  EXPECT_FALSE(Read().is_cgroup);
}

// A container: its namespace shows "/", or its mount begins at its group.
TEST_F(MemoryLimits, ContainersSeeTheirOwnGroup) {
  Version2("/");
  Group2("", std::to_string(kGib), 0);
  EXPECT_EQ(Read().limit_bytes, kGib);
  Version2("/docker/abc", "/docker/abc");
  EXPECT_EQ(Read().limit_bytes, kGib);
  Version2("/../../elsewhere");
  EXPECT_EQ(Read().limit_bytes, kGib) << "a path out of the namespace: what the mount shows";
  Version2("/not/there");
  EXPECT_EQ(Read().limit_bytes, kGib);
}

TEST_F(MemoryLimits, Version1) {
  Write("proc/self/cgroup",
        "12:cpu,cpuacct:/x\n5:memory:/slurm/uid_1/job_2\n1:name=systemd:/y\n0::/unified\n");
  Write("proc/self/mountinfo",
        "31 30 0:26 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw\n"
        "40 30 0:34 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n"
        "41 30 0:35 / /sys/fs/cgroup/memory\\040v1 rw shared:5 - cgroup cgroup rw,memory\n");
  const std::string job = "sys/fs/cgroup/memory v1/slurm/uid_1/job_2";
  Write(job + "/memory.limit_in_bytes", "2147483648\n");
  Write(job + "/memory.usage_in_bytes", "1073741824\n");
  Write(job + "/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 536870912\ntotal_active_file 0\n");
  Write("sys/fs/cgroup/memory v1/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryLimit limit = Read();
  EXPECT_EQ(limit.limit_bytes, 2 * kGib);
  EXPECT_EQ(limit.available_bytes, 2 * kGib - kGib / 2);
  EXPECT_EQ(limit.source, At(job));
}

TEST_F(MemoryLimits, WhatCannotBeReadIsNoLimit) {
  Version2("/job");
  Write("sys/fs/cgroup/job/memory.max", "");
  EXPECT_FALSE(Read().is_cgroup);
  Write("sys/fs/cgroup/job/memory.max", "lots\n");
  EXPECT_FALSE(Read().is_cgroup);
  Write("proc/self/mountinfo", "nonsense\n - \n1 2 3 - cgroup2\n");
  Write("proc/self/cgroup", "::\n:\n\n");
  EXPECT_FALSE(Read().is_cgroup);
}

TEST_F(MemoryLimits, WithoutMeminfoNothingCanBeTold) {
  Write("proc/meminfo", "");
  EXPECT_THAT(ReadMemoryLimit(directory_.path()).status().message(), HasSubstr("no line MemTotal"));
}

// More than all may be used already.
TEST_F(MemoryLimits, NothingMayBeLeft) {
  Version2("/job");
  Group2("/job", std::to_string(kGib), 2 * kGib);
  EXPECT_EQ(Read().available_bytes, 0U);
}

TEST(MemoryLimit, OfThisMachineIsTold) {
  const auto limit = ReadMemoryLimit();
  ASSERT_TRUE(limit.ok()) << limit.status().ToString();
  EXPECT_GT(limit->limit_bytes, uint64_t{64} << 20);
  EXPECT_LE(limit->available_bytes, limit->limit_bytes);
}

}  // namespace
}  // namespace flagstone::io
