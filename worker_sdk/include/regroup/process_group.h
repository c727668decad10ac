// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/error.h>
#include <regroup/tensor_view.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

enum class ReduceOp : std::uint8_t { sum, product, min, max, avg };
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;

/// How the values of the ranks become one: an operator, and for `sum` of floating-point values a
/// factor by which every rank's values are multiplied first. A plain ReduceOp is one too.
struct Reduction {
    ReduceOp op = ReduceOp::sum;
    double factor = 1.0;

    Reduction(ReduceOp op_in) noexcept : op(op_in) {}  // NOLINT: implicit on purpose
    /// The sum of `factor` times each value: for instance 1 / global batch. May differ by rank.
    [[nodiscard]] static Reduction premultiplied_sum(double factor) noexcept {
        Reduction reduction(ReduceOp::sum);
        reduction.factor = factor;
        reduction.premultiplied_ = true;
        return reduction;
    }
    /// True also for a factor of 1, since all ranks must carry out the same kind of operation.
    [[nodiscard]] bool premultiplied() const noexcept { return premultiplied_ || factor != 1.0; }

   private:
    bool premultiplied_ = false;
};

/// One operation in flight. A cheap handle that may be copied; dropping it cancels nothing. The
/// buffers of the operation must stay alive and untouched until it is complete.
class Work {
   public:
    using Duration = std::chrono::nanoseconds;
    struct State;

    Work() = default;
    explicit Work(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

    /// Blocks until the operation is complete on this rank. Throws the Error that it met:
    /// `disconnected` naming the peer that is gone, `fenced` after abort(), `deadline_exceeded`
    /// naming the operation, its sequence number and the peer waited for. After any error the
    /// buffers hold unspecified values and the group is finished. Any thread, any number of times.
    void wait() const;
    /// True once wait() would return or throw at once.
    [[nodiscard]] bool done() const;
    /// When it was complete on this rank. Nothing before that, for an operation that was complete
    /// when it was issued, and on "nccl", where the stream knows.
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> completed_at() const;

   private:
    std::shared_ptr<State> state_;
};

/// A stream of work on a GPU: a cudaStream_t, which somebody else owns; by default CUDA's default
/// stream. Means nothing to the CPU back end.
struct Stream {
    void* handle = nullptr;

    friend bool operator==(const Stream&, const Stream&) = default;
};

/// Memory that a group made. Freed with the last copy of the handle, which may outlive the group.
/// Whatever uses it must be over by then: operations, the caller's own kernels, and CUDA graphs
/// that may be launched again. On "nccl" that last copy goes on the thread that issues operations;
/// the group keeps the memory while any of its operations is in flight, but nothing tells it of
/// kernels.
struct Buffer {
    void* data = nullptr;
    std::size_t bytes = 0;
    Device device = {};
    std::shared_ptr<void> owner{};
};

struct ProcessGroupOptions {
    /// Limit for each operation and for forming the group. Includes waiting for slow peers. The
    /// time of a collective begins with its turn, that of a message when it is issued. On "nccl"
    /// every operation's time begins with its turn among those of the group, and includes what the
    /// caller put into its stream before.
    std::chrono::nanoseconds timeout = std::chrono::minutes(30);
    /// Names the group in the store and in errors. Groups formed at the same time need different
    /// names.
    std::string name = "default";
    /// "nccl" only: the GPU of this rank. Without one, `cuda::device_of(context)`.
    std::optional<std::int32_t> device = {};
};

struct OperationRequest;

/// The ranks of one round, or some of them, and the collectives and messages among them.
///
/// Every rank issues the same collectives in the same order, and they are carried out in that
/// order; one that is issued without waiting may overlap with the caller's own computation.
/// Messages are carried out beside them on "cpu": neither waits for the other, so that a send
/// behind a collective reaches a peer that receives it first. One thread issues operations; any
/// thread may wait or abort.
///
/// On "nccl" every operation is put into the group's current stream (`use_stream`): it begins after
/// what that stream held before, and what is put there afterwards sees its result, with no need to
/// wait on the host. Messages are carried out in their place of the stream too; those of one rank
/// that must make progress together go into one OperationBatch.
///
/// After the first error every further operation fails with the same error: the group is finished,
/// leave the round. A call that throws (a wrong argument, or `overloaded` with 65,536 operations in
/// flight) has issued nothing and costs the group nothing. An operation that a back end does not
/// have throws `invalid_argument` naming both.
///
/// A process that this one forks, such as a data loader, has no part in the group: it holds none of
/// its connections, and must neither use nor destroy it. It ends by _exit or exec.
///
/// Destroying the group leaves it in order if nothing is in flight; otherwise it is abort(). Either
/// waits for nobody, and others that still need this rank see it gone. On "nccl" it waits ten
/// seconds at most for what the GPU holds, says on stderr if that was not enough, and goes on
/// freeing in the background: CUDA graphs with operations of a group must be destroyed before it.
class ProcessGroup {
   public:
    /// `rank()` in a group that this process is not in.
    static constexpr std::uint32_t kNotAMember = std::numeric_limits<std::uint32_t>::max();

