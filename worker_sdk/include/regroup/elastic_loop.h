// SPDX-License-Identifier: Apache-2.0
//
// The training loop that survives: processes stay, rounds change under them.
//
//     regroup::ElasticLoop loop;
//     loop.register_state("weights", regroup::TensorView(weights));
//     loop.register_state("momentum", regroup::TensorView(momentum));
//     std::optional<regroup::DistributedDataParallel> ddp;
//     loop.run({
//         .on_round = [&](const regroup::ElasticRound& round) {
//             ddp.emplace(*round.group, parameters);
//         },
//         .on_step = [&](regroup::ElasticStep& step) {
//             if (step.samples_begin() >= samples_total) {
//                 return step.finish();
//             }
//             const auto mine = sampler.shard(step.take(global_batch));
//             ... forward, backward; ddp->synchronize() ...
//             step.commit([&] { optimizer.step(); });
//         },
//     });
//
// When a peer is lost, what blocks in a collective is released with an Error; the loop catches it,
// waits for the next round, gets the last committed state from a survivor if this rank is behind
// or new, and calls `on_step` again for the step that was not committed.
#pragma once

#include <regroup/context.h>
#include <regroup/distributed_sampler.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

namespace elastic {
class Loop;
}

struct ElasticOptions {
    std::string backend = "cpu";  ///< Of the group that steps use; see ProcessGroup::create.
    /// Limit for each operation. A peer that is lost ends operations at once, not after this.
    std::chrono::nanoseconds timeout = std::chrono::minutes(30);
    /// Replicas are compared at every change of the membership, before any is sent to those who
    /// need it, and every so many steps; 0: only then. A rank that holds something else than most
    /// of those who ought to hold the same ends with an Error; for the others that is the loss of a
    /// peer, and they go on with what they hold. If nothing is held by more ranks than anything
    /// else (two ranks that differ), all end. The same on every rank.
    std::uint64_t compare_every = 0;
    /// Own work and waiting are compared among ranks over windows of this many steps, and a rank
    /// that is slower in its own work is named; 0: never.
    std::uint32_t straggler_window = 10;
    /// How much slower than the median counts, from 0; see `ElasticLoop::on_straggler`.
    double straggler_excess = 0.12;
};

/// One membership, as a step sees it.
struct ElasticRound {
    const Context* context = nullptr;  ///< Rank, world size and the rest, in this round.
    ProcessGroup* group = nullptr;     ///< Of all ranks; ends with the round.
    std::uint64_t step = 0;            ///< Steps committed before it.
    bool first = false;                ///< The job's first round on this process.
};

/// A step in the making.
class ElasticStep {
   public:
    /// Steps committed before this one, over all rounds: the number of this step, from 0.
    [[nodiscard]] std::uint64_t number() const noexcept;
    [[nodiscard]] const Context& context() const noexcept;
    [[nodiscard]] ProcessGroup& group() const noexcept;

    /// Samples consumed by all committed steps, of all ranks together. The same on every rank.
    [[nodiscard]] std::uint64_t samples_begin() const noexcept;
    /// Takes the next `count` positions of the global order for this step, for all ranks together:
    /// to be dealt out by DistributedSampler::shard, under whatever world size. They count as
    /// consumed when the step is committed, and are given again if it is not. Once per step.
    SampleRange take(std::uint64_t count);

    /// Ends the step. Blocks until every rank of the round has come here with its reduction done;
    /// then calls `apply` (the optimizer's step: local, no collectives), and the step is
    /// committed. If any rank is lost first, throws, having applied nothing; the step is repeated
    /// in the next round, unless some survivor has already applied it: then all others get its
    /// state. So a step is committed by all or by none. Throws Error `fenced` on a worker whose
    /// round is over. Let what it throws pass. Once per step.
    void commit(const std::function<void()>& apply);
    /// Training is over: `run` returns once every rank has said so, without committing this step.
    /// All ranks must call it in the same step. If some do not, `run` throws Error
    /// `invalid_argument`, which names them, and the launcher ends the job without another try.
    void finish();

    /// While it lives, this rank is in the named section, whose duration is watched: a hang is
    /// suspected when it takes several times as long as it ever has. Nests not.
    class Section {
       public:
        Section(const ElasticStep& step, std::string_view name) noexcept;
        ~Section();
        Section(const Section&) = delete;
        Section& operator=(const Section&) = delete;

       private:
        elastic::Loop* loop_;
    };
    [[nodiscard]] Section section(std::string_view name) const noexcept {
        return Section(*this, name);
    }

