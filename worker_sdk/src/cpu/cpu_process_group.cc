// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/cpu_process_group.h"

#include <regroup/error.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/cpu/subgroup_formation.h"

namespace regroup::cpu {
namespace {

constexpr std::size_t kOutstandingMax = 65536;

net::Pollable make_wakeup() {
    net::Descriptor fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd.is_open()) {
        throw Error(Errc::system, system_failure("eventfd", errno).detail);
    }
    return {.fd = std::move(fd)};
}

std::unique_ptr<Mesh> listened_to(std::unique_ptr<Mesh> mesh,
                                  const std::shared_ptr<RoundScope>& scope) {
    mesh->on_break(
        [scope](std::uint32_t peer, const std::string& how) { scope->note_break(peer, how); });
    // Dial the ring's connection, which is needed next, at the same time as the control line's.
    static_cast<void>(mesh->outbound(mesh->position().next(), ChannelKind::collective));
    return mesh;
}

bool on_one_node(const std::vector<Peer>& peers) {
    return peers.front().node != 0 &&
           std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) {
               return peer.node == peers.front().node && peer.offer.has_value();
           });
}

std::vector<std::uint32_t> world_ranks(const std::vector<Peer>& peers) {
    std::vector<std::uint32_t> ranks;
    for (const Peer& peer : peers) {
        ranks.push_back(peer.world_rank);
    }
    return ranks;
}

FlightRecorder::Operation recorded(const Operation& operation) {
    const Signature& signature = operation.signature;
    const bool has_input = operation.input.data != nullptr;
    return {.name = name_of(signature.kind),
            .number = signature.number,
            .is_message = is_message(operation),
            .is_send = signature.kind == OperationKind::send,
            .peer = signature.peer,
            .input_count = has_input ? operation.input.count : operation.buffer.count,
            .output_count = operation.buffer.count,
            .dtype = signature.dtype,
            .timeout = operation.limit};
}

}  // namespace

CpuProcessGroup::CpuProcessGroup(std::unique_ptr<Mesh> mesh, const ProcessGroupOptions& options,
                                 const FormationOptions& formation)
    : suffix_(options.name == ProcessGroupOptions().name ? ""
                                                         : " in group \"" + options.name + "\""),
      limit_(options.timeout),
      position_(mesh->position()),
      peers_(mesh->peers()),
      must_share_(formation.must_share),
      node_ranks_(formation.node_ranks),
      scope_(formation.scope),
      record_(flight_recorder().add({.name = options.name,
                                     .backend = "gloo",
                                     .ranks = world_ranks(peers_),
                                     .rank = position_.rank})),
      mesh_(listened_to(std::move(mesh), scope_)),
      interruption_(*mesh_, scope_),
      control_(*mesh_, formation.deadline, formation.check),
      roll_call_(*mesh_, control_,
                 [this](std::uint32_t rank, const Standing& standing) {
                     flight_recorder().note_standing(record_, rank, describe(standing));
                 }),
      lane_(*mesh_, roll_call_),
      algorithms_(lane_),
      messenger_(*mesh_, [this](const Operation& operation) { complete(operation); }),
      wakeup_(make_wakeup()) {
    // This order lets operations that were just issued make progress in the same turn.
    mesh_->add(*this);
    mesh_->add(control_);
    mesh_->add(roll_call_);
    mesh_->add(lane_);
    mesh_->add(messenger_);
    try {
        share_node(formation);
        control_.formed();
    } catch (const Error& error) {
        control_.announce_failure(error.code(), error.what());
        throw;
    }
    helper_ = start_helper_thread("regroup-cpu", [this] { run(); });
    if (formation.siblings) {
        subgroup_registration_.join(formation.siblings, *this);
    }
}

/// Determines over the existing connections whether the ranks can share memory.
void CpuProcessGroup::share_node(const FormationOptions& formation) {
    std::string problem = "its ranks are on several nodes, or not all of them want to";
    std::unique_ptr<NodeCollectives> node;
    if (on_one_node(peers_)) {
        std::vector<std::string> names;
        std::vector<NodeOffer> offers;
        for (const Peer& peer : peers_) {
            names.push_back(peer.name);
            offers.push_back(*peer.offer);
        }
        check_ = formation.check;
        const Table over_tcp{
            position_.rank, position_.world_size, [&](ConstTensorView mine, TensorView all) {
                // At least a moment, so that the error names the late rank.
                const Duration left = std::max<Duration>(formation.deadline - SteadyClock().now(),
                                                         std::chrono::milliseconds(1));
                lane_.begin({.kind = OperationKind::form}, left);
                algorithms_.carry_out({.signature = {.count = mine.count,
                                                     .kind = OperationKind::form,
                                                     .dtype = mine.dtype},
                                       .buffer = all,
                                       .input = mine});
                lane_.end();
            }};
        try {
            node = form_node(over_tcp, std::move(formation.share->memory), offers, std::move(names),
                             problem);
        } catch (const GroupFailure& failure) {
            throw Error(failure.code, failure.cause);
        }
        check_ = nullptr;
    }
    if (node) {
        node_ = std::make_shared<NodeExecutor>(
            std::move(node),
            NodeExecutor::Listener{
                .start = [](const Operation& operation,
                            Instant now) { flight_recorder().started(operation.record, now); },
                .complete = [this](const Operation& operation) { complete(operation); },
                .fail =
                    [this](GroupFailure failure) {
                        {
                            const std::lock_guard lock(mutex_);
                            node_failure_ = std::move(failure);
                        }
                        wake();
                    }});
    } else if (must_share_) {
        throw Error(Errc::invalid_argument,
                    "REGROUP_CPU_TRANSPORT=shm, but the group cannot share memory: " + problem);
    }
}

