// SPDX-License-Identifier: Apache-2.0
//
// A rank of the chaos job: what its two forms, the one that keeps its process and the one that is
// restarted, have in common.
#pragma once

#include <regroup/context.h>
#include <regroup/distributed_sampler.h>
#include <regroup/process_group.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/chaos/dial.h"
#include "tests/chaos/floats.h"
#include "tests/chaos/model.h"
#include "tests/chaos/step_log.h"

namespace regroup::chaos {

/// How long an operation may wait for peers that nobody holds for dead.
inline constexpr std::chrono::seconds kGroupTimeout(15);

struct JobOptions {
    std::string logs;         ///< Folder of the step logs.
    std::string end;          ///< Dial: once it is not 0, training is over.
    std::string checkpoint;   ///< Restarted form: file.
    std::uint64_t steps = 0;  ///< Training is over after so many; 0: only when the dial says so.
    std::int64_t step_us = 10'000;  ///< What a step takes besides.
    std::size_t weights = 256;
    std::size_t floats = 0;
    bool restarted = false;  ///< The form that is restarted.
    bool slow_end = false;   ///< It takes its time to begin, and to end when it is asked to.
};

/// From here on SIGTERM does to this process what it does to one that is in no hurry: it trains no
/// more, tidies up for as long as chance has it, perhaps for longer than it may, and ends. To be
/// called before there is another thread.
void end_slowly();
/// Does not return once a process that ends slowly was asked to.
void pass_unless_ending();

class Job {
   public:
    explicit Job(const JobOptions& options)
        : options_(options),
          model_(options.weights),
          gradient_(options.weights + 1),
          floats_(options.floats),
          log_(options.logs),
          end_(options.end.c_str()) {}

    [[nodiscard]] Model& model() { return model_; }
    [[nodiscard]] FloatModel& floats() { return floats_; }
    [[nodiscard]] const JobOptions& options() const { return options_; }
    /// Computes this rank's part of the step and sums it over all. False if training is over, which
    /// all ranks learn from the same sum.
    [[nodiscard]] bool compute(const Context& context, ProcessGroup& group, std::uint64_t step,
                               const SampleRange& samples);
    /// The optimizer's step.
    void apply(std::uint64_t step);
    void log(RecordKind kind, const Context& context, std::uint64_t step,
             const SampleRange& samples = {});
    /// The last word, in the log and on stdout.
    void end(RecordKind how, const Context& context, std::uint64_t steps);

   private:
    JobOptions options_;
    Model model_;
    std::vector<std::int64_t> gradient_;  ///< And, last, how many ranks say that it is over.
    FloatModel floats_;
    StepLog log_;
    Dial end_;
};

/// Both return the process's exit code.
int train_in_place(Job& job);
int train_restarted(Job& job);

}  // namespace regroup::chaos