    virtual ~ProcessGroup() = default;
    ProcessGroup() = default;
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;

    /// Forms the group of all ranks of `context` over `backend`: "cpu" ("gloo" is accepted as its
    /// other name) for buffers in host memory, "nccl" for buffers on GPUs. Blocks until every rank
    /// has come. Throws Error: `deadline_exceeded` naming the ranks that never came,
    /// `disconnected` naming one that came and is gone,
    /// `invalid_argument` for a back end that does not exist, that this build was made without, or
    /// whose library or GPU is missing, saying which and what to do; `system`.
    [[nodiscard]] static std::unique_ptr<ProcessGroup> create(
        std::string_view backend, const Context& context, const ProcessGroupOptions& options = {});

    [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t world_size() const noexcept = 0;
    [[nodiscard]] virtual std::string_view backend() const noexcept = 0;
    /// Where buffers must lie.
    [[nodiscard]] virtual Device device() const noexcept { return {}; }

    // All buffers: any count, zero included; the same count and dtype on every rank. Otherwise an
    // Error `invalid_argument` that names both ranks' values where the back end can tell.

    /// In place: every rank ends up with the reduction over all ranks, bit-identical on all.
    /// Integers wrap around in their own width; `avg` divides their sum, truncating towards zero.
    /// On "cpu" the minimum and maximum of anything and a NaN is NaN, as torch.minimum has it.
    [[nodiscard]] Work all_reduce(TensorView buffer, Reduction reduction);
    /// In place on `root`, which ends up with the reduction; the others' buffers are left alone.
    [[nodiscard]] Work reduce(TensorView buffer, Reduction reduction, std::uint32_t root);
    /// `output` = this rank's row of the reduction of `input` = [world_size, output.count] over all
    /// ranks. May be that row of the input itself.
    [[nodiscard]] Work reduce_scatter(ConstTensorView input, TensorView output,
                                      Reduction reduction);
    /// In place: every rank ends up with `root`'s values.
    [[nodiscard]] Work broadcast(TensorView buffer, std::uint32_t root);
    /// `output` = [world_size, input.count], row i from rank i. The input may be its own row.
    [[nodiscard]] Work all_gather(ConstTensorView input, TensorView output);
    /// The same on `root` alone; the others' `output` is not looked at.
    [[nodiscard]] Work gather(ConstTensorView input, TensorView output, std::uint32_t root);
    /// Row i of `root`'s `input` = [world_size, output.count] becomes rank i's `output`; the
    /// others' `input` is not looked at. The output may be its own row.
    [[nodiscard]] Work scatter(ConstTensorView input, TensorView output, std::uint32_t root);
    /// Both [world_size, n]: row i of the input goes to rank i, row i of the output comes from it.
    /// The buffers must not overlap.
    [[nodiscard]] Work all_to_all(ConstTensorView input, TensorView output);
    /// Complete when every rank has entered.
    [[nodiscard]] Work barrier();
    /// To one peer; matched with the recv of equal tag there, in order of issue per (peer, tag).
    /// Complete when the buffer may be used again, which says nothing about the peer. On "cpu" a
    /// message that comes before its recv is kept for it, up to 64 MiB from one peer; beyond that
    /// the peer waits, and with it all its later messages to this rank. On "nccl" both sides wait
    /// for each other, and messages match in order of issue alone: NCCL carries no tags, so that
    /// using them in equal order on both sides is the caller's duty.
    [[nodiscard]] Work send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag = 0);
    [[nodiscard]] Work recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag = 0);

