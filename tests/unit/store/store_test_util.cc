// SPDX-License-Identifier: Apache-2.0
#include "store_test_util.h"

#include <fstream>
#include <iterator>

#include "base/text.h"
#include "flagstone/zero.h"
#include "partition/normalize.h"

namespace flagstone::store {

::testing::AssertionResult IsOk(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.ToString();
}

std::set<std::string> NamesIn(const path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.insert(entry.path().filename().string());
  return names;
}

void WriteText(const path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::string ReadText(const path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void MakeOld(const path& file) {
  std::filesystem::last_write_time(
      file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(5));
}

Owner MakeOwner(std::string run, int64_t pid, uint32_t rank, std::string nonce) {
  Owner owner;
  owner.party = Party{std::move(run), std::string("c"), 3, 2};
  owner.rank = rank;
  owner.nonce = nonce.empty() ? io::RandomHex(8) : std::move(nonce);
  owner.process.host.push_back('h');
  owner.process.pid = pid;
  owner.timeout_ms = 1000;
  return owner;
}

Attempt MakeAttempt(std::string run, int64_t pid, std::string save_id) {
  Attempt attempt;
  attempt.owner = MakeOwner(std::move(run), pid);
  attempt.save_id = std::move(save_id);
  return attempt;
}

std::vector<std::byte> ManifestBytes(std::string_view save_id, int64_t committed_at) {
  format::Manifest manifest;
  const auto id = base::FromHex(save_id, manifest.save_id.size()).value();
  std::copy(id.begin(), id.end(), manifest.save_id.begin());
  manifest.committed_at = committed_at;
  Layout layout;
  Tensor tensor;
  tensor.name.push_back('t');
  tensor.shape = {10};
  tensor.dtype = DType::kFloat32;
  layout.tensors = {tensor};
  layout.partitions = {
      MakeZero12(layout, "p", {0}, RankList::World(1), {{"fp32", DType::kFloat32}}).value()};
  manifest.layout = partition::Normalize(std::move(layout));
  manifest.files = {{0, 16384, 4000, {}}};
  return format::EncodeManifest(manifest).value();
}

std::string IdOf(int byte) {
  return base::Hex(std::vector<std::byte>(16, static_cast<std::byte>(byte)));
}

}  // namespace flagstone::store
