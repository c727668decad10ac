// SPDX-License-Identifier: Apache-2.0
//
// A training loop that survives the loss of workers: the processes stay, and the rounds change.
//
//     std::vector<float> weights(1000);
//     regroup::ElasticLoop loop;
//     loop.register_state("weights", std::span<float>(weights));
//     loop.run({
//         .on_step = [&](regroup::ElasticStep& step) {
//             if (step.number() == 600) {
//                 return step.finish();
//             }
//             const regroup::DistributedSampler sampler({.dataset_count = 600 * 64,
//                                                        .rank = step.context().rank,
//                                                        .world_size = step.context().world_size});
//             std::vector<float> gradient(weights.size());
//             for (const std::uint64_t sample : sampler.shard(step.take(64))) {
//                 gradient[sample % 1000] += weights[sample % 1000] / 64;  // Forward and backward.
//             }
//             step.group().all_reduce(std::span<float>(gradient), regroup::ReduceOp::sum).wait();
//             step.commit([&] {
//                 for (std::size_t i = 0; i < weights.size(); ++i) {
//                     weights[i] -= 0.1F * gradient[i];
//                 }
//             });
//         },
//     });
//
// When a peer is lost, the collective that blocks throws an Error. The loop catches it and waits
// for the next round. A rank that is behind or new gets the last committed state from a survivor.
// Then the loop calls `on_step` again for the step that was not committed.
#pragma once

#include <regroup/context.h>
#include <regroup/distributed_sampler.h>
#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
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
    /// Limit for each operation. The loss of a peer ends operations at once, not after this time.
    std::chrono::nanoseconds timeout = std::chrono::minutes(30);
    /// The loop compares the replicas of the state every so many steps; 0: only where it always
    /// does, at every change of the membership and in `finish()`. A rank whose state
    /// differs from the state of the majority ends with an Error. The other ranks treat this as the
    /// loss of a peer and keep their state. Without a majority (for example two ranks that differ),
    /// all ranks end. The same on every rank.
    std::uint64_t compare_every = 0;
    /// The loop saves a snapshot (regroup/snapshot.h) of the registered state every so many steps;
    /// 0: never. When no rank has a state any more, because all processes were lost, training goes
    /// on from the newest snapshot that is whole, if that is later than what `resume_at` gave. The
    /// same on every rank.
    std::uint64_t snapshot_every = 0;
};

/// A round: a period in which membership and ranks are fixed.
struct ElasticRound {
    const Context* context = nullptr;  ///< Rank, world size and the rest, in this round.
    ProcessGroup* group = nullptr;     ///< Of all ranks; aborted at the end of the round.
    std::uint64_t step = 0;            ///< Steps committed before this round.
    bool first = false;                ///< The first round of this process.
};

/// A step that is being carried out.
class ElasticStep {
   public:
    /// Steps committed before this one, over all rounds: the number of this step, from 0.
    [[nodiscard]] std::uint64_t number() const noexcept;
    [[nodiscard]] const Context& context() const noexcept;
    [[nodiscard]] ProcessGroup& group() const noexcept;

    /// Samples consumed by all committed steps, of all ranks together. The same on every rank.
    [[nodiscard]] std::uint64_t samples_begin() const noexcept;
    /// Takes the next `count` positions of the global order for this step, for all ranks together.
    /// DistributedSampler::shard gives each rank its part, for any world size. The positions count
    /// as consumed when the step is committed; otherwise the repeated step gets them again. Once
    /// per step.
    SampleRange take(std::uint64_t count);

    /// Ends the step. Blocks until every rank of the round has called it and all operations of the
    /// step are complete. Then it calls `apply` (the optimizer's step: local, no collectives), and
    /// the step is committed.
    ///
    /// If a rank is lost before that, it throws and applies nothing. The next round repeats the
    /// step, unless a survivor has already applied it: then the other ranks get the state of that
    /// survivor. So all ranks commit a step, or none does. Throws Error `fenced` on a worker whose
    /// round is over. Do not catch what it throws. Once per step.
    void commit(const std::function<void()>& apply);
    /// `commit` in two parts, for code that is no function: the program applies the step between
    /// them. If it fails there, the state is half changed, and training ends.
    void begin_commit();
    void end_commit();
    /// After the commit: the round ends at this step boundary, because a node leaves or joins; the
    /// same on all ranks. State that is divided among the ranks can be saved now, while all of them
    /// are here.
    [[nodiscard]] bool pauses() const noexcept;
    /// Ends the training: `run` returns when every rank has called it, without committing this
    /// step. All ranks must call it in the same step. If some do not, `run` throws Error
    /// `invalid_argument`, which names them, and the launcher ends the job without a restart.
    ///
    /// The ranks compare the registered state here, which costs one pass over it. If it differs, no
    /// rank finishes: see `ElasticOptions::compare_every`.
    void finish();

