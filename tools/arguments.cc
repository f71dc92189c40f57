// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <charconv>
#include <string_view>

#include "text.h"

namespace flagstone::tools {
namespace {

[[noreturn]] void Refuse(const std::string& name, const std::string& text,
                         const std::string& wanted) {
  throw CLI::ValidationError(name, "'" + Escape(text) + "' is not " + wanted);
}

int64_t ParseInteger(const std::string& name, const std::string& text, int64_t least,
                     int64_t most) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end && number >= least && number <= most) {
    return number;
  }
  std::string wanted = "a whole number";
  if (least != std::numeric_limits<int64_t>::min() || most != std::numeric_limits<int64_t>::max()) {
    wanted += " from " + std::to_string(least) + " to " + std::to_string(most);
  }
  Refuse(name, text, wanted);
}

}  // namespace

CLI::Option* AddSize(CLI::App& app, const std::string& name, std::optional<uint64_t>& target,
                     const std::string& help, uint64_t least) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &target, least](const std::string& text) {
            const std::optional<uint64_t> size = ParseSize(text);
            if (!size || *size < least) {
              Refuse(name, text,
                     "a size: an integer of at least " + std::to_string(least) +
                         " and below 2^64, alone or with K M G T or KiB MiB GiB TiB");
            }
            target = size;
          },
          help)
      ->type_name("SIZE");
}

CLI::Option* AddInteger(CLI::App& app, const std::string& name, std::optional<int64_t>& target,
                        const std::string& help, int64_t least, int64_t most) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &target, least, most](const std::string& text) {
            target = ParseInteger(name, text, least, most);
          },
          help)
      ->type_name("N");
}

CLI::Option* AddUint32(CLI::App& app, const std::string& name, std::optional<uint32_t>& target,
                       const std::string& help, uint32_t least, uint32_t most) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &target, least, most](const std::string& text) {
            target = static_cast<uint32_t>(ParseInteger(name, text, least, most));
          },
          help)
      ->type_name("N");
}

CLI::Option* AddBackend(CLI::App& app, Backend& target) {
  return app
      .add_option_function<std::string>(
          "--backend",
          [&target](const std::string& text) {
            const std::optional<Backend> backend = BackendFromName(text);
            if (!backend) {
              Refuse("--backend", text, "one of auto, uring-direct, uring, pread, mmap");
            }
            target = *backend;
          },
          "How bytes are read: auto (default), uring-direct, uring, pread or mmap")
      ->type_name("NAME");
}

CLI::Option* AddNames(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                      const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &target](const std::string& text) {
            target.clear();
            std::string_view rest = text;
            for (;;) {
              const size_t comma = rest.find(',');
              const std::string_view one = rest.substr(0, comma);
              if (one.empty()) Refuse(name, text, "a list of names with commas between them");
              target.emplace_back(one);
              if (comma == std::string_view::npos) return;
              rest.remove_prefix(comma + 1);
            }
          },
          help)
      ->type_name("A,B");
}

}  // namespace flagstone::tools