CpuProcessGroup::~CpuProcessGroup() {
    subgroup_registration_.leave();
    interruption_.leave();
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
        if (outstanding_ > 0 && !abort_reason_) {
            abort_reason_ = "the group was destroyed with operations in flight";
        }
    }
    wake();
    helper_.join();
}

std::unique_ptr<ProcessGroup> CpuProcessGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                         std::string_view name) {
    check_members(ranks, position_.world_size, name);
    const std::uint64_t division = [this] {
        const std::lock_guard lock(mutex_);
        return divisions_++;
    }();
    auto group = form_subgroup({*this, position_, peers_, division}, ranks,
                               {.timeout = limit_, .name = std::string(name)},
                               {.deadline = after(SteadyClock().now(), limit_),
                                .check = [this] { check_alive(); },
                                .siblings = descendants_,
                                .must_share = must_share_,
                                .node_ranks = node_ranks_,
                                .scope = scope_});
    GroupOrders::attach(*group, GroupOrders::of(*this));
    return group;
}

Table CpuProcessGroup::table() {
    return {position_.rank, position_.world_size,
            [this](ConstTensorView mine, TensorView all) { all_gather(mine, all).wait(); }};
}

Buffer CpuProcessGroup::allocate(std::size_t bytes) {
    std::vector<std::uint64_t> sizes(position_.world_size);
    const std::uint64_t mine = bytes;
    all_gather(std::span(&mine, 1), std::span(sizes)).wait();
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
        if (sizes[rank] != mine) {
            throw Error(Errc::invalid_argument, "allocate: " + peers_[rank].name + " asks for " +
                                                    std::to_string(sizes[rank]) + " bytes, " +
                                                    peers_[position_.rank].name + " for " +
                                                    std::to_string(mine));
        }
    }
    if (!node_ || bytes == 0) {
        return ProcessGroup::allocate(bytes);
    }
    SharedParts shared = share_memory(table(), bytes);
    if (shared.parts.empty()) {
        throw Error(Errc::system, "allocate: " + shared.problem);
    }
    const auto region = std::make_shared<Region>();
    region->parts = std::move(shared.parts);
    {
        const std::lock_guard lock(mutex_);
        region->number = ++regions_;
    }
    node_->regions().add(region);
    return {.data = region->parts[position_.rank].data(), .bytes = bytes, .owner = region};
}

/// Throws the failure that the group has ended with, if it has.
void CpuProcessGroup::check_alive() {
    const std::lock_guard lock(mutex_);
    if (failure_ || abort_reason_) {
        throw failure_ ? Error(failure_->code, failure_->cause)
                       : Error(Errc::fenced, *abort_reason_);
    }
}

Work CpuProcessGroup::issue(const OperationRequest& request) {
    check(request, *this);
    Operation operation = operation_of(request, position_.rank, position_.world_size, limit_);
    const bool here = node_ != nullptr && !is_message(operation);
    auto state = std::make_shared<Work::State>(here ? node_ : nullptr);
    operation.work = state;
    operation.issued_at = SteadyClock().now();
    {
        const std::lock_guard lock(mutex_);
        std::uint64_t& issued = is_message(operation) ? messages_issued_ : collectives_issued_;
        operation.signature.number = issued + 1;
        if (failure_ || abort_reason_) {
            const GroupFailure failure =
                failure_ ? *failure_ : GroupFailure{Errc::fenced, *abort_reason_, {}};
            state->fail(failure.code, explain(failure, operation.signature));
            return Work(std::move(state));
        }
        if (outstanding_ == kOutstandingMax) {
            throw Error(Errc::overloaded, describe(operation.signature) + ": " +
                                              std::to_string(kOutstandingMax) +
                                              " operations are in flight; wait for some");
        }
        ++issued;
        ++outstanding_;
        operation.record =
            flight_recorder().issued(record_, recorded(operation), operation.issued_at);
        scope_->note_issued(name_of(operation.signature.kind));
        if (here) {
            node_->post(std::move(operation));
            return Work(std::move(state));
        }
        issued_.push_back(std::move(operation));
    }
    wake();
    return Work(std::move(state));
}

void CpuProcessGroup::abort(std::string_view reason) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!abort_reason_ && !failure_) {
            abort_reason_ = "aborted: " + std::string(reason);
        }
    }
    wake();
    descendants_->abort_all(reason);
}

/// The failure of the group as seen by one operation.
std::string CpuProcessGroup::explain(const GroupFailure& failure,
                                     const Signature& signature) const {
    const std::string operation = describe(signature);
    const bool own = failure.operation.empty() || failure.operation == operation;
    return operation + suffix_ + ": " +
           (own ? "" : "the group has ended with " + failure.operation + ": ") + failure.cause;
}

void CpuProcessGroup::wake() noexcept {
    const std::uint64_t one = 1;
    // Fails only when the counter is full; the helper is being woken then.
    [[maybe_unused]] const ssize_t written = ::write(wakeup_.fd.get(), &one, sizeof one);
}

}  // namespace regroup::cpu
