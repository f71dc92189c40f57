// SPDX-License-Identifier: Apache-2.0

/// \file
/// Train a small GPT on several processes whose optimizer state is partitioned as ZeRO-2 does it,
/// and save and resume through Flagstone. How that is done is in train_zero/checkpoint.cc; the rest
/// is the training itself.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>

#include "train_zero/checkpoint.h"
#include "train_zero/launcher.h"
#include "train_zero/shared_memory.h"
#include "train_zero/text_loader.h"
#include "train_zero/trainer.h"
#include "train_zero/training_state.h"

namespace {

constexpr int kUsage = 2;
constexpr uint64_t kMany = 1'000'000'000;  // steps or saves: more than anybody waits for

struct Options {
  uint32_t world_size = 1;
  std::string text;
  bool resume = false;
  uint64_t kill_at_save = 0;
  uint64_t kill_at_bytes = 0;
};

// A number that no other run has, by which Flagstone knows the ranks of this one.
std::string RunIdentity() {
  std::random_device device;
  std::string digits = "train_zero-";
  for (int i = 0; i < 32; ++i) digits += "0123456789abcdef"[device() % 16];
  return digits;
}

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? std::string("is empty") : std::string();
      },
      "");
}

void DeclareOptions(CLI::App& app, Options& options, train_zero::RunPlan& plan) {
  app.option_defaults()->always_capture_default();
  app.add_option("--world", options.world_size, "Processes to train on")->check(CLI::Range(1, 64));
  app.add_option("--steps", plan.steps,
                 "Train until so many steps are done, those before a resume included")
      ->required()
      ->check(CLI::Range(uint64_t{0}, kMany));
  CLI::Option* const save_every = app.add_option("--save-every", plan.save_every,
                                                 "Save after each step divisible by this; 0: never")
                                      ->check(CLI::Range(uint64_t{0}, kMany));
  CLI::Option* const out =
      app.add_option("--out", plan.job.root, "Directory of the checkpoints")->check(NotEmpty());
  CLI::Option* const resume =
      app.add_flag("--resume", options.resume, "Go on from the latest checkpoint in --out");
  app.add_option("--text", options.text, "Text to learn, of printable ASCII and newlines")
      ->check(CLI::ExistingFile);
  app.add_option("--batch", plan.batch, "Windows of text a process and step")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seed", plan.seed, "Seed of weights, dropout and data order");
  CLI::Option* const kill_at_save =
      app.add_option("--kill-at-save", options.kill_at_save,
                     "In this save (1: the first of this run) kill the last rank")
          ->check(CLI::Range(uint64_t{1}, kMany));
  CLI::Option* const kill_at_bytes =
      app.add_option("--kill-at-bytes", options.kill_at_bytes,
                     "... once so many bytes of its file are written")
          ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  save_every->needs(out);
  resume->needs(out);
  kill_at_save->needs(kill_at_bytes)->needs(save_every);
  kill_at_bytes->needs(kill_at_save);
}

// Training from the start into a directory that has checkpoints would first waste the steps, then
// fail at the name.
void RefuseToStartOver(const train_zero::RunPlan& plan) {
  if (plan.job.root.empty()) return;
  const auto found = flagstone::Checkpoint::Open(plan.job.root);
  if (!found.ok()) return;
  throw std::runtime_error(plan.job.root.string() + " already holds the checkpoint " +
                           found->path().string() +
                           "; add --resume to go on from it, or choose another --out");
}

int Train(const Options& options, train_zero::RunPlan& plan) {
  const train_zero::Text text = train_zero::ReadText(options.text);
  // Made for its check alone: a text that is too short is one error here, and would be one of each
  // rank later.
  train_zero::TextLoader(text, plan.shape.context, 0, options.world_size, plan.seed);
  plan.job.run = RunIdentity();
  plan.job.text_digest = text.digest;
  if (options.kill_at_save > 0)
    plan.death = {.save = options.kill_at_save, .bytes = options.kill_at_bytes};
  if (options.resume) {
    plan.resume = train_zero::FindResumePoint(plan.job, plan.shape, options.world_size);
    std::fprintf(stderr, "train_zero: resuming from %s\n", plan.resume->checkpoint.c_str());
  } else {
    RefuseToStartOver(plan);
  }
  train_zero::RankExchange exchange(options.world_size,
                                    train_zero::FlatElements(plan.shape, options.world_size));
  return train_zero::RunRanks(options.world_size, [&](uint32_t rank) {
    train_zero::RunRank(plan, text, rank, exchange);
    return EXIT_SUCCESS;
  });
}

}  // namespace

int main(int argc, char** argv) {
  Options options{.text = TRAIN_ZERO_TEXT};
  train_zero::RunPlan plan;
  CLI::App app("Train a small GPT, partitioned as ZeRO-2, with checkpoints by Flagstone.",
               "train_zero");
  DeclareOptions(app, options, plan);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : kUsage;
  }
  try {
    return Train(options, plan);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_zero: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
