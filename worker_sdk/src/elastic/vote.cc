// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/vote.h"

#include <regroup/error.h>

#include <array>
#include <span>
#include <string>

namespace regroup::elastic {
namespace {

/// A number whose largest and smallest value over the ranks come out of one maximum.
struct Extent {
    std::int64_t most = 0;
    std::int64_t least_negated = 0;

    explicit Extent(std::uint64_t value)
        : most(static_cast<std::int64_t>(value)), least_negated(-most) {}
    [[nodiscard]] bool agreed() const noexcept { return most == -least_negated; }
    [[nodiscard]] std::string text() const {
        return std::to_string(-least_negated) + " and " + std::to_string(most);
    }
};

struct Words {
    Extent step;
    Extent samples;
    Extent finishes;
    Extent digest;
    std::int64_t pauses = 0;
    std::int64_t leaves = 0;
};
constexpr std::size_t kWords = sizeof(Words) / sizeof(std::int64_t);

[[noreturn]] void refuse(const Ballot& mine, const std::string& what) {
    throw Error(Errc::invalid_argument,
                "step " + std::to_string(mine.step) + ": the ranks are out of step: " + what);
}

}  // namespace

VoteResult vote(ProcessGroup& group, const Ballot& ballot) {
    Words words{.step = Extent(ballot.step),
                .samples = Extent(ballot.samples),
                .finishes = Extent(ballot.finishes ? 1 : 0),
                .digest = Extent(ballot.digest >> 1U),  // Its negative must exist, too.
                .pauses = ballot.pauses ? 1 : 0,
                .leaves = ballot.leaves ? 1 : 0};
    const std::span<std::int64_t, kWords> numbers(reinterpret_cast<std::int64_t*>(&words), kWords);
    group.all_reduce(TensorView(std::span<std::int64_t>(numbers)), ReduceOp::max).wait();
    if (!words.step.agreed()) {
        refuse(ballot, "they have committed between " + words.step.text() + " steps");
    }
    if (!words.finishes.agreed()) {
        refuse(ballot, "some call finish() and others commit()");
    }
    if (!words.samples.agreed()) {
        refuse(ballot, "they took between " + words.samples.text() + " samples");
    }
    return {
        .pauses = words.pauses != 0, .leaves = words.leaves != 0, .agrees = words.digest.agreed()};
}

}  // namespace regroup::elastic
