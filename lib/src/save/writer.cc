// SPDX-License-Identifier: Apache-2.0
#include "flagstone/writer.h"

#include <deque>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "partition/normalize.h"
#include "partition/validate.h"
#include "save/given.h"
#include "save/run_identity.h"
#include "save/save_run.h"
#include "save/target.h"
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

  bool committed() const { return committed_; }
  save::Given& given() { return given_; }
  Source& Keep(std::span<const std::byte> bytes) { return spans_.emplace_back(bytes); }
  void set_rank_state(Value state) { rank_state_ = std::move(state); }
  void set_client_state(Value state) { client_state_ = std::move(state); }

  Result<SaveReport> Commit() {
    committed_ = true;
    save::SaveRun::Input input;
    input.environment = environment_;
    input.directory = path_;
    input.layout = &layout_;
    input.rank = rank_;
    input.options = &options_;
    input.run = run_;
    input.given = &given_;
    input.rank_state = std::move(rank_state_);
    input.client_state = std::move(client_state_);
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

}  // namespace

Result<Writer> save::WriterFactory::Make(SaveEnvironment environment,
                                         const std::filesystem::path& path, Layout layout,
                                         uint32_t rank, SaveOptions options) {
  FLAGSTONE_ASSIGN_OR_RETURN(std::filesystem::path clean, CheckTarget(path));
  FLAGSTONE_RETURN_IF_ERROR(CheckOptions(options));
  FLAGSTONE_RETURN_IF_ERROR(partition::ValidateDeclaration(layout));
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

// Of a Writer whose Commit was called, or that was moved from, nothing can become a save.
Status Writer::CheckUsable() const {
  if (!impl_) return Invalid("this Writer was moved from");
  if (!impl_->committed()) return {};
  return Invalid("Commit was called before on this Writer; make a Writer for each save");
}

Writer::Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Status Writer::Add(std::string_view partition, std::string_view role, Source& source) {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  return impl_->given().AddSegment(partition, role, source);
}

Status Writer::Add(std::string_view partition, std::string_view role,
                   std::span<const std::byte> bytes) {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  return Add(partition, role, impl_->Keep(bytes));
}

Status Writer::AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                         Source& source) {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  return impl_->given().AddTensor(partition, role, tensor, source);
}

Status Writer::AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                         std::span<const std::byte> bytes) {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  return AddTensor(partition, role, tensor, impl_->Keep(bytes));
}

Status Writer::AddPlain(std::string_view partition, std::string_view role, std::string_view tensor,
                        Value value) {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  return impl_->given().AddPlain(partition, role, tensor, std::move(value));
}

Status Writer::SetRankState(Value state) {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  FLAGSTONE_RETURN_IF_ERROR(ValidateValue(state, "the rank state"));
  impl_->set_rank_state(std::move(state));
  return {};
}

Status Writer::SetClientState(Value state) {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  FLAGSTONE_RETURN_IF_ERROR(ValidateValue(state, "the client state"));
  impl_->set_client_state(std::move(state));
  return {};
}

Result<SaveReport> Writer::Commit() {
  FLAGSTONE_RETURN_IF_ERROR(CheckUsable());
  return impl_->Commit();
}

}  // namespace flagstone
