// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/node_messenger.h"

#include <regroup/error.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace regroup::cpu {
NodeMessenger::NodeMessenger(Mesh& mesh, Listener listener)
    : mesh_(mesh), listener_(std::move(listener)) {}

void NodeMessenger::open(std::shared_ptr<const NodeMemory> memory, std::uint32_t place,
                         std::vector<Neighbour> neighbours, Doorbell doorbell) {
    const std::lock_guard lock(mutex_);
    memory_ = std::move(memory);
    board_ = &memory_->board(place);
    doorbell_ = std::move(doorbell);
    spin_policy_ = SpinPolicy(memory_->crowded());
    const std::string& own_name = mesh_.peer(mesh_.position().rank).name;
    for (Neighbour& neighbour : neighbours) {
        const std::uint32_t rank = neighbour.rank;
        const RingStream stream(memory_->ring(place, neighbour.place),
                                memory_->ring(neighbour.place, place));
        lines_.try_emplace(
            rank, Line{.neighbour = std::move(neighbour),
                       .conversation = {own_name, mesh_.peer(rank).name, listener_.complete},
                       .stream = stream});
    }
}

bool NodeMessenger::post(Operation& operation) {
    const std::lock_guard lock(mutex_);
    if (stopped_) {
        return false;
    }
    Line& line = lines_.at(operation.signature.peer);
    line.conversation.post(std::move(operation));
    guard([&] {
        move(line);
        update_attention();
    });
    if (!line.conversation.is_idle()) {
        helper_knows_ = false;
    }
    if (line.conversation.next_deadline() < wakes_at_) {
        wakes_at_ = line.conversation.next_deadline();
        doorbell_->ring();
    }
    return true;
}

void NodeMessenger::help(const Work::State& state) {
    if (spin(state)) {
        return;
    }
    const std::lock_guard lock(mutex_);
    if (!helper_knows_) {
        doorbell_->ring();
    }
}

/// Moves bytes until the operation is done, or none have moved for a moment.
bool NodeMessenger::spin(const Work::State& state) {
    std::unique_lock lock(mutex_);
    if (!spin_policy_.is_worth_it()) {
        return false;
    }
    ++spinners_;
    guard([this] { update_attention(); });
    Instant idle_since = SteadyClock().now();
    Duration waited{};
    bool is_done = state.done();
    for (unsigned looks = 1; !is_done && !failed_ && waited < SpinPolicy::kLimit; ++looks) {
        const std::uint64_t moves = moves_;
        guard([this] { move_all(); });
        is_done = state.done();
        if (is_done) {
            break;
        }
        const bool moved = moves_ != moves;
        lock.unlock();
        spin_policy_.pause();
        if (moved) {
            idle_since = SteadyClock().now();
            waited = {};
        } else if (looks % SpinPolicy::kLooksPerTime == 0) {
            waited = SteadyClock().now() - idle_since;
        }
        lock.lock();
    }
    --spinners_;
    spin_policy_.report(SteadyClock().now() - idle_since);
    guard([this] { update_attention(); });
    return is_done;
}

/// Ends the group if the action fails.
void NodeMessenger::guard(const std::function<void()>& action) {
    if (failed_ || stopped_) {
        return;
    }
    std::optional<GroupFailure> failure;
    try {
        return action();
    } catch (GroupFailure& caught) {
        failure = std::move(caught);
    } catch (const std::exception& error) {
        failure = {.code = Errc::system, .cause = error.what()};  // Out of memory.
    }
    failed_ = true;
    listener_.fail(std::move(*failure));
}

void NodeMessenger::move(Line& line) {
    line.conversation.send(line.stream);
    line.conversation.receive(line.stream);
    if (!line.stream.take_moved()) {
        return;
    }
    ++moves_;
    const Attention attention = memory_->board(line.neighbour.place).attention.load();
    // A rank that waits for nothing reads only when there is no more room.
    if (attention == Attention::asleep ||
        (attention == Attention::none && line.conversation.sending() != nullptr)) {
        Doorbell::ring(line.neighbour.button);
    }
}

void NodeMessenger::move_all() {
    for (auto& [rank, line] : lines_) {
        move(line);
    }
}

bool NodeMessenger::is_idle() const {
    return std::all_of(lines_.begin(), lines_.end(),
                       [](const auto& entry) { return entry.second.conversation.is_idle(); });
}

/// Tells the other ranks whether they have to ring.
void NodeMessenger::update_attention() {
    while (true) {
        const Attention attention = spinners_ > 0 ? Attention::looking
                                    : is_idle()   ? Attention::none
                                                  : Attention::asleep;
        if (board_->attention.load() == attention) {
            return;
        }
        board_->attention.store(attention);
        if (attention == Attention::looking) {
            return;
        }
        move_all();  // The others may have written before they could see it.
    }
}

void NodeMessenger::watch(net::PollSet& poll) {
    const std::lock_guard lock(mutex_);
    if (!doorbell_) {
        return;
    }
    doorbell_->watch(poll);
    if (!failed_) {
        update_attention();
    }
    const Instant before = wakes_at_;
    wakes_at_ = Instant::max();
    for (const auto& [rank, line] : lines_) {
        wakes_at_ = std::min(wakes_at_, line.conversation.next_deadline());
    }
    if (wakes_at_ == Instant::max() && before > SteadyClock().now()) {
        wakes_at_ = before;  // Once too often, instead of a ring for the next operation.
    }
}

Instant NodeMessenger::next_deadline() const {
    const std::lock_guard lock(mutex_);
    return wakes_at_;
}

void NodeMessenger::progress() {
    const std::lock_guard lock(mutex_);
    if (!doorbell_) {
        return;
    }
    doorbell_->drain();
    if (failed_) {
        return;
    }
    move_all();
    const Instant now = SteadyClock().now();
    for (auto& [rank, line] : lines_) {
        line.conversation.check_deadlines(now);
        for (const Operation* const waiting :
             {line.conversation.sending(), line.conversation.receiving()}) {
            if (waiting != nullptr) {
                mesh_.await(rank, ChannelKind::message, waiting->signature);
            }
        }
    }
    helper_knows_ = true;
}

std::vector<Operation> NodeMessenger::stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    std::vector<Operation> left;
    for (auto& [rank, line] : lines_) {
        line.conversation.take_all(left);
    }
    if (board_ != nullptr) {
        board_->attention.store(Attention::none);
    }
    return left;
}

}  // namespace regroup::cpu
