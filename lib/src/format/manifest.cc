// SPDX-License-Identifier: Apache-2.0
#include "format/manifest.h"

#include <manifest_generated.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "format/layout_wire.h"
#include "format/value_codec.h"

namespace flagstone::format {
namespace {

using base::Join;

constexpr std::string_view kWhat = "the manifest";

Status Corrupt(std::string message, uint64_t offset) {
  return Status(StatusCode::kCorruption, std::move(message),
                {.path = {}, .segment = {}, .offset = offset});
}

// The digest of the body, and the zeros behind it.
Status CheckBody(std::span<const std::byte> file, const Header& header) {
  const auto body = file.subspan(header.index_offset, header.index_length);
  if (base::DigestOf(body) != header.index_digest) {
    return Corrupt(Join(kWhat, "'s body of ", body.size(), " bytes does not match its digest"),
                   header.index_offset);
  }
  const uint64_t end = header.index_offset + header.index_length;
  if (const auto at = FindNonZero(file.subspan(end))) {
    return Corrupt(Join("a byte behind ", kWhat, "'s body is not zero"), end + *at);
  }
  return {};
}

Status CheckFile(const RankFileEntry& file, bool no_data) {
  const auto fail = [&](std::string_view problem) {
    return Status(StatusCode::kCorruption,
                  Join(kWhat, "'s entry of rank ", file.rank, " has ", problem, " (file length ",
                       file.file_length, ", index length ", file.index_length, ")"));
  };
  if (file.file_length % base::kPageBytes != 0 || file.file_length > kMaxFileBytes) {
    return fail("a file length that is not a multiple of 4096");
  }
  if (no_data) {
    return file.index_digest == base::Digest128{} ? Status() : fail("an index digest, but no data");
  }
  if (file.index_length == 0 || file.index_length > kMaxIndexBytes ||
      !base::InBounds(base::kPageBytes, file.index_length, file.file_length)) {
    return fail("an index that does not fit the file");
  }
  return {};
}

Result<std::vector<RankFileEntry>> ReadFiles(const wire::Manifest& table, WireReader& reader,
                                             const Header& header) {
  const auto entries = reader.Elements(table.files());
  if (!reader.ok()) return reader.status();
  if (entries.size() != header.world_size || table.layout()->world_size() != header.world_size) {
    return Status(StatusCode::kCorruption,
                  Join(kWhat, " has the world size ", header.world_size, " in its header, ",
                       table.layout()->world_size(), " in its layout, and names ", entries.size(),
                       " rank files"));
  }
  std::vector<RankFileEntry> files;
  files.reserve(entries.size());
  for (const wire::RankFile& entry : entries) {
    if (entry.rank() != files.size() || entry.reserved() != 0) {
      return Status(StatusCode::kCorruption, Join(kWhat, "'s entry of rank file ", files.size(),
                                                  " is of rank ", entry.rank(), " or malformed"));
    }
    RankFileEntry file{entry.rank(), entry.file_length(), entry.index_length(), {}};
    std::memcpy(file.index_digest.data(), &entry.index_digest(), file.index_digest.size());
    const bool no_data = (header.required_features & kFeatureNoData) != 0;
    FLAGSTONE_RETURN_IF_ERROR(CheckFile(file, no_data));
    files.push_back(file);
  }
  return files;
}

Result<std::vector<std::byte>> EncodeBody(const Manifest& manifest) {
  std::vector<std::byte> client;
  FLAGSTONE_RETURN_IF_ERROR(
      AppendValue(manifest.client_state, ArrayBytes::kSegments, "client state", client));
  const uint64_t bound =
      LayoutBound(manifest.layout) + sizeof(wire::RankFile) * manifest.files.size() + client.size();
  FLAGSTONE_RETURN_IF_ERROR(CheckBound(bound, kWhat));
  flatbuffers::FlatBufferBuilder builder;
  FLAGSTONE_ASSIGN_OR_RETURN(const auto layout, WriteLayout(builder, manifest.layout));
  std::vector<wire::RankFile> files;
  files.reserve(manifest.files.size());
  for (const RankFileEntry& file : manifest.files) {
    wire::Digest128 digest;
    std::memcpy(&digest, file.index_digest.data(), file.index_digest.size());
    files.emplace_back(file.file_length, file.index_length, digest, file.rank, 0);
  }
  const auto file_vector = builder.CreateVectorOfStructs(files);
  const auto client_state = WriteBytes(builder, client);
  wire::ManifestBuilder table(builder);
  table.add_committed_at(manifest.committed_at);
  if (manifest.step) table.add_step(*manifest.step);
  table.add_client_state(client_state);
  table.add_files(file_vector);
  table.add_layout(layout);
  const auto root = table.Finish();
  wire::FinishManifestBuffer(builder, root);
  return BytesOf(builder);
}

}  // namespace

Result<std::vector<std::byte>> EncodeManifest(const Manifest& manifest) {
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::byte> body, EncodeBody(manifest));
  Header header;
  header.kind = FileKind::kManifest;
  header.required_features = manifest.required_features;
  header.save_id = manifest.save_id;
  header.world_size = manifest.layout.world_size;
  header.index_offset = base::kPageBytes;
  header.index_length = body.size();
  header.file_length = base::AlignUp(base::kPageBytes + body.size(), base::kPageBytes);
  header.index_digest = base::DigestOf(body);
  const HeaderPage page = EncodeHeader(header);
  std::vector<std::byte> file(header.file_length);
  std::copy(page.begin(), page.end(), file.begin());
  std::copy(body.begin(), body.end(), file.begin() + base::kPageBytes);
  // The rules are written down once, in the reader: nothing is published that cannot be opened.
  if (auto back = DecodeManifest(file); !back.ok()) {
    return Status(StatusCode::kInvalidArgument, back.status().message());
  }
  return file;
}

Result<Manifest> DecodeManifest(std::span<const std::byte> file) {
  FLAGSTONE_ASSIGN_OR_RETURN(
      const Header header, DecodeHeader(file.first(std::min<size_t>(file.size(), base::kPageBytes)),
                                        FileKind::kManifest, file.size()));
  FLAGSTONE_RETURN_IF_ERROR(CheckBody(file, header));
  WireReader reader(file.subspan(header.index_offset, header.index_length), kWhat);
  const auto* root = reader.Verify<wire::Manifest>(wire::ManifestIdentifier());
  if (root == nullptr) return reader.status();
  Manifest manifest;
  manifest.save_id = header.save_id;
  manifest.required_features = header.required_features;
  if (const auto step = root->step(); step.has_value()) manifest.step = *step;
  manifest.committed_at = root->committed_at();
  FLAGSTONE_ASSIGN_OR_RETURN(manifest.files, ReadFiles(*root, reader, header));
  const auto client = reader.Bytes(root->client_state());
  if (!reader.ok()) return reader.status();
  FLAGSTONE_ASSIGN_OR_RETURN(manifest.client_state,
                             DecodeValue(client, ArrayBytes::kSegments, "client state"));
  FLAGSTONE_ASSIGN_OR_RETURN(manifest.layout, ReadLayout(*root->layout(), LayoutScope::kWhole, reader));
  return manifest;
}

}  // namespace flagstone::format
