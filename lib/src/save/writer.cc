// SPDX-License-Identifier: Apache-2.0
#include "flagstone/writer.h"

#include <deque>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "partition/normalize.h"
#include "save/given.h"
#include "save/run_identity.h"
#include "save/save_run.h"
#include "save/writer_factory.h"
#include "store/claim.h"
#include "store/names.h"

namespace flagstone {

using base::Join;
using base::Quote;

class Writer::Impl {
 public:
  Impl(save::SaveEnvironment environment, std::filesystem::path path, Layout layout, uint32_t rank,
       SaveOptions options, std::string run)
      : environment_(environment),
        path_(std::move(path)),
        layout_(std::move(layout)),
        rank_(rank),
        options_(std::move(options)),
        run_(std::move(run)),
        given_(layout_, rank) {}

  save::Given& given() { return given_; }
  Source& Keep(std::span<const std::byte> bytes) { return spans_.emplace_back(bytes); }
  void set_rank_state(Value state) { rank_state_ = std::move(state); }
  void set_client_state(Value state) { client_state_ = std::move(state); }

  Result<SaveReport> Commit() {
    if (std::exchange(committed_, true)) {
      return Status(StatusCode::kInvalidArgument,
                    "Commit was called before on this Writer; make a Writer for each save");
    }
    save::SaveRun::Input input;
    input.environment = environment_;
    input.directory = path_;
    input.layout = &layout_;
    input.rank = rank_;
    input.options = &options_;
    input.run = run_;
    input.given = &given_;
    input.rank_state = rank_state_;
    input.client_state = client_state_;
    return save::SaveRun(std::move(input)).Run();
  }

 private:
  const save::SaveEnvironment environment_;
  const std::filesystem::path path_;
  const Layout layout_;
  const uint32_t rank_;
  const SaveOptions options_;
  const std::string run_;
  save::Given given_;
  std::deque<SpanSource> spans_;  // their addresses are kept by given_
  Value rank_state_;
  Value client_state_;
  bool committed_ = false;
};

namespace {

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

Status CheckOptions(const SaveOptions& options) {
  if (options.timeout < std::chrono::milliseconds(100)) {
    return Invalid(Join("SaveOptions::timeout is ", options.timeout.count(),
                        " ms; it must be at least 100 ms"));
  }
  // Far below where sums of times in nanoseconds overflow.
  constexpr auto kMostTime = std::chrono::hours(24 * 365);
  if (options.timeout > kMostTime || options.sync_timeout > kMostTime ||
      options.sync_timeout <= std::chrono::milliseconds(0)) {
    return Invalid(Join("SaveOptions::timeout is ", options.timeout.count(),
                        " ms and sync_timeout ", options.sync_timeout.count(),
                        " ms; both must be above 0 and at most a year"));
  }
  if (options.queue_depth > kMaxQueueDepth) {
    return Invalid(Join("SaveOptions::queue_depth is ", options.queue_depth,
                        "; it may be at most ", kMaxQueueDepth));
  }
  if (options.backend == Backend::kMmap) {
    return Invalid(
        "SaveOptions::backend is mmap, which cannot write; use auto, uring-direct, uring or pread");
  }
  constexpr uint64_t kLeastStaging = 128 * 1024;
  if (options.staging_bytes < kLeastStaging) {
    return Invalid(Join("SaveOptions::staging_bytes is ", options.staging_bytes,
                        "; it must be at least ", kLeastStaging));
  }
  return {};
}

}  // namespace

Result<Writer> save::WriterFactory::Make(SaveEnvironment environment,
                                         const std::filesystem::path& path, Layout layout,
                                         uint32_t rank, SaveOptions options) {
  // "ROOT/NAME/" and "ROOT/./NAME" are meant as ROOT/NAME.
  std::filesystem::path clean = path.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  if (!store::IsCheckpointName(clean.filename().string())) {
    return Invalid(
        Join("checkpoint path ", Quote(path.string()), " does not end in a name for a checkpoint"));
  }
  FLAGSTONE_RETURN_IF_ERROR(CheckOptions(options));
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(layout));
  if (rank >= layout.world_size) {
    return Invalid(
        Join("rank ", rank, " is not below the layout's world size ", layout.world_size));
  }
  if (!options.overwrite) FLAGSTONE_RETURN_IF_ERROR(store::CheckFree(*environment.fs, clean));
  std::string run = options.run.empty() ? RunFromEnvironment() : options.run;
  if (run.empty() && layout.world_size > 1 && !options.coordinator) {
    return Invalid(Join("a save of ", layout.world_size,
                        " ranks over the file system needs SaveOptions::run, a name that all "
                        "ranks of this job share and no other job or restart has"));
  }
  if (run.empty()) run = Join("single-", io::RandomHex(8));
  return Writer(std::make_unique<Writer::Impl>(environment, std::move(clean),
                                               partition::Normalize(std::move(layout)), rank,
                                               std::move(options), std::move(run)));
}

Result<Writer> Writer::Create(const std::filesystem::path& path, Layout layout, uint32_t rank,
                              SaveOptions options) {
  return save::WriterFactory::Make({&io::PosixFileSystem(), &io::SystemProcesses()}, path,
                                   std::move(layout), rank, std::move(options));
}

Writer::Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Status Writer::Add(std::string_view partition, std::string_view role, Source& source) {
  return impl_->given().AddSegment(partition, role, source);
}

Status Writer::Add(std::string_view partition, std::string_view role,
                   std::span<const std::byte> bytes) {
  return Add(partition, role, impl_->Keep(bytes));
}

Status Writer::AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                         Source& source) {
  return impl_->given().AddTensor(partition, role, tensor, source);
}

Status Writer::AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                         std::span<const std::byte> bytes) {
  return AddTensor(partition, role, tensor, impl_->Keep(bytes));
}

Status Writer::AddPlain(std::string_view partition, std::string_view role, std::string_view tensor,
                        Value value) {
  return impl_->given().AddPlain(partition, role, tensor, std::move(value));
}

Status Writer::SetRankState(Value state) {
  FLAGSTONE_RETURN_IF_ERROR(ValidateValue(state, "the rank state"));
  impl_->set_rank_state(std::move(state));
  return {};
}

Status Writer::SetClientState(Value state) {
  FLAGSTONE_RETURN_IF_ERROR(ValidateValue(state, "the client state"));
  impl_->set_client_state(std::move(state));
  return {};
}

Result<SaveReport> Writer::Commit() { return impl_->Commit(); }

}  // namespace flagstone
