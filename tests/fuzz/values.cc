// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/values.h"

#include "rendezvous/base/exit_code.h"
#include "rendezvous/protocol/codec.h"

namespace regroup::fuzz {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.

namespace {

constexpr std::uint32_t kSmallMax = std::uint32_t{1} << 31U;

template <class Number>
Number small(Input& input, std::uint64_t max = std::numeric_limits<Number>::max()) {
    return static_cast<Number>(input.number(max));
}

template <class Message>
std::optional<Message> through(const Message& message,
                               Result<Message> (*decode)(std::string_view)) {
    Result<Message> decoded = decode(protocol::encode(message));
    return decoded ? std::optional(*std::move(decoded)) : std::nullopt;
}

Verdict make_verdict(Input& input) {
    Verdict verdict;
    verdict.outcome = input.one_of({Outcome::succeeded, Outcome::failed, Outcome::stopped});
    verdict.exit_code = input.chance(128) ? kExitRequeue : small<int>(input, 255);
    verdict.reason = JobEnding(input.text(8));
    verdict.restarts = small<std::uint32_t>(input);
    if (input.chance(64)) {
        verdict.failure = make_failure(input);
    }
    return verdict;
}

Incident make_incident(Input& input, const Near& near) {
    Incident incident;
    incident.round = make_round(input, near.round);
    incident.next_round = make_round(input, near.round);
    incident.planned = input.chance(64);
    incident.cut_short = input.chance(64);
    incident.detect = make_duration(input);
    incident.join = make_duration(input);
    incident.first_step = make_duration(input);
    incident.step = make_step(input, near.step);
    incident.lost_steps = input.number(kNumberMax);
    return incident;
}

Assignment make_assignment(Input& input, const Near& near, std::uint16_t own_port) {
    Assignment assignment;
    assignment.round = make_round(input, RoundId{number(near.round) + 1});
    assignment.group_rank = small<std::uint32_t>(input);
    assignment.group_world_size = small<std::uint32_t>(input);
    assignment.world_size = small<std::uint32_t>(input);
    assignment.first_rank = static_cast<std::uint32_t>(input.number(assignment.world_size));
    assignment.master_addr = "10.0.0.1";
    assignment.master_port =
        input.chance(64) ? static_cast<std::uint16_t>(input.number(65535)) : own_port;
    assignment.restart_count = small<std::uint32_t>(input);
    assignment.member_serves = input.chance(64);
    return assignment;
}

}  // namespace

std::optional<FromAgent> received(const FromAgent& message) {
    return through(message, protocol::decode_from_agent);
}
std::optional<FromDaemon> received(const FromDaemon& message) {
    return through(message, protocol::decode_from_daemon);
}

std::string node_name(std::uint64_t number) {
    return {static_cast<char>('a' + number % 6)};
}

RoundId make_round(Input& input, RoundId near) {
    const std::uint8_t kind = input.byte();
    if (kind < 192) {
        return near;
    }
    if (kind < 224) {
        return RoundId{std::min(number(near) + kind % 4, kNumberMax)};
    }
    if (kind < 248) {
        return RoundId{number(near) - std::min<std::uint64_t>(kind % 4, number(near))};
    }
    return RoundId{input.number(kNumberMax)};
}

std::uint64_t make_step(Input& input, std::uint64_t near) {
    const std::uint8_t kind = input.byte();
    return kind < 224 ? std::min(near + kind % 8, kNumberMax) : input.number(kNumberMax);
}

Duration make_duration(Input& input) {
    constexpr std::chrono::milliseconds kMonth = std::chrono::hours(24 * 30);
    const std::uint8_t kind = input.byte();
    return std::chrono::milliseconds(
        kind < 224 ? std::uint64_t{kind} * kind
                   : input.number(static_cast<std::uint64_t>(kMonth.count())));
}

WorkerFailure make_failure(Input& input) {
    WorkerFailure failure;
    failure.kind = input.one_of({FailureKind::failure, FailureKind::hang, FailureKind::user_error,
                                 FailureKind::retry, FailureKind::bad_node});
    failure.rank = small<std::uint32_t>(input);
    failure.local_rank = small<std::uint32_t>(input);
    failure.node = node_name(input.byte());
    failure.exit_code = small<int>(input, 255);
    failure.signal = small<int>(input, 127);
    failure.announced = input.chance(64);
    failure.unfinished = input.chance(64);
    failure.by_silence = input.chance(64);
    failure.may_start_later = failure.by_silence;
    if (failure.signal == 0 && failure.exit_code == 0) {
        failure.exit_code = 1;
    }
    failure.last_output = input.text(8);
    return failure;
}

JobPolicy make_policy(Input& input) {
    JobPolicy policy;
    policy.nodes_min = 1 + static_cast<std::uint32_t>(input.below(4));
    policy.nodes_max = policy.nodes_min + static_cast<std::uint32_t>(input.below(3));
    policy.restarts_max = small<std::uint32_t>(input);
    policy.standbys_max = small<std::uint32_t>(input);
    if (input.chance(128)) {
        policy.last_call = make_duration(input);
        policy.heartbeat_timeout = make_duration(input);
        policy.shutdown_timeout = make_duration(input);
        policy.grow_after = make_duration(input);
        policy.regroup_window = make_duration(input);
        policy.prepare_timeout = make_duration(input);
        policy.finish_timeout = make_duration(input);
        policy.budgets.delay = make_duration(input);
        policy.budgets.node_failures_window = make_duration(input);
    }
    if (input.chance(128)) {
        policy.budgets.hangs = small<std::uint32_t>(input);
        policy.budgets.losses = small<std::uint32_t>(input);
        policy.budgets.refill_steps = input.number(kNumberMax);
        policy.budgets.no_progress_max = small<std::uint32_t>(input);
        policy.budgets.node_failures_max = small<std::uint32_t>(input);
        policy.on_exit[1 + static_cast<int>(input.below(3))] = input.one_of(
            {Reaction::restart, Reaction::fail, Reaction::retry, Reaction::replace_node});
        policy.rank_order = input.one_of(
            {RankOrder::automatic, RankOrder::joined, RankOrder::topology, RankOrder::file});
    }
    return policy;
}

Offer make_offer(Input& input, const std::string& name) {
    Offer offer;
    offer.name = input.chance(32) ? "host" : name;
    offer.address = "10.0.0.1";
    offer.address_is_explicit = true;
    const std::uint8_t flags = input.byte();
    offer.workers = flags < 160 ? 1 + flags % 4 : small<std::uint32_t>(input, 1U << 20U);
    offer.hosts_rendezvous = (flags & 1U) != 0;
    offer.ends_with_daemon = (flags & 3U) == 3;
    offer.alone = (flags & 28U) == 28;
    if (input.chance(32)) {
        offer.role = "evaluator";
    }
    if (input.chance(32)) {
        offer.slot = small<std::uint32_t>(input);
    }
    if (input.chance(64)) {
        offer.join_timeout = make_duration(input);
    }
    if (input.chance(64)) {
        offer.rank_key = "s" + std::to_string(input.below(2)) + "." + name;
    }
    return offer;
}

NodeReport make_report(Input& input, const Near& near, NodeReport last) {
    const std::uint64_t what = input.byte() | std::uint64_t{input.byte()} << 8U;
    const auto changes = [&](unsigned bit) { return (what >> bit & 1U) != 0; };
    if (changes(0)) {
        const RoundId before = std::exchange(last.round, make_round(input, near.round));
        if (before != last.round) {
            last.failure.reset();
            last.hang.reset();
            last.broken_links.clear();
            last.positions.clear();
        }
    }
    if (changes(1)) {
        last.state = input.one_of(
            {NodeState::stopped, NodeState::running, NodeState::stopping, NodeState::finished});
    }
    if (changes(2)) {
        last.elastic = input.chance(192);
    }
    if (changes(3)) {
        last.step = make_step(input, std::max(last.step, near.step));
    }
    if (changes(4)) {
        last.held_step = input.chance(64) ? make_step(input, last.held_step) : last.step;
    }
    if (changes(5)) {
        last.ended_step = make_step(input, last.step);
    }
    if (changes(6) && changes(15)) {
        last.failure = make_failure(input);
    }
    if (changes(7) && changes(15)) {
        last.hang.reset();
        if (input.chance(192)) {
            last.hang =
                Hang{small<std::uint32_t>(input), "", input.chance(128), make_duration(input)};
        }
    }
    if (changes(8)) {
        last.alarm = input.chance(192) ? near.alarm : small<std::uint32_t>(input);
        last.positions.clear();
        for (std::uint64_t count = input.below(4); count > 0; --count) {
            last.positions.push_back({small<std::uint32_t>(input), make_step(input, last.step),
                                      input.number(kNumberMax), input.chance(128), "",
                                      input.chance(32), make_duration(input)});
        }
    }
    if (changes(9)) {
        last.finished =
            RankSet({small<std::uint32_t>(input), static_cast<std::uint32_t>(input.below(4))});
        last.broken_links.clear();
        for (std::uint64_t count = input.below(3); count > 0; --count) {
            last.broken_links.push_back(
                {small<std::uint32_t>(input), small<std::uint32_t>(input), "closed it"});
        }
    }
    if (changes(10)) {
        last.at_work = make_duration(input);
    }
    if (changes(11)) {
        last.ended_ago = make_duration(input);
    }
    if (changes(12)) {
        last.store_spent = input.chance(128);
    }
    if (changes(13) && changes(15)) {
        last.draining = input.text(4);
    }
    if (changes(14)) {
        last.store_port = static_cast<std::uint16_t>(2000 + input.below(4));
    }
    return last;
}

Resumed make_resumed(Input& input, const Near& near) {
    Resumed resumed;
    resumed.round = make_round(input, near.round);
    resumed.step = make_step(input, near.step);
    resumed.communicator = make_duration(input);
    resumed.state = make_duration(input);
    resumed.first_step = make_duration(input);
    resumed.ago = make_duration(input);
    return resumed;
}

FromDaemon make_order(Input& input, const Near& near, std::uint16_t own_port) {
    switch (input.below(14)) {
        case 0:
        case 1:
            return Assign{make_assignment(input, near, own_port)};
        case 2:
            return Stop{make_round(input, near.round), {}, input.chance(128)};
        case 3: {
            const std::uint8_t flags = input.byte();
            return Prepare{make_round(input, near.round),
                           (flags & 1U) != 0,
                           {},
                           (flags & 6U) == 6,
                           (flags & 24U) == 24};
        }
        case 4:
            return SaveStacks{make_round(input, near.round),
                              near.alarm + small<std::uint32_t>(input, kSmallMax), ""};
        case 5: {
            EndWorker order;
            order.round = make_round(input, near.round);
            order.rank = small<std::uint32_t>(input);
            order.by_silence = input.chance(64);
            return order;
        }
        case 6:
            return Fenced{};
        case 7:
            return Dismissed{make_round(input, near.round)};
        case 8:
            return Alive{make_round(input, near.round)};
        case 9: {
            Waiting waiting;
            const std::uint8_t flags = input.byte();
            waiting.joined = {"a", "b"};
            waiting.standby = (flags & 1U) != 0;
            waiting.prestart = (flags & 2U) != 0;
            return waiting;
        }
        case 10:
            if (input.chance(192)) {
                return Alive{near.round};
            }
            return Refused{input.one_of({Errc::invalid_argument, Errc::overloaded, Errc::closed}),
                           {}};
        case 11:
            return Recovered{make_incident(input, near)};
        case 12:
            return Closed{make_verdict(input)};
        default:
            if (input.chance(128)) {
                return Operated{input.chance(128), input.text(8)};
            }
            return Elsewhere{"10.0.0.9:29400"};
    }
}

NodeReport obeyed(const FromDaemon& word, NodeReport last) {
    const auto enter = [&](RoundId round, NodeState state) {
        NodeReport next;
        next.round = round;
        next.state = state;
        next.store_port = last.store_port;
        next.elastic = last.elastic;
        next.step = last.step;
        next.held_step = last.held_step;
        return next;
    };
    if (const auto* assign = std::get_if<Assign>(&word)) {
        return enter(assign->assignment.round, NodeState::running);
    }
    if (const auto* stop = std::get_if<Stop>(&word)) {
        if (stop->round > last.round) {
            return enter(stop->round, NodeState::stopped);
        }
        last.state = NodeState::stopped;
    } else if (const auto* prepare = std::get_if<Prepare>(&word)) {
        last.state = NodeState::stopped;
        last.held_step = prepare->leave ? 0 : last.held_step;
    } else if (const auto* save = std::get_if<SaveStacks>(&word)) {
        last.alarm = save->alarm;
        last.positions = {{0, last.step, 1, false, ""}, {1, last.step, 2, true, ""}};
    } else if (const auto* end = std::get_if<EndWorker>(&word)) {
        WorkerFailure failure;
        failure.kind = FailureKind::hang;
        failure.rank = end->rank;
        failure.signal = 9;
        last.failure = failure;
        last.state = NodeState::stopped;
    } else if (std::holds_alternative<Fenced>(word)) {
        last.state = NodeState::stopped;
    }
    return last;
}

}  // namespace regroup::fuzz
