// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/work.h"

namespace regroup::testing {

/// What the ranks of a fake world share. A collective is carried out, in memory and in the order of
/// ranks, by the last rank that issues it; until then it is in flight on the others.
class FakeWorld {
   public:
    explicit FakeWorld(std::uint32_t world_size) : world_size_(world_size) {}

    [[nodiscard]] std::uint32_t world_size() const noexcept { return world_size_; }

    /// Every rank's collective number `sequence`, counted from 0, fails instead of being carried
    /// out, and so do all later ones.
    void fail_from(std::uint64_t sequence) {
        const std::lock_guard lock(mutex_);
        failing_from_ = sequence;
    }

    enum class Kind : std::uint8_t { all_reduce, broadcast, all_gather, barrier };

    /// One rank's call of a collective.
    struct Call {
        Kind kind = Kind::barrier;
        ReduceOp op = ReduceOp::sum;
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
        std::vector<std::string> inputs;
        for (const auto& [rank, call] : calls) {
            ENSURE(call.kind == first.kind && call.op == first.op && call.root == first.root);
            ENSURE(call.input.bytes() == first.input.bytes());
            inputs.emplace_back(static_cast<const char*>(call.input.data), call.input.bytes());
        }
        std::string result;
        switch (first.kind) {
            case Kind::all_reduce:
                result = reduce(inputs, first);
                break;
            case Kind::broadcast:
                result = inputs[first.root];
                break;
            case Kind::all_gather:
                for (const std::string& input : inputs) {
                    result += input;
                }
                break;
            case Kind::barrier:
                break;
        }
        for (const auto& [rank, call] : calls) {
            ENSURE(call.output.bytes() == result.size());
            if (!result.empty()) {
                std::memcpy(call.output.data, result.data(), result.size());
            }
            call.state->succeed();
        }
    }

    static std::string reduce(const std::vector<std::string>& inputs, const Call& call) {
        switch (call.input.dtype) {
            case DType::float32:
                return sum<float>(inputs, call.op);
            case DType::float64:
                return sum<double>(inputs, call.op);
            case DType::float16:
                return sum<float16>(inputs, call.op);
            case DType::bfloat16:
                return sum<bfloat16>(inputs, call.op);
            case DType::uint8:
                return maximum(inputs, call.op);
            default:
                ENSURE(false);
                return {};
        }
    }

    // In the order of ranks, rounding after each addition, as a group does.
    template <class T>
    static std::string sum(const std::vector<std::string>& inputs, ReduceOp op) {
        using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
        ENSURE(op == ReduceOp::sum || op == ReduceOp::avg);
        std::string result = inputs.front();
        for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
            T total(Wide{0});
            for (const std::string& input : inputs) {
                T value{};
                std::memcpy(&value, input.data() + at, sizeof value);
                total = T(static_cast<Wide>(total) + static_cast<Wide>(value));
            }
            if (op == ReduceOp::avg) {
                total = T(static_cast<Wide>(total) / static_cast<Wide>(inputs.size()));
            }
            std::memcpy(result.data() + at, &total, sizeof total);
        }
        return result;
    }

    static std::string maximum(const std::vector<std::string>& inputs, ReduceOp op) {
        ENSURE(op == ReduceOp::max);
        std::string result = inputs.front();
        for (const std::string& input : inputs) {
            for (std::size_t at = 0; at < result.size(); ++at) {
                result[at] = static_cast<char>(std::max(static_cast<unsigned char>(result[at]),
                                                        static_cast<unsigned char>(input[at])));
            }
        }
        return result;
    }

    const std::uint32_t world_size_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::map<std::uint32_t, Call>> in_flight_;  // by sequence, by rank
    std::uint64_t failing_from_ = UINT64_MAX;
    bool aborted_ = false;
};

/// One rank of a FakeWorld. All-reduce adds floating-point values, or takes the maximum of uint8;
/// no messages.
class FakeProcessGroup : public ProcessGroup {
   public:
    FakeProcessGroup(FakeWorld& world, std::uint32_t rank) : world_(world), rank_(rank) {}

    [[nodiscard]] std::uint32_t rank() const noexcept override { return rank_; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return world_.world_size(); }
    [[nodiscard]] std::string_view backend() const noexcept override { return "fake"; }

    [[nodiscard]] Work all_reduce(TensorView buffer, Reduction reduction) override {
        reduced_counts_.push_back(buffer.count);
        return issue({.kind = FakeWorld::Kind::all_reduce,
                      .op = reduction.op,
                      .input = buffer,
                      .output = buffer});
    }
    [[nodiscard]] Work broadcast(TensorView buffer, std::uint32_t root) override {
        return issue(
            {.kind = FakeWorld::Kind::broadcast, .root = root, .input = buffer, .output = buffer});
    }
    [[nodiscard]] Work all_gather(ConstTensorView input, TensorView output) override {
        return issue({.kind = FakeWorld::Kind::all_gather, .input = input, .output = output});
    }
    [[nodiscard]] Work barrier() override { return issue({}); }
    [[nodiscard]] Work send(ConstTensorView, std::uint32_t, std::uint32_t) override {
        return failed_work(Errc::invalid_argument, "the fake group has no messages");
    }
    [[nodiscard]] Work recv(TensorView, std::uint32_t, std::uint32_t) override {
        return failed_work(Errc::invalid_argument, "the fake group has no messages");
    }
    void abort(std::string_view reason) noexcept override {
        abort_reason_ = reason;
        world_.abort();
    }

    /// The counts of all all_reduce calls so far, in order of issue.
    [[nodiscard]] const std::vector<std::size_t>& reduced_counts() const { return reduced_counts_; }
    /// Collectives issued so far.
    [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
    [[nodiscard]] const std::optional<std::string>& abort_reason() const { return abort_reason_; }

   private:
    Work issue(FakeWorld::Call call) {
        world_.issue(rank_, sequence_++, call);
        return Work(std::move(call.state));
    }

    FakeWorld& world_;
    const std::uint32_t rank_;
    std::uint64_t sequence_ = 0;
    std::vector<std::size_t> reduced_counts_;
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
