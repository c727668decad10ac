// SPDX-License-Identifier: Apache-2.0
//
// The form of the chaos job whose state the agents keep. Each rank saves a piece of the model, and
// a piece of a large tensor whose elements tell the step.
#include <regroup/snapshot.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tests/chaos/snapshot_history.h"
#include "tests/chaos/worker.h"

namespace regroup::chaos {
namespace {

/// So many elements that a worker is often killed in the middle of a copy.
constexpr std::uint64_t kElements = std::uint64_t{1} << 19U;

/// The piece of `count` elements that rank `rank` of `context` has.
TensorPiece piece_of(const Context& context, std::uint64_t count) {
    const std::uint64_t first = context.rank * count / context.world_size;
    const std::uint64_t last = (context.rank + 1) * count / context.world_size;
    return {{last - first}, {first}, {count}};
}

/// This rank's piece of the large tensor.
class Filling {
   public:
    explicit Filling(const Context& context)
        : piece_(piece_of(context, kElements)), values_(piece_.shape[0], 0) {}

    void add_to(Snapshot& snapshot) {
        snapshot.add("filling", TensorView(std::span(values_)), piece_);
    }
    void set(std::uint64_t step) {
        for (std::uint64_t i = 0; i < values_.size(); ++i) {
            values_[i] = value(step, i);
        }
    }
    [[nodiscard]] bool is_of(std::uint64_t step) const {
        for (std::uint64_t i = 0; i < values_.size(); ++i) {
            if (values_[i] != value(step, i)) {
                return false;
            }
        }
        return true;
    }

   private:
    [[nodiscard]] std::int64_t value(std::uint64_t step, std::uint64_t i) const {
        return static_cast<std::int64_t>(mix(step * kElements + piece_.offset[0] + i));
    }

    TensorPiece piece_;
    std::vector<std::int64_t> values_;
};

/// Writes what this rank is told.
class Reporter {
   public:
    Reporter(const Job& job, const Context& context)
        : log_(job.options().logs),
          start_{.rank = context.rank,
                 .world_size = context.world_size,
                 .node = context.group_rank,
                 .nodes = context.group_world_size,
                 .agent = ::getppid(),
                 .round = context.round} {}

    void begin(const std::string& folder) {
        SnapshotRecord record = start_;
        record.folder_step = newest_in_folder(folder);
        log_.write(record);
    }
    void loaded(std::optional<std::uint64_t> step, bool is_intact) {
        SnapshotRecord record = start_;
        record.event = SnapshotEvent::loaded;
        record.step = step.value_or(kNoStep);
        record.is_intact = is_intact ? 1 : 0;
        log_.write(record);
    }
    void tell(SnapshotEvent event, std::uint64_t step) {
        SnapshotRecord record = start_;
        record.event = event;
        record.step = step;
        log_.write(record);
    }
    /// Tells the facts that it has not told yet.
    void tell_news(const Snapshot& snapshot) {
        const auto tell_new = [&](SnapshotEvent event, std::optional<std::uint64_t> step,
                                  std::optional<std::uint64_t>& last) {
            if (step && step != last) {
                tell(event, *step);
                last = step;
            }
        };
        tell_new(SnapshotEvent::whole, snapshot.whole_step(), whole_);
        tell_new(SnapshotEvent::kept, snapshot.kept_step(), kept_);
    }

   private:
    SnapshotLog log_;
    const SnapshotRecord start_;
    std::optional<std::uint64_t> whole_;
    std::optional<std::uint64_t> kept_;
};

}  // namespace

int train_from_snapshots(Job& job) {
    constexpr std::chrono::seconds kWholeLimit(10);
    const Context context = Context::from_environment();
    const std::uint64_t interval = job.options().save_interval;
    Filling filling(context);
    Reporter reporter(job, context);
    Snapshot snapshot(context);
    const std::vector<std::pair<const char*, std::span<std::int64_t>>> model{
        {"weights", job.model().weights()}, {"momentum", job.model().momentum()}};
    for (const auto& [name, values] : model) {
        snapshot.add(name, TensorView(values));
    }
    filling.add_to(snapshot);
    reporter.begin(job.options().snapshot_folder);
    const std::optional<std::uint64_t> loaded = snapshot.load();
    std::uint64_t step = loaded.value_or(0);
    reporter.loaded(loaded, !loaded || filling.is_of(step));
    job.log(RecordKind::round, context, step);

    snapshot.clear();
    for (const auto& [name, values] : model) {
        const TensorPiece piece = piece_of(context, values.size());
        snapshot.add(name, TensorView(values.subspan(piece.offset[0], piece.shape[0])), piece);
    }
    filling.add_to(snapshot);
    const auto group = ProcessGroup::create("cpu", context, {.timeout = kGroupTimeout});
    for (;; ++step) {
        const SampleRange samples{step * kBatch, (step + 1) * kBatch};
        if (!job.compute(context, *group, step, samples)) {
            break;
        }
        job.apply(step);
        job.log(RecordKind::step, context, step, samples);
        if ((step + 1) % interval == 0) {
            filling.set(step + 1);
            if (snapshot.save(step + 1)) {
                reporter.tell(SnapshotEvent::saved, step + 1);
            }
        }
        reporter.tell_news(snapshot);
    }
    static_cast<void>(snapshot.wait_until_whole(kWholeLimit));
    reporter.tell_news(snapshot);
    job.end(RecordKind::finished, context, step);
    return 0;
}

}  // namespace regroup::chaos
