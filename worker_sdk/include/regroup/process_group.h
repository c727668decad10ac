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
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// `bit_and`, `bit_or` and `bit_xor` are for integers, on "cpu" only: NCCL has none.
enum class ReduceOp : std::uint8_t { sum, product, min, max, avg, bit_and, bit_or, bit_xor };
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;

/// Combines the values of the ranks with an operator. For `sum` of floating-point values, each rank
/// can multiply its values by a factor first. A ReduceOp converts to a Reduction.
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

    /// Blocks until the operation is complete on this rank. Throws the Error of the operation:
    /// `disconnected` naming the peer that is gone, `fenced` after abort(), `deadline_exceeded`
    /// naming the operation, its sequence number and the peer waited for. After any error the
    /// buffers hold unspecified values and the group is finished. Any thread, any number of times.
    void wait() const;
    /// True once wait() would return or throw at once.
    [[nodiscard]] bool done() const;
    /// The time at which the operation was complete on this rank. Empty until then, and for an
    /// operation that was complete when it was issued. On "nccl" the time at which a thread of the
    /// group saw the end on the GPU; for timing there, use CUDA events.
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> completed_at() const;

   private:
    std::shared_ptr<State> state_;
};

/// A CUDA stream (cudaStream_t), owned by the caller; by default CUDA's default stream. The back
/// end "cpu" ignores it.
struct Stream {
    void* handle = nullptr;

    friend bool operator==(const Stream&, const Stream&) = default;
};

/// Memory that a group allocated. The last copy of the handle frees it and may outlive the group.
/// Before that, all users of the memory must have ended: operations, the caller's own kernels, and
/// CUDA graphs that may be launched again. On "nccl", destroy the last copy on the thread that
/// issues operations. The group keeps the memory while any of its operations is in flight, but
/// cannot see the caller's kernels.
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

/// Options of one operation in place of its group's.
struct OperationOptions {
    /// "nccl": the stream that the operation goes into. The operations of a batch share one.
    std::optional<Stream> stream = {};
    /// The limit of this operation on this rank. The ranks may give different ones.
    std::optional<std::chrono::nanoseconds> timeout = {};
};

struct OperationRequest;
class LearnedOrders;

