// SPDX-License-Identifier: Apache-2.0
//
// Messages of agents and daemons, made of an input's bytes. Each passes through the codec, so that
// a target gets what a receiver can get, and nothing else.
#pragma once

#include <optional>

#include "rendezvous/core/messages.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz {

/// The largest number that a message can carry.
inline constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 53U;

/// `message` as its receiver decodes it; nullopt if the receiver refuses it. The fields for people
/// may be anything; names must be names.
[[nodiscard]] std::optional<rendezvous::FromAgent> received(const rendezvous::FromAgent& message);
[[nodiscard]] std::optional<rendezvous::FromDaemon> received(const rendezvous::FromDaemon& message);

/// Names that a message may plausibly have.
struct Near {
    rendezvous::RoundId round = rendezvous::RoundId::none;
    std::uint64_t step = 0;
    std::uint32_t alarm = 0;
};

/// "a" to "f".
[[nodiscard]] std::string node_name(std::uint64_t number);
/// Usually `near`, or a neighbour.
[[nodiscard]] rendezvous::RoundId make_round(Input& input, rendezvous::RoundId near);
/// Usually a little more than `near`.
[[nodiscard]] std::uint64_t make_step(Input& input, std::uint64_t near);
/// Up to thirty days, the longest wait.
[[nodiscard]] Duration make_duration(Input& input);
[[nodiscard]] rendezvous::WorkerFailure make_failure(Input& input);
[[nodiscard]] rendezvous::JobPolicy make_policy(Input& input);
[[nodiscard]] rendezvous::Offer make_offer(Input& input, const std::string& name);
/// `last` with some fields replaced.
[[nodiscard]] rendezvous::NodeReport make_report(Input& input, const Near& near,
                                                 rendezvous::NodeReport last);
[[nodiscard]] rendezvous::Resumed make_resumed(Input& input, const Near& near);
/// `own_port`: that of the receiver's store.
[[nodiscard]] rendezvous::FromDaemon make_order(Input& input, const Near& near,
                                                std::uint16_t own_port);

/// The report of a node that obeys its last message; `last` if the message asks for nothing.
[[nodiscard]] rendezvous::NodeReport obeyed(const rendezvous::FromDaemon& word,
                                            rendezvous::NodeReport last);

}  // namespace regroup::fuzz