    /// Shows a number of this step to those who watch the job: its page, `regroup status` and its
    /// metrics. Only the values of rank 0 are shown, so report what is worth it there, such as the
    /// loss; no rank waits for another. The last value stays until it is reported again. A value
    /// that is not finite is shown as none.
    ///
    /// The name consists of a to z, 0 to 9 and _, does not begin with a digit, and has at most 32
    /// characters; a process has 8 names at most. Throws Error `invalid_argument` otherwise. Costs
    /// some nanoseconds: no allocation, lock or system call.
    void report(std::string_view name, double value);

    /// While this object lives, the rank is in the named section. The agent suspects a hang when a
    /// section takes several times as long as it ever has. Sections cannot be nested. The time in
    /// sections called "data" is shown as the step's time for data.
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

/// Describes why and until when this rank leaves, while its state can still be saved.
struct ElasticLeave {
    /// Committed steps: the same on every rank that leaves. If a loss ends the round before all
    /// ranks are at the boundary, they take part in up to three more rounds first. Where no such
    /// round completes, this is the step of this rank alone, which may be one less than that of
    /// other ranks. Reasons: too few nodes are left, no daemon answers, the time of the node runs
    /// out, or a worker has reported `user_error`.
    std::uint64_t step = 0;
    std::string reason;
    std::chrono::steady_clock::time_point deadline;
};

/// Describes which ranks leave, while all ranks of the round are still connected.
struct ElasticDeparture {
    const Context* context = nullptr;
    ProcessGroup* group = nullptr;
    std::uint64_t step = 0;  ///< Committed steps.
    /// The ranks that leave at this step boundary, in order. The same on all ranks.
    std::vector<std::uint32_t> ranks{};

    [[nodiscard]] bool leaves(std::uint32_t rank) const noexcept;
    [[nodiscard]] bool all_leave() const noexcept;
};

struct ElasticCallbacks {
    /// Called at the start of each round, when the state is complete. Build here what needs the
    /// group, such as DistributedDataParallel.
    std::function<void(const ElasticRound&)> on_round = {};
    /// Called for each step; must end with commit(), finish() or an exception. Required.
    std::function<void(ElasticStep&)> on_step = {};
    /// Called on all ranks of the round at a step boundary at which some of them leave, before
    /// `on_leave`: for state that is divided among the ranks, which those that leave hand over
    /// here. Collectives are allowed. If a rank is lost meanwhile, it is called again at the next
    /// boundary at which ranks leave. Not called if a node leaves between two rounds, or is lost.
    std::function<void(const ElasticDeparture&)> on_departure = {};
    /// Called on each rank of a node that leaves (a drain, a preemption), at a step boundary that
    /// is the same for all ranks, or between two rounds. `run` then returns Ending::left. Not
    /// called if the other nodes went on without this rank and the agent knows it: then the agent
    /// ends this process.
    std::function<void(const ElasticLeave&)> on_leave = {};
};

enum class Ending : std::uint8_t {
    finished,  ///< Every rank called finish().
    left,      ///< This node leaves; the others go on.
};

/// The next task of the program; see ElasticLoop::next.
enum class ElasticEvent : std::uint8_t {
    round,     ///< `round()` begins: what ElasticCallbacks::on_round does.
    step,      ///< Carry out `step()`: what ElasticCallbacks::on_step does.
    leave,     ///< Save for `leave()`: what ElasticCallbacks::on_leave does.
    finished,  ///< Training is over, as with Ending::finished.
    left,      ///< Training is over, as with Ending::left.
};

/// Runs steps over changing memberships. This needs the regroup launcher. Under another launcher,
/// or alone, the loop runs one round, and the loss of a peer ends it with an Error.
///
/// A worker whose round is over can neither commit nor save a checkpoint (Checkpoint::save with
/// CheckpointOptions::round). Only the thread that calls `run` uses the loop; a control thread of
/// the loop listens to the agent. A process has at most one loop that has not ended.
///
/// A forked child has no part in the training: there `run`, `next`, and what a step does with the
/// other ranks throw Error `invalid_argument`, and the destructor has no effect.
class ElasticLoop {
   public:
    /// Throws Error as Context::from_environment; `invalid_argument` while another loop of this
    /// process has not come to its end: let it finish, or destroy it.
    explicit ElasticLoop(ElasticOptions options = {});
    ~ElasticLoop();
    ElasticLoop(const ElasticLoop&) = delete;
    ElasticLoop& operator=(const ElasticLoop&) = delete;