/// The ranks of one round, or some of them, and the collectives and messages among them.
///
/// Every rank issues the same collectives in the same order, and the group executes them in that
/// order. A collective may overlap with the caller's computation until the caller waits for it. On
/// "cpu", messages and collectives do not wait for each other: a send issued after a collective
/// reaches a peer that posts the recv first. One thread issues operations; any thread may wait or
/// abort.
///
/// On "nccl" every operation is put into the group's current stream (`use_stream`): it begins after
/// the earlier work in that stream, and later work in the stream sees its result without a wait on
/// the host. Messages also run in stream order. Messages of one rank that must make progress
/// together go into one OperationBatch.
///
/// After the first error every further operation fails with the same error. The group is unusable
/// then: leave the round. A call that throws (a wrong argument, or `overloaded` with 65,536
/// operations in flight) has issued nothing, and the group stays usable. An operation that a back
/// end does not support throws `invalid_argument` naming both.
///
/// A forked child process, such as a data loader, is not a member of the group and holds none of
/// its connections. There every operation, and wait() of one that its parent has issued, throws
/// Error `invalid_argument`; the destructor and abort() have no effect. The child may end in any
/// way.
///
/// The destructor leaves the group in order if nothing is in flight; otherwise it calls abort(). It
/// does not wait for other ranks; ranks that still need this rank see that it is gone. On "nccl"
/// the destructor waits at most ten seconds for the GPU. If that is not enough, it prints a message
/// to stderr and frees the rest in the background. Destroy CUDA graphs that hold operations of a
/// group before the group.
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
    /// has called it. Throws Error: `deadline_exceeded` naming the ranks that did not call it;
    /// `disconnected` naming a rank that is gone; `invalid_argument` for a back end that does not
    /// exist, that this build does not contain, or whose library or GPU is missing, with the
    /// missing part and a remedy; `system`.
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
    [[nodiscard]] Work all_reduce(TensorView buffer, Reduction reduction,
                                  const OperationOptions& options = {});
    /// The same into `output`, which is `input` or does not overlap it.
    [[nodiscard]] Work all_reduce(ConstTensorView input, TensorView output, Reduction reduction,
                                  const OperationOptions& options = {});
    /// In place on `root`, which ends up with the reduction. The buffers of the other ranks keep
    /// their values.
    [[nodiscard]] Work reduce(TensorView buffer, Reduction reduction, std::uint32_t root,
                              const OperationOptions& options = {});
    /// The same into `root`'s `output`, which is `input` or does not overlap it. The other ranks'
    /// `output` is ignored.
    [[nodiscard]] Work reduce(ConstTensorView input, TensorView output, Reduction reduction,
                              std::uint32_t root, const OperationOptions& options = {});
    /// `output` = this rank's row of the reduction of `input` = [world_size, output.count] over all
    /// ranks. May be that row of the input itself.
    [[nodiscard]] Work reduce_scatter(ConstTensorView input, TensorView output, Reduction reduction,
                                      const OperationOptions& options = {});
    /// Row i of the input has `counts[i]` elements, and goes to rank i. The rows lie one after the
    /// other. All ranks give the same counts, which the call copies.
    [[nodiscard]] Work reduce_scatter(ConstTensorView input, TensorView output, Reduction reduction,
                                      std::span<const std::size_t> counts,
                                      const OperationOptions& options = {});
    /// In place: every rank ends up with `root`'s values.
    [[nodiscard]] Work broadcast(TensorView buffer, std::uint32_t root,
                                 const OperationOptions& options = {});
    /// `output` = [world_size, input.count], row i from rank i. The input may be its own row.
    [[nodiscard]] Work all_gather(ConstTensorView input, TensorView output,
                                  const OperationOptions& options = {});
    /// Row i of the output has `counts[i]` elements, and comes from rank i. The rows lie one after
    /// the other. All ranks give the same counts, which the call copies.
    [[nodiscard]] Work all_gather(ConstTensorView input, TensorView output,
                                  std::span<const std::size_t> counts,
                                  const OperationOptions& options = {});
    /// As the even all_gather, on `root` alone. The other ranks' `output` is ignored.
    [[nodiscard]] Work gather(ConstTensorView input, TensorView output, std::uint32_t root,
                              const OperationOptions& options = {});
    /// Row i of `root`'s `input` = [world_size, output.count] becomes rank i's `output`. The other
    /// ranks' `input` is ignored. The output may be its own row.
    [[nodiscard]] Work scatter(ConstTensorView input, TensorView output, std::uint32_t root,
                               const OperationOptions& options = {});
    /// Both [world_size, n]: row i of the input goes to rank i, row i of the output comes from it.
    /// The buffers must not overlap.
    [[nodiscard]] Work all_to_all(ConstTensorView input, TensorView output,
                                  const OperationOptions& options = {});
    /// Row i of the input has `input_counts[i]` elements, row i of the output `output_counts[i]`.
    /// The latter is what rank i gives as its count for this rank. The rows lie one after the
    /// other, and the call copies the counts.
    [[nodiscard]] Work all_to_all(ConstTensorView input, TensorView output,
                                  std::span<const std::size_t> input_counts,
                                  std::span<const std::size_t> output_counts,
                                  const OperationOptions& options = {});
    /// Complete when every rank has entered. The error of a timeout names the ranks that have not.
    [[nodiscard]] Work barrier(const OperationOptions& options = {});
    /// Sends to one peer. Matches the peer's recv with the same tag, in order of issue per (peer,
    /// tag). Complete when the buffer may be reused; the peer may not have received the data yet.
    /// On "cpu" a rank buffers messages that arrive before their recv, up to 64 MiB from one peer.
    /// Beyond that, this message of the peer and all its later messages to this rank wait. On
    /// "nccl" both sides wait for each other. NCCL carries no tags: messages match in order of
    /// issue alone, and the caller must use tags in the same order on both sides.
    [[nodiscard]] Work send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag = 0,
                            const OperationOptions& options = {});
    [[nodiscard]] Work recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag = 0,
                            const OperationOptions& options = {});

    /// Forms a group of some ranks of this group; the i-th of `ranks` becomes its rank i. Every
    /// rank of this group calls it with the same arguments, in the same order among its
    /// collectives. Blocks until all ranks have called it. Ranks that are not listed get a group
    /// that refuses every operation with `invalid_argument` and names the members. The new group
    /// has the timeout of this group and is aborted with it. Throws Error `invalid_argument` naming
    /// a rank that does not exist or is listed twice; otherwise as `create`.
    [[nodiscard]] virtual std::unique_ptr<ProcessGroup> new_group(
        const std::vector<std::uint32_t>& ranks, std::string_view name) = 0;

    /// Allocates the memory that operations of this group access fastest: shared among the
    /// processes of a node on "cpu", registered on "nccl". Zeroed, aligned to 4 KiB. Every rank
    /// calls it with the same size, in the same order among its collectives. Blocks until all ranks
    /// have called it. Operations accept ordinary memory too. Buffer states when the memory may be
    /// freed. Throws Error `system` if no memory is left.
    [[nodiscard]] virtual Buffer allocate(std::size_t bytes);

    /// "nccl": operations issued after this call go into `stream`. Before the first call they go
    /// into the group's own stream, which at each operation first waits for CUDA's default stream
    /// of this thread. `stream` may be under capture into a CUDA graph: the Work of a captured
    /// operation is complete at once, and the group's next operation reports errors of a replay. No
    /// effect on "cpu".
    virtual void use_stream(Stream stream);
    /// The stream of the last call of `use_stream`; empty if the group uses its own stream.
    [[nodiscard]] virtual std::optional<Stream> current_stream() const;
    /// Back to the group's own stream.
    virtual void use_own_stream();

    /// Ends the group: blocked and future operations on this rank fail with `fenced` in well under
    /// a second, and peers see that this rank is gone. Any thread, any number of times; does not
    /// block.
    virtual void abort(std::string_view reason) noexcept = 0;

   protected:
    friend class OperationBatch;
    friend class OwnedGroup;
    /// Checks the request and issues it. Every operation above comes here.
    [[nodiscard]] virtual Work issue(const OperationRequest& request) = 0;
    /// See OperationBatch.
    virtual void begin_batch() {}
    virtual void end_batch() {}

   private:
    friend struct GroupOrders;
    std::shared_ptr<LearnedOrders> learned_orders_;  // Of an ElasticLoop.
};

/// Starts operations of one rank together, as ncclGroupStart and ncclGroupEnd do. On "nccl", a send
/// and a recv that must progress at the same time need a batch; many small operations are cheaper
/// in one. On "cpu" operations always progress together, and a batch has no effect.
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
    /// Aborts the group if `start` was not called.
    ~OperationBatch();
    OperationBatch(const OperationBatch&) = delete;
    OperationBatch& operator=(const OperationBatch&) = delete;

    /// Starts the operations issued since the constructor. Do not wait for them before. Throws like
    /// the operations.
    void start();

   private:
    ProcessGroup* group_;
};

}  // namespace regroup
