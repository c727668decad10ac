// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>
#include <regroup/process_group.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/cpu/reduce.h"
#include "worker_sdk/src/group/request.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::testing {

/// State that the ranks of a fake world share. The last rank that issues a collective carries it
/// out, in memory and in rank order. Until then it is in flight on the other ranks.
class FakeWorld {
   public:
    explicit FakeWorld(std::uint32_t world_size, Device device = {})
        : world_size_(world_size), device_(device) {}

    [[nodiscard]] std::uint32_t world_size() const noexcept { return world_size_; }
    /// Where the groups say that buffers lie. They are in host memory in any case.
    [[nodiscard]] const Device& device() const noexcept { return device_; }

    /// From number `sequence` on, counted from 0, the collectives of every rank fail.
    void fail_from(std::uint64_t sequence) {
        const std::lock_guard lock(mutex_);
        failing_from_ = sequence;
    }

    using Kind = OperationKind;

    /// One rank's call of a collective.
    struct Call {
        Kind kind = Kind::barrier;
        Reduction reduction = ReduceOp::sum;
        std::uint32_t root = 0;
        ConstTensorView input;
        TensorView output;
        std::shared_ptr<Work::State> state = std::make_shared<Work::State>();
    };

    void issue(std::uint32_t rank, std::uint64_t sequence, const Call& call) {
        const std::lock_guard lock(mutex_);
        if (aborted_ || sequence >= failing_from_) {
            fail(call);
            return;
        }
        std::map<std::uint32_t, Call>& calls = in_flight_[sequence];
        ENSURE(calls.emplace(rank, call).second);
        if (calls.size() == world_size_) {
            carry_out(calls);
            in_flight_.erase(sequence);
        }
    }

    void abort() {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        for (const auto& [sequence, calls] : in_flight_) {
            for (const auto& [rank, call] : calls) {
                fail(call);
            }
        }
        in_flight_.clear();
    }

   private:
    void fail(const Call& call) const {
        if (aborted_) {
            call.state->fail(Errc::fenced, "the fake group was aborted");
        } else {
            call.state->fail(Errc::disconnected, "a fake peer closed the connection");
        }
    }

    static void carry_out(const std::map<std::uint32_t, Call>& calls) {
        const Call& first = calls.begin()->second;
        std::vector<std::string> inputs;  // by rank
        for (const auto& [rank, call] : calls) {
            ENSURE(call.kind == first.kind && call.reduction.op == first.reduction.op &&
                   call.root == first.root);
            std::string input(static_cast<const char*>(call.input.data), call.input.bytes());
            if (call.reduction.factor != 1.0) {
                cpu::scale(call.input.dtype, input.data(), input.data(), call.input.count,
                           call.reduction.factor);
            }
            inputs.push_back(std::move(input));
        }
        const std::string whole = result_of(first, inputs);
        for (const auto& [rank, call] : calls) {
            const std::string mine = share_of(rank, call, inputs, whole);
            ENSURE(call.output.bytes() == mine.size());
            if (!mine.empty()) {
                std::memcpy(call.output.data, mine.data(), mine.size());
            }
            call.state->succeed();
        }
    }

    /// The combined result of the inputs of all ranks.
    static std::string result_of(const Call& call, const std::vector<std::string>& inputs) {
        switch (call.kind) {
            case Kind::all_reduce:
            case Kind::reduce:
            case Kind::reduce_scatter:
                return reduce(inputs, call);
            case Kind::broadcast:
            case Kind::scatter:
                return inputs[call.root];
            case Kind::all_gather:
            case Kind::gather:
                return std::accumulate(inputs.begin(), inputs.end(), std::string());
            default:
                break;
        }
        return {};
    }

    /// The part of the result for one rank.
    static std::string share_of(std::uint32_t rank, const Call& call,
                                const std::vector<std::string>& inputs, const std::string& whole) {
        const std::size_t rows = inputs.size();
        std::string share;
        switch (call.kind) {
            case Kind::reduce:
            case Kind::gather:
                return rank == call.root ? whole : share;
            case Kind::reduce_scatter:
            case Kind::scatter:
                return whole.substr(rank * (whole.size() / rows), whole.size() / rows);
            case Kind::all_to_all:
                for (const std::string& input : inputs) {
                    share += input.substr(rank * (input.size() / rows), input.size() / rows);
                }
                return share;
            default:
                return whole;
        }
        return whole;
    }