    /// Registers state that must be equal on all ranks after every step, such as parameters and the
    /// optimizer's moments. The caller owns the memory and keeps it in place while the loop lives.
    /// It is host or GPU memory, as the back end needs it; the loop reads and writes GPU memory in
    /// CUDA's default stream. Change the state only in the function given to `commit`.
    ///
    /// The same names, in the same order, on every rank. Before `run`. Throws Error
    /// `invalid_argument` for a name that is registered already, or for a tensor without data.
    void register_state(std::string name, TensorView tensor);
    /// The same for state that is not a tensor: `save` returns its bytes, `load` takes them. The
    /// loop calls both between steps, on the thread of `run`.
    ///
    /// The loop compares the bytes, so `save` must return the same ones on all ranks that have the
    /// same state, and again after `load`. Write no addresses, no structs with padding, and no
    /// unordered map in its own order. Many serialisers of libraries do.
    void register_state(std::string name, std::function<std::string()> save,
                        std::function<void(std::string_view)> load);

    /// Registers a tensor that `on_step` changes before `commit`, such as the running means of a
    /// normalisation; otherwise as `register_state`. Its value counts, and must be equal on all
    /// ranks, when `commit` has called `apply`; DistributedDataParallel makes buffers equal. The
    /// loop keeps a copy of that value in host memory. After a step that is not committed, it
    /// writes the copy back: before the step is repeated, before `on_leave`, and before `run`
    /// finishes. Costs a copy in each step.
    void register_buffer(std::string name, TensorView tensor);

    /// Continues from a checkpoint: so many steps and samples count as done. Before `run`, or in
    /// `on_round`, on all ranks alike: there, a program whose state is divided among the ranks, so
    /// that a loss has taken some of it, returns to the step that it has loaded, which may be an
    /// earlier one.
    /// The registered state stays as it is. Throws Error `invalid_argument` elsewhere.
    void resume_at(std::uint64_t step, std::uint64_t samples);

    /// For interpreters: a successor of this process will import these modules (names with commas
    /// between). The agent prepares a process that has imported them, and starts such workers from
    /// it; see `regroup run --preload`. Any time.
    void will_import(const std::string& modules);

    /// Trains until all ranks finish or this node leaves. Once. The ranks compare their registered
    /// state before they finish, and at the step boundary at which a node leaves. Throws Error:
    /// - `invalid_argument` if the state of this rank differs from that of the majority, naming the
    ///   rank and the state (see `ElasticOptions::compare_every`; without the launcher on all
    ///   ranks), or if a callback is missing;
    /// - `disconnected` when the agent goes away; without the launcher when a peer is lost;
    /// - whatever callbacks throw, except for the Error of a lost peer under the launcher.
    ///
    /// Under the launcher, if SIGTERM would end the process, `run` defers it: a scheduler may have
    /// sent the signal to the agent too, which then asks this worker to leave in order. If the
    /// agent does not ask within two seconds, the signal ends the process. SIGTERM from the agent,
    /// or to a process that this one forked, takes effect at once. A program that handles SIGTERM
    /// gets it as usual. System calls that SA_RESTART does not resume may return EINTR.
    Ending run(const ElasticCallbacks& callbacks);

    /// `run` in parts, for a program that the loop cannot call back, such as an iterator of another
    /// language. Returns what the program does next; the program has done that when it calls `next`
    /// again. Throws as `run`; then training is over, and so it is after `finished` and `left`.
    /// One thread calls this and the functions below, and destroys the loop.
    ElasticEvent next();
    /// The program could not do what `next` returned, because of `error`. True if that is the loss
    /// of a peer: then call `next`. Otherwise training is over; the others go on in a new round.
    /// Throws Error `invalid_argument` instead if the ranks do not agree on the end of training.
    [[nodiscard]] bool repairs(const std::exception& error);
    /// The objects of the last events, each valid until the next event.
    [[nodiscard]] const ElasticRound& round() const noexcept;
    [[nodiscard]] ElasticStep& step() noexcept;
    [[nodiscard]] const ElasticLeave& leave() const noexcept;

   private:
    friend class elastic::Loop;
    explicit ElasticLoop(std::shared_ptr<elastic::Loop> loop);
    std::shared_ptr<void> place_;  // Of the only loop of a process.
    std::shared_ptr<elastic::Loop> loop_;
};

}  // namespace regroup
