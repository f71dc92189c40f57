// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// One rank's part of one save, step by step as in spec/commit.md.

#include <cstdint>
#include <filesystem>
#include <functional>
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
#include "save/rank_file.h"
#include "store/publish.h"
#include "store/session.h"

namespace flagstone::save {

/// What a save needs beside the layout. The file system and process table are seams for tests.
struct SaveEnvironment {
  io::FileSystem* fs = nullptr;
  io::ProcessTable* processes = nullptr;
};

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
  Status Begin();
  template <typename T>
  Result<T> InDirectory(const std::function<Result<T>()>& act);
  Status MakePrivateFile();
  Status Checkpoint(uint64_t streamed);
  Status FinishFile(const std::string& save_id);
  Status WriteAndPublish();

  // Rank 0 after its own file is there.
  Result<SaveReport> LeadToCommit();
  Result<format::Manifest> MakeManifest(store::WrittenSave written) const;
  int64_t CommitTime() const;
  void AfterCommit(const format::Manifest& manifest);
  // The other ranks.
  Result<SaveReport> FollowOutcome();

  Result<SaveReport> Abandon(Status status);
  Result<bool> FenceIfNeeded(const Status& status);
  void RemoveOwnFile();
  Status Committed(int64_t committed_at, bool durability_unknown);

  bool leads() const { return input_.rank == 0; }

  const Input input_;
  io::FileSystem& fs_;
  const store::Timing timing_;
  store::Owner self_;
  RankFileContent content_;
  std::vector<format::PlainValue> plain_;
  std::vector<SpanSource> array_sources_;
  std::unique_ptr<store::Session> session_;
  std::unique_ptr<store::TemporaryManifest> temporary_;  // rank 0
  std::unique_ptr<RankFile> file_;
  std::filesystem::path own_file_;  // by its present name; empty when there is none
  std::string save_id_;
  uint64_t seen_completions_ = 0;
  SaveReport report_;
};

}  // namespace flagstone::save
