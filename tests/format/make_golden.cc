// SPDX-License-Identifier: Apache-2.0
// make_format_golden FOLDER: writes FOLDER/golden and FOLDER/bad anew, what the tests compare with.
// To be run when the format changes, with the reason in the commit (format/README.md).
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>

#include "golden_description.h"
#include "mutations.h"

namespace {

using flagstone::test::kLargestBadFile;

bool Write(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) std::cerr << "could not write " << path << '\n';
  return out.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: make_format_golden FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  for (const char* name : {"golden", "bad"}) {
    std::filesystem::remove_all(folder / name);
    std::filesystem::create_directories(folder / name);
  }
  const flagstone::test::Files files = flagstone::test::MakeGolden();
  bool good = true;
  for (const auto& [name, bytes] : files) good = Write(folder / "golden" / name, bytes) && good;
  const std::string description = flagstone::test::DescribeGolden(files);
  good =
      Write(folder / "golden" / "description.json", std::as_bytes(std::span(description))) && good;
  for (const auto& mutation : flagstone::test::AllMutations()) {
    if (mutation.bytes.size() > kLargestBadFile) continue;
    good = Write(folder / "bad" / mutation.FileName(), mutation.bytes) && good;
  }
  return good ? 0 : 1;
}
