// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/error.h>
#include <regroup/tensor_view.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace regroup {

enum class ReduceOp : std::uint8_t { sum, product, min, max, avg };
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;

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

   private:
    std::shared_ptr<State> state_;
};

struct ProcessGroupOptions {
    /// Limit for each operation and for forming the group. Includes waiting for slow peers. The
    /// time of a collective begins with its turn, that of a message when it is issued.
    std::chrono::nanoseconds timeout = std::chrono::minutes(30);
    /// Names the group in the store and in errors. Groups formed at the same time need different
    /// names.
    std::string name = "default";
};

/// The ranks of one round, and the collectives and messages among them.
///
/// Every rank issues the same collectives in the same order, and they are carried out in that
/// order; one that is issued without waiting may overlap with the caller's own computation.
/// Messages are carried out beside them: neither waits for the other, so that a send behind a
/// collective reaches a peer that receives it first. One thread issues operations; any thread may
/// wait or abort.
///
/// After the first error every further operation fails with the same error: the group is finished,
/// leave the round. A call that throws (a wrong argument, or `overloaded` with 65,536 operations in
/// flight) has issued nothing and costs the group nothing.
///
/// Destroying the group leaves it in order if nothing is in flight; otherwise it is abort(). Either
/// waits for nobody, and others that still need this rank see it gone.
class ProcessGroup {
   public:
    virtual ~ProcessGroup() = default;
    ProcessGroup() = default;
    ProcessGroup(const ProcessGroup&) = delete;
    ProcessGroup& operator=(const ProcessGroup&) = delete;

    /// Forms the group of all ranks of `context` over `backend`: "cpu" ("gloo" is accepted as its
    /// other name). Blocks until every rank has come. Throws Error: `deadline_exceeded` naming the
    /// ranks that never came, `invalid_argument` for a back end that is unknown or not built in.
    [[nodiscard]] static std::unique_ptr<ProcessGroup> create(
        std::string_view backend, const Context& context, const ProcessGroupOptions& options = {});

    [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t world_size() const noexcept = 0;
    [[nodiscard]] virtual std::string_view backend() const noexcept = 0;

    // All buffers: any count, zero included; the same count and dtype on every rank. Otherwise an
    // Error `invalid_argument` that names both ranks' values where the back end can tell.

    /// In place: every rank ends up with the reduction over all ranks, bit-identical on all.
    /// Integers wrap around in their own width; `avg` divides their sum, truncating towards zero.
    [[nodiscard]] virtual Work all_reduce(TensorView buffer, ReduceOp op) = 0;
    /// In place: every rank ends up with `root`'s values.
    [[nodiscard]] virtual Work broadcast(TensorView buffer, std::uint32_t root) = 0;
    /// `output` = [world_size, input.count], row i from rank i. The input may be its own row.
    [[nodiscard]] virtual Work all_gather(ConstTensorView input, TensorView output) = 0;
    /// Complete when every rank has entered.
    [[nodiscard]] virtual Work barrier() = 0;
    /// To one peer; matched with the recv of equal tag there, in order of issue per (peer, tag).
    /// Complete when the buffer may be used again, which says nothing about the peer. A message
    /// that comes before its recv is kept for it, up to 64 MiB from one peer; beyond that the peer
    /// waits, and with it all its later messages to this rank.
    [[nodiscard]] virtual Work send(ConstTensorView buffer, std::uint32_t peer,
                                    std::uint32_t tag = 0) = 0;
    [[nodiscard]] virtual Work recv(TensorView buffer, std::uint32_t peer,
                                    std::uint32_t tag = 0) = 0;

    /// Gives the group up: blocked and future operations on this rank end as `fenced` in well under
    /// a second, and peers see this rank gone. Any thread, any number of times; waits for nobody.
    virtual void abort(std::string_view reason) noexcept = 0;
};

}  // namespace regroup
