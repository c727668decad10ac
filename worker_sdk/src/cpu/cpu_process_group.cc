// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/cpu_process_group.h"

#include <regroup/error.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/cpu/subgroup_formation.h"

namespace regroup::cpu {
namespace {

constexpr std::size_t kOutstandingMax = 65536;

/// The ranks to which this rank sends first over connections for collectives.
std::vector<std::uint32_t> first_receivers(const GroupPosition& position,
                                           const NodeLayout& layout) {
    if (layout.nodes.empty()) {
        return {position.next()};
    }
    std::vector<std::uint32_t> receivers;
    if (layout.local == 0) {
        const auto nodes = static_cast<std::uint32_t>(layout.nodes.size());
        for (const std::uint32_t node : LaneCollectives::doubling_receivers(layout.node, nodes)) {
            receivers.push_back(layout.nodes[node].front());
        }
    }
    return receivers;
}

std::unique_ptr<Mesh> listened_to(std::unique_ptr<Mesh> mesh,
                                  const std::shared_ptr<RoundScope>& scope,
                                  const NodeLayout& layout) {
    mesh->on_break(
        [scope](std::uint32_t peer, const std::string& how) { scope->note_break(peer, how); });
    // Dial the connections that are needed next at the same time as the control line's.
    for (const std::uint32_t peer : first_receivers(mesh->position(), layout)) {
        static_cast<void>(mesh->outbound(peer, ChannelKind::collective));
    }
    return mesh;
}

std::vector<std::uint32_t> world_ranks(const std::vector<Peer>& peers) {
    std::vector<std::uint32_t> ranks;
    for (const Peer& peer : peers) {
        ranks.push_back(peer.world_rank);
    }
    return ranks;
}

/// The ranks of this rank's node.
std::vector<std::string> names_of(const std::vector<Peer>& peers, const NodeLayout& layout) {
    std::vector<std::string> names;
    for (const std::uint32_t rank : layout.neighbours()) {
        names.push_back(peers[rank].name);
    }
    return names;
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
      layout_(layout_of(*peers_, position_.rank)),
      must_share_(formation.must_share),
      node_ranks_(formation.node_ranks),
      scope_(formation.scope),
      record_(flight_recorder().add({.name = options.name,
                                     .backend = "gloo",
                                     .ranks = world_ranks(*peers_),
                                     .rank = position_.rank})),
      mesh_(listened_to(std::move(mesh), scope_, layout_)),
      interruption_(*mesh_, scope_),
      control_(*mesh_, formation.deadline, formation.check),
      roll_call_(*mesh_, control_, note_standing(), [this] { wakeup_.ring(); }),
      messenger_(*mesh_, [this](const Operation& operation) { complete(operation); }),
      node_messenger_(std::make_shared<NodeMessenger>(
          *mesh_, NodeMessenger::Listener{
                      .complete = [this](const Operation& operation) { complete(operation); },
                      .fail = [this](GroupFailure failure) { report(std::move(failure)); }})),
      collectives_(std::make_shared<Collectives>(mesh_->part_links(), roll_call_, layout_,
                                                 is_crowded(*peers_, position_.rank))),
      executor_(std::make_shared<Executor>(
          collectives_,
          Executor::Listener{
              .start = [](const Operation& operation,
                          Instant now) { flight_recorder().started(operation.record, now); },
              .complete = [this](const Operation& operation) { complete(operation); },
              .fail = [this](GroupFailure failure) { report(std::move(failure)); }})),
      check_(formation.check) {
    // This order lets operations that were just issued make progress in the same turn.
    mesh_->add(*this);
    mesh_->add(control_);
    mesh_->add(roll_call_);
    mesh_->add(messenger_);
    mesh_->add(*node_messenger_);  // After those that notice which ranks are gone.
    helper_ = start_helper_thread("regroup-cpu", [this] { run(); });
    try {
        share_nodes(formation);
    } catch (const Error& error) {
        report({.code = error.code(), .cause = error.what()});
        helper_.join();
        throw;
    }
    {
        const std::lock_guard lock(mutex_);
        check_ = nullptr;
    }
    control_.formed();
    wakeup_.ring();
    if (formation.siblings) {
        subgroup_registration_.join(formation.siblings, *this);
    }
}

/// A listener that writes into the flight recorder. It may outlive this group.
NodeCollectives::Listener CpuProcessGroup::note_standing() const {
    return [record = record_](std::uint32_t rank, const Standing& standing) {
        flight_recorder().note_standing(record, rank, describe(standing));
    };
}

/// Lets the ranks of each node share memory if they can.
void CpuProcessGroup::share_nodes(const FormationOptions& formation) {
    std::string problem = "its ranks are on several nodes, or not all of them want to";
    if (!layout_.nodes.empty() && (layout_.nodes.size() == 1 || !must_share_)) {
        const Agreement agreement{
            .deadline = formation.deadline,
            .check = [this] { check_alive(); },
            .among_nodes = [&](bool mine) { return agree_among_nodes(mine, formation.deadline); }};
        auto node = form_nodes(
            *peers_, layout_, formation.share ? std::move(formation.share->memory) : SharedMemory(),
            agreement, problem);
        if (node) {
            collectives_->share(node->memory, names_of(*peers_, layout_), note_standing());
            if (node->memory) {
                node_messenger_->open(node->memory, layout_.local, std::move(node->neighbours),
                                      std::move(formation.share->doorbell));
            }
            return;
        }
    }
    if (must_share_) {
        throw Error(Errc::invalid_argument,
                    "REGROUP_CPU_TRANSPORT=shm, but the group cannot share memory: " + problem);
    }
}

/// True if all nodes' first ranks, which call this, give true.
bool CpuProcessGroup::agree_among_nodes(bool mine, Instant deadline) {
    std::uint64_t least = mine ? 1 : 0;
    submit(
        {.signature = {.count = 1, .kind = OperationKind::form, .dtype = DType::uint64},
         .buffer = {&least, 1, DType::uint64},
         // At least a moment, so that the error names the late rank.
         .limit = std::max<Duration>(deadline - SteadyClock().now(), std::chrono::milliseconds(1))})
        .wait();
    return least == 1;
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
    wakeup_.ring();
    helper_.join();
}

std::unique_ptr<ProcessGroup> CpuProcessGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                         std::string_view name) {
    check_members(ranks, position_.world_size, name);
    const std::uint64_t division = [this] {
        const std::lock_guard lock(mutex_);
        return divisions_++;
    }();
    auto group = form_subgroup({*this, position_, *peers_, division}, ranks,
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
    return {
        .rank = position_.rank,
        .world_size = position_.world_size,
        .gather = [this](ConstTensorView mine, TensorView all) { all_gather(mine, all).wait(); },
        .maximum =
            [this](std::uint64_t mine) {
                all_reduce(std::span(&mine, 1), ReduceOp::max).wait();
                return mine;
            }};
}

Buffer CpuProcessGroup::allocate(std::size_t bytes) try {
    std::vector<std::uint64_t> sizes(position_.world_size);
    const std::uint64_t mine = bytes;
    all_gather(std::span(&mine, 1), std::span(sizes)).wait();
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
        if (sizes[rank] != mine) {
            throw Error(Errc::invalid_argument, (*peers_)[rank].name + " asks for " +
                                                    std::to_string(sizes[rank]) + " bytes, " +
                                                    (*peers_)[position_.rank].name + " for " +
                                                    std::to_string(mine));
        }
    }
    if (layout_.nodes.empty() || bytes == 0) {
        return ProcessGroup::allocate(bytes);
    }
    SharedParts shared = share_memory(table(), layout_.neighbours(), bytes);
    if (shared.parts.empty()) {
        throw Error(Errc::system, shared.problem);
    }
    const auto region = std::make_shared<Region>();
    region->parts = std::move(shared.parts);
    {
        const std::lock_guard lock(mutex_);
        region->number = ++regions_;
    }
    if (Regions* const regions = collectives_->regions()) {
        regions->add(region);
    }
    return {.data = region->parts[layout_.local].data(), .bytes = bytes, .owner = region};
} catch (const Error& error) {
    throw Error(error.code(), std::string("allocate: ") + error.what());
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
    return submit(operation_of(request, position_.rank, position_.world_size, limit_));
}

Work CpuProcessGroup::submit(Operation operation) {
    const bool is_collective = !is_message(operation);
    const bool is_near = !is_collective && node_messenger_->reaches(operation.signature.peer);
    std::shared_ptr<WaitHelper> helper;
    if (is_collective) {
        helper = executor_;
    } else if (is_near) {
        helper = node_messenger_;
    }
    auto state = std::make_shared<Work::State>(std::move(helper));
    operation.work = state;
    operation.issued_at = SteadyClock().now();
    {
        const std::lock_guard lock(mutex_);
        std::uint64_t& issued = is_collective ? collectives_issued_ : messages_issued_;
        if (operation.signature.kind != OperationKind::form) {
            operation.signature.number = issued + 1;
        }
        if (failure_ || abort_reason_) {
            const GroupFailure failure =
                failure_ ? *failure_ : GroupFailure{Errc::fenced, *abort_reason_};
            state->fail(failure.code, explain(failure, operation.signature));
            return Work(std::move(state));
        }
        if (outstanding_ == kOutstandingMax) {
            throw Error(Errc::overloaded, describe(operation.signature) + ": " +
                                              std::to_string(kOutstandingMax) +
                                              " operations are in flight; wait for some");
        }
        if (operation.signature.kind != OperationKind::form) {
            ++issued;
            operation.record =
                flight_recorder().issued(record_, recorded(operation), operation.issued_at);
            scope_->note_issued(name_of(operation.signature.kind));
        }
        ++outstanding_;
        if (is_collective) {
            executor_->post(std::move(operation));
            return Work(std::move(state));
        }
        if (!is_near) {
            issued_.push_back(std::move(operation));
        }
    }
    if (!is_near) {
        wakeup_.ring();
        return Work(std::move(state));
    }
    flight_recorder().started(operation.record, operation.issued_at);
    if (!node_messenger_->post(operation)) {
        fail_late(operation);
    }
    return Work(std::move(state));
}

/// Fails an operation that the end of the group has overtaken.
void CpuProcessGroup::fail_late(const Operation& operation) {
    const std::lock_guard lock(mutex_);
    operation.work->fail(failure_->code, explain(*failure_, operation.signature));
}

/// Ends the group, which has met `failure`.
void CpuProcessGroup::report(GroupFailure failure) {
    {
        const std::lock_guard lock(mutex_);
        reported_failure_ = std::move(failure);
    }
    wakeup_.ring();
}

void CpuProcessGroup::abort(std::string_view reason) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!abort_reason_ && !failure_) {
            abort_reason_ = "aborted: " + std::string(reason);
        }
    }
    wakeup_.ring();
    descendants_->abort_all(reason);
}

/// The failure of the group as seen by one operation.
std::string CpuProcessGroup::explain(const GroupFailure& failure,
                                     const Signature& signature) const {
    if (signature.kind == OperationKind::form) {
        return failure.cause;
    }
    return describe(failure, signature, suffix_);
}

}  // namespace regroup::cpu