   private:
    friend class elastic::Loop;
    explicit ElasticStep(elastic::Loop& loop) noexcept : loop_(&loop) {}
    elastic::Loop* loop_;
};

/// Why this rank is about to leave, while its state is still there to be saved.
struct ElasticLeave {
    /// Committed steps: the same on every rank that leaves. If a loss ends the round before all
    /// have come to the boundary, they take part in one more round first, or in up to three. Only
    /// where there can be none (too few nodes are left, no daemon is reached, the node's time to
    /// leave runs out, or a worker has said that trying again cannot help), or the last breaks,
    /// too, is it what this rank had come to, which may be one step less than others.
    std::uint64_t step = 0;
    std::string reason;
    std::chrono::steady_clock::time_point deadline;
};

struct ElasticCallbacks {
    /// Called at the start of each round, with the state in place: build here what hangs on the
    /// group, such as DistributedDataParallel.
    std::function<void(const ElasticRound&)> on_round = {};
    /// Called for each step; must end with commit(), finish() or an exception. Required.
    std::function<void(ElasticStep&)> on_step = {};
    /// Called on each rank of a node that leaves (a drain, a preemption), at a step boundary that
    /// is the same for all, or between two rounds; `run` returns afterwards with Ending::left. Not
    /// called on a rank without which the others have gone on meanwhile, if its node hears of that:
    /// its process is ended.
    std::function<void(const ElasticLeave&)> on_leave = {};
};

enum class Ending : std::uint8_t {
    finished,  ///< Every rank said so.
    left,      ///< This node leaves; the others go on.
};

/// Runs steps over changing memberships. Needs the regroup launcher for that; under any other, or
/// alone, it runs them over the one membership that there is, and a loss ends it with an Error.
///
/// A worker of a round that is over can neither commit nor save a checkpoint (Checkpoint::save with
/// CheckpointOptions::round). One thread, that which calls `run`; a control thread of the loop's
/// own listens to the agent. At most one loop in a process at a time.
class ElasticLoop {
   public:
    explicit ElasticLoop(ElasticOptions options = {});
    ~ElasticLoop();
    ElasticLoop(const ElasticLoop&) = delete;
    ElasticLoop& operator=(const ElasticLoop&) = delete;

    /// Registers what must be equal on all ranks after every step: parameters, the optimizer's
    /// state. The memory belongs to the caller and stays where it is while the loop lives; host or
    /// GPU, as the back end needs it; what is on a GPU is read and written in CUDA's default
    /// stream. It changes nowhere but in the function given to `commit`. The same names, in the
    /// same order, on every rank. Before `run`. Throws Error `invalid_argument` for a name that is
    /// taken.
    void register_state(std::string name, TensorView tensor);
    /// The same for what is not a tensor: `save` gives its bytes, `load` takes them. Called
    /// between steps, on the thread of `run`.
    void register_state(std::string name, std::function<std::string()> save,
                        std::function<void(std::string_view)> load);

    /// Goes on from a checkpoint: so many steps and samples count as done. Before `run`.
    void resume_at(std::uint64_t step, std::uint64_t samples);

    /// Called on rank 0 when a rank's own work is slower than the median of the others
    /// by `straggler_excess`, and by 1 ms at least, window after window. The launcher says so too.
    void on_straggler(std::function<void(std::uint32_t rank, double excess)> listener);

    /// Trains. Throws Error `invalid_argument` if what this rank keeps is not what most others do,
    /// naming the rank and the tensor (see `ElasticOptions::compare_every`; without the launcher on
    /// all ranks), or if a callback is missing; what callbacks throw, but for an Error of a lost
    /// peer; without the launcher also `disconnected` when a peer is lost, and with it when the
    /// agent goes away. Once.
    ///
    /// Under the launcher, and if SIGTERM would end the process, it is put off meanwhile: a
    /// scheduler may have sent it to the agent as well, which then asks this worker to leave in
    /// order. If the agent does not within two seconds, the process ends by it. From the agent
    /// itself it works at once, and so it does in processes that this one forks; a program that
    /// handles SIGTERM gets it as ever. System calls that SA_RESTART does not resume may return
    /// EINTR.
    Ending run(const ElasticCallbacks& callbacks);

   private:
    friend class elastic::Loop;
    explicit ElasticLoop(std::unique_ptr<elastic::Loop> loop);
    std::unique_ptr<elastic::Loop> loop_;
};

}  // namespace regroup
