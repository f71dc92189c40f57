// SPDX-License-Identifier: Apache-2.0
//
// The main() of a fuzz program in ordinary builds: hands each file named, and each file below each
// folder named, to the program's LLVMFuzzerTestOneInput. The target checks its properties itself and
// ends the process when one does not hold, as libFuzzer has it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& name) {
  if (!std::filesystem::is_directory(name)) return {name};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(name)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  // The order of a directory is the file system's; a failure should come at the same place again.
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::filesystem::path& path : FilesOf(argv[i])) {
      std::ifstream file(path, std::ios::binary);
      if (!file) {
        std::cerr << "cannot read " << path << '\n';
        return 1;
      }
      const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
      std::cerr << path.native() << ": " << bytes.size() << " bytes\n";
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++count;
    }
  }
  std::cerr << count << " inputs replayed\n";
  // A replay of nothing is no test.
  return count == 0 ? 1 : 0;
}