    /// The group of some of this group's ranks; the i-th of `ranks` becomes its rank i. Called by
    /// every rank of this group with the same arguments, in the same order among its collectives;
    /// blocks until all have come. Gives those that are not listed a group that refuses every
    /// operation with `invalid_argument`, saying who is in it. The new group has this one's
    /// timeout and is aborted with it. Throws Error `invalid_argument` naming a rank that does not
    /// exist or is listed twice; otherwise as `create`.
    [[nodiscard]] virtual std::unique_ptr<ProcessGroup> new_group(
        const std::vector<std::uint32_t>& ranks, std::string_view name) = 0;

    /// Memory that operations of this group reach fastest: shared among the processes of a node on
    /// "cpu", registered on "nccl". Zeroed, aligned to 4 KiB. Called by every rank with the same
    /// size, in the same order among its collectives; blocks until all have come. Ordinary memory
    /// is always allowed instead. When it may be freed, see Buffer. Throws Error `system` if there
    /// is none left.
    [[nodiscard]] virtual Buffer allocate(std::size_t bytes);

    /// "nccl": operations issued from now on go into `stream`; until then, into one of the group's
    /// own, which at each operation first waits for CUDA's default stream of this thread. A stream
    /// that is being captured into a CUDA graph is fine: the Work of a captured operation is
    /// complete at once, and errors of a replay come with the group's next operation. Nothing on
    /// "cpu".
    virtual void use_stream(Stream stream);
    /// What `use_stream` was given last; nothing for the group's own.
    [[nodiscard]] virtual std::optional<Stream> current_stream() const;
    /// Back to the group's own stream.
    virtual void use_own_stream();

    /// Gives the group up: blocked and future operations on this rank end as `fenced` in well under
    /// a second, and peers see this rank gone. Any thread, any number of times; waits for nobody.
    virtual void abort(std::string_view reason) noexcept = 0;

   protected:
    friend class OperationBatch;
    /// Checks the request and issues it. Every operation above comes here.
    [[nodiscard]] virtual Work issue(const OperationRequest& request) = 0;
    /// See OperationBatch.
    virtual void begin_batch() {}
    virtual void end_batch() {}
};

/// Operations of one rank that are started together, as ncclGroupStart and ncclGroupEnd do: with
/// "nccl" needed for a send and a recv that must go on at the same time, and cheaper for many small
/// operations. On "cpu" operations make progress together anyway, and it changes nothing.
///
///     regroup::OperationBatch batch(group);
///     const regroup::Work sent = group.send(mine, next);
///     const regroup::Work received = group.recv(theirs, previous);
///     batch.start();
///     received.wait();
///
/// Batches of one group do not nest.
class OperationBatch {
   public:
    explicit OperationBatch(ProcessGroup& group) : group_(&group) { group_->begin_batch(); }
    /// Gives the group up if `start` was not called.
    ~OperationBatch();
    OperationBatch(const OperationBatch&) = delete;
    OperationBatch& operator=(const OperationBatch&) = delete;

    /// Starts what was issued since. Nothing may be waited for before. Throws as the operations.
    void start();

   private:
    ProcessGroup* group_;
};

}  // namespace regroup