    static std::string reduce(const std::vector<std::string>& inputs, const Call& call) {
        std::vector<const std::byte*> sources;
        for (const std::string& input : inputs) {
            ENSURE(input.size() == inputs.front().size());
            sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
        }
        std::string result(inputs.front().size(), '\0');
        const bool average = call.reduction.op == ReduceOp::avg;
        cpu::reduce_all(call.reduction.op, call.input.dtype, result.data(), sources,
                        call.input.count, average ? static_cast<std::uint32_t>(inputs.size()) : 1);
        return result;
    }

    const std::uint32_t world_size_;
    const Device device_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::map<std::uint32_t, Call>> in_flight_;  // by sequence, by rank
    std::uint64_t failing_from_ = UINT64_MAX;
    bool aborted_ = false;
};

/// One rank of a FakeWorld. All collectives, of every dtype; no messages and no sub-groups.
class FakeProcessGroup : public ProcessGroup {
   public:
    FakeProcessGroup(FakeWorld& world, std::uint32_t rank) : world_(world), rank_(rank) {}

    [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return world_.world_size(); }
    [[nodiscard]] std::string_view backend() const noexcept override { return "fake"; }
    [[nodiscard]] Device device() const noexcept override { return world_.device(); }
    [[nodiscard]] Buffer allocate(std::size_t bytes) override {
        Buffer buffer = ProcessGroup::allocate(bytes);
        buffer.device = device();
        return buffer;
    }

    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>&,
                                                          std::string_view) override {
        throw Error(Errc::invalid_argument, "the fake group has no sub-groups");
    }
    void abort(std::string_view reason) noexcept override {
        abort_reason_ = reason;
        world_.abort();
    }

    /// The counts of all all_reduce calls so far, in order of issue.
    [[nodiscard]] const std::vector<std::size_t>& reduced_counts() const { return reduced_counts_; }
    /// How many operations each batch has had so far.
    [[nodiscard]] const std::vector<std::size_t>& batch_sizes() const { return batch_sizes_; }
    /// Collectives issued so far.
    [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
    [[nodiscard]] const std::optional<std::string>& abort_reason() const { return abort_reason_; }

   protected:
    Work issue(const OperationRequest& request) override {
        if (is_message(request.kind)) {
            return failed_work(Errc::invalid_argument, "the fake group has no messages");
        }
        if (in_batch_) {
            ++batch_sizes_.back();
        }
        if (request.kind == OperationKind::all_reduce) {
            reduced_counts_.push_back(request.output.count);
        }
        const bool is_root = rank_ == request.peer;
        const bool gives = request.kind != OperationKind::scatter || is_root;
        const bool gets =
            (request.kind != OperationKind::reduce && request.kind != OperationKind::gather) ||
            is_root;
        FakeWorld::Call call{.kind = request.kind,
                             .reduction = request.reduction,
                             .root = request.peer,
                             .input = gives ? request.input : ConstTensorView(),
                             .output = gets ? request.output : TensorView()};
        world_.issue(rank_, sequence_++, call);
        return Work(std::move(call.state));
    }
    void begin_batch() override {
        ENSURE(!in_batch_);
        in_batch_ = true;
        batch_sizes_.push_back(0);
    }
    void end_batch() override { in_batch_ = false; }

   private:
    FakeWorld& world_;
    const std::uint32_t rank_;
    std::uint64_t sequence_ = 0;
    std::vector<std::size_t> reduced_counts_;
    std::vector<std::size_t> batch_sizes_;
    bool in_batch_ = false;
    std::optional<std::string> abort_reason_;
};

/// Runs `body` once per rank, each in its own thread, and waits for all.
inline void run_ranks(FakeWorld& world, const std::function<void(FakeProcessGroup&)>& body) {
    std::vector<std::jthread> threads;
    threads.reserve(world.world_size());
    for (std::uint32_t rank = 0; rank < world.world_size(); ++rank) {
        threads.emplace_back([&world, &body, rank] {
            FakeProcessGroup group(world, rank);
            body(group);
        });
    }
}

}  // namespace regroup::testing

namespace regroup {

using testing::FakeProcessGroup;
using testing::FakeWorld;
using testing::run_ranks;

}  // namespace regroup
