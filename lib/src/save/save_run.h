// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// One rank's part of one save, step by step as in spec/commit.md.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/value.h"
#include "flagstone/writer.h"
#include "io/file_system.h"
#include "io/process.h"
#include "save/given.h"
#include "save/publication.h"
#include "save/rank_file.h"
#include "store/publish.h"
#include "store/session.h"

namespace flagstone::save {

class SaveRun {
 public:
  struct Input {
    SaveEnvironment environment;
    std::filesystem::path directory;  ///< ROOT/NAME
    const Layout* layout = nullptr;   ///< Valid and normal.
    uint32_t rank = 0;
    const SaveOptions* options = nullptr;
    std::string run;
    const Given* given = nullptr;
    Value rank_state;
    Value client_state;
  };

  explicit SaveRun(Input input);
  Result<SaveReport> Run();

 private:
  Result<SaveReport> Save();
  Status PrepareContent();
  Result<store::SessionDeclaration> Declare() const;
  void MakeSession(store::SessionDeclaration declaration);
  void TellOthers(const Status& why);
  Status Begin();
  Status BeginToLead();
  template <typename Act>
  auto InDirectory(const Act& act) -> decltype(act());
  Status MakePrivateFile();
  Status Checkpoint(uint64_t streamed);
  Status FinishFile();
  Status WriteAndReport();

  // Rank 0, when its own file is written or could not be (`own`).
  Result<SaveReport> Lead(const Status& own);
  Publication GatherAndPublish();
  Result<format::Manifest> MakeManifest(store::WrittenSave written);
  Status CheckFilesAreHere(const format::Manifest& manifest) const;
  // The others, likewise.
  Result<SaveReport> Follow(const Status& own);

  void RemoveOwnFile();
  Result<SaveReport> Report(int64_t committed_at, bool durability_unknown);
  std::optional<uint32_t> ReplacedMode() const;

  bool leads() const { return input_.rank == 0; }

  Input input_;
  io::FileSystem& fs_;
  const store::Timing timing_;
  store::Owner self_;
  RankFileContent content_;
  std::vector<format::PlainValue> plain_;
  std::vector<SpanSource> array_sources_;
  std::unique_ptr<RankFile> file_;
  std::filesystem::path own_file_;  // by its present name; empty when there is none
  std::string save_id_;
  uint64_t seen_completions_ = 0;
  SaveReport report_;
  std::unique_ptr<store::TemporaryManifest> temporary_;  // rank 0
  std::unique_ptr<store::Session> session_;              // its thread uses temporary_
};

}  // namespace flagstone::save
