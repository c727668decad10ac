// SPDX-License-Identifier: Apache-2.0
//
// A rank of the chaos job: common parts of its forms, elastic, restarted and with snapshots.
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

/// How long an operation may wait for peers that are not known to be dead.
inline constexpr std::chrono::seconds kGroupTimeout(15);

struct JobOptions {
    std::string logs;         ///< Folder of the step logs.
    std::string end;          ///< Dial: once it is not 0, training is over.
    std::string checkpoint;   ///< Restarted form: file.
    std::uint64_t steps = 0;  ///< Training is over after so many steps; 0: when the dial says so.
    std::int64_t step_us = 10'000;  ///< Additional duration of a step.
    std::size_t weights = 256;
    std::size_t floats = 0;
    /// The form with snapshots saves one in so many steps; 0: another form.
    std::uint64_t save_interval = 0;
    std::string snapshot_folder;  ///< Where the agents may write them.
    bool restarted = false;       ///< The form that is restarted.
    bool slow_end = false;        ///< It is slow to begin, and to end after SIGTERM.
};

/// Makes SIGTERM end this process slowly: it stops training, cleans up for a random time, which may
/// exceed the shutdown timeout, and ends. Call it before another thread exists.
void end_slowly();
/// Returns at once, unless the process is ending slowly; then it does not return.
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
    /// Computes this rank's part of the step and sums it over all ranks. False if training is over;
    /// all ranks learn that from the same sum.
    [[nodiscard]] bool compute(const Context& context, ProcessGroup& group, std::uint64_t step,
                               const SampleRange& samples);
    /// The optimizer's step.
    void apply(std::uint64_t step);
    void log(RecordKind kind, const Context& context, std::uint64_t step,
             const SampleRange& samples = {});
    /// Writes the last record, and a line to stdout.
    void end(RecordKind how, const Context& context, std::uint64_t steps);

   private:
    JobOptions options_;
    Model model_;
    /// Its last element counts the ranks that know that training is over.
    std::vector<std::int64_t> gradient_;
    FloatModel floats_;
    StepLog log_;
    Dial end_;
};

/// All return the exit code of the process.
int train_in_place(Job& job);
int train_restarted(Job& job);
int train_from_snapshots(Job& job);

}  // namespace regroup::chaos
