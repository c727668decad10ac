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

/// How the ranks of `group` tell each other about memory that they share.
Table table_of(CpuProcessGroup& group) {
    return {
        .rank = group.rank(),
        .world_size = group.world_size(),
        .gather = [&](ConstTensorView mine, TensorView all) { group.all_gather(mine, all).wait(); },
        .maximum =
            [&](std::uint64_t mine) {
                group.all_reduce(std::span(&mine, 1), ReduceOp::max).wait();
                return mine;
            }};
}

}  // namespace

GroupFacts::GroupFacts(const Mesh& mesh, const ProcessGroupOptions& options,
                       const FormationOptions& formation)
    : suffix(options.name == ProcessGroupOptions().name ? ""
                                                        : " in group \"" + options.name + "\""),
      limit(options.timeout),
      position(mesh.position()),
      peers(mesh.peers()),
      layout(layout_of(*peers, position.rank)),
      must_share(formation.must_share),
      node_ranks(formation.node_ranks),
      scope(formation.scope),
      record(flight_recorder().add({.name = options.name,
                                    .backend = "gloo",
                                    .ranks = world_ranks(*peers),
                                    .rank = position.rank})),
      report(std::make_shared<GroupReport>(
          GroupReport::Identity{.backend = worker_link::CollectiveBackend::cpu,
                                .name = options.name,
                                .ranks = world_ranks(*peers),
                                .rank = position.rank,
                                .knows_starts = true})) {}

CollectiveBarrier::Listener GroupFacts::note_standing() const {
    return [record = record](std::uint32_t rank, const Standing& standing) {
        flight_recorder().note_standing(record, rank, describe(standing));
    };
}

void GroupFacts::fail(const Operation& operation, const GroupFailure& failure) const {
    operation.work->fail(failure.code, operation.signature.kind == OperationKind::form
                                           ? failure.cause
                                           : describe(failure, operation.signature, suffix));
}

CpuProcessGroup::CpuProcessGroup(std::unique_ptr<Mesh> mesh, const ProcessGroupOptions& options,
                                 const FormationOptions& formation)
    : facts_(*mesh, options, formation),
      state_(formation.check),
      mesh_(listened_to(std::move(mesh), facts_.scope, facts_.layout)),
      interruption_(*mesh_, facts_.scope),
      control_(*mesh_, formation.deadline, formation.check),
      roll_call_(*mesh_, control_, facts_.note_standing(), [this] { wakeup_.ring(); }),
      messenger_(*mesh_, [this](const Operation& operation) { complete(operation); }),
      node_messenger_(std::make_shared<NodeMessenger>(
          *mesh_, NodeMessenger::Listener{
                      .complete = [this](const Operation& operation) { complete(operation); },
                      .fail = [this](GroupFailure failure) { report(std::move(failure)); }})),
      collectives_(std::make_shared<Collectives>(mesh_->part_links(), roll_call_, facts_.layout,
                                                 is_crowded(*facts_.peers, facts_.position.rank))),
      executor_(std::make_shared<Executor>(
          collectives_,
          Executor::Listener{
              .start =
                  [report = facts_.report](const Operation& operation, Instant now) {
                      flight_recorder().started(operation.record, now);
                      report->started(operation.signature.kind, operation.report, now);
                  },
              .complete = [this](const Operation& operation) { complete(operation); },
              .fail = [this](GroupFailure failure) { report(std::move(failure)); }})) {
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
    state_.note_formed();
    control_.formed();
    wakeup_.ring();
    if (formation.siblings) {
        subgroup_registration_.join(formation.siblings, *this);
    }
}

/// Lets the ranks of each node share memory if they can.
void CpuProcessGroup::share_nodes(const FormationOptions& formation) {
    std::string problem = "its ranks are on several nodes, or not all of them want to";
    if (!facts_.layout.nodes.empty() && (facts_.layout.nodes.size() == 1 || !facts_.must_share)) {
        const Agreement agreement{
            .deadline = formation.deadline,
            .check = [this] { state_.require_alive(); },
            .among_nodes = [&](bool mine) { return agree_among_nodes(mine, formation.deadline); }};
        auto node =
            form_nodes(*facts_.peers, facts_.layout,
                       formation.share ? std::move(formation.share->memory) : SharedMemory(),
                       agreement, problem);
        if (node) {
            collectives_->share(node->memory, names_of(*facts_.peers, facts_.layout),
                                facts_.note_standing());
            if (node->memory) {
                node_messenger_->open(node->memory, facts_.layout.local,
                                      std::move(node->neighbours),
                                      std::move(formation.share->doorbell));
            }
            return;
        }
    }
    if (facts_.must_share) {
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
    state_.close();
    wakeup_.ring();
    helper_.join();
}

std::unique_ptr<ProcessGroup> CpuProcessGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                         std::string_view name) {
    check_members(ranks, world_size(), name);
    auto group = form_subgroup({*this, facts_.position, *facts_.peers, state_.next_division()},
                               ranks, {.timeout = facts_.limit, .name = std::string(name)},
                               {.deadline = after(SteadyClock().now(), facts_.limit),
                                .check = [this] { state_.require_alive(); },
                                .siblings = descendants_,
                                .must_share = facts_.must_share,
                                .node_ranks = facts_.node_ranks,
                                .scope = facts_.scope});
    GroupOrders::attach(*group, GroupOrders::of(*this));
    return group;
}

Buffer CpuProcessGroup::allocate(std::size_t bytes) try {
    std::vector<std::uint64_t> sizes(world_size());
    const std::uint64_t mine = bytes;
    all_gather(std::span(&mine, 1), std::span(sizes)).wait();
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
        if (sizes[rank] != mine) {
            throw Error(Errc::invalid_argument, (*facts_.peers)[rank].name + " asks for " +
                                                    std::to_string(sizes[rank]) + " bytes, " +
                                                    (*facts_.peers)[this->rank()].name + " for " +
                                                    std::to_string(mine));
        }
    }
    if (facts_.layout.nodes.empty() || bytes == 0) {
        return ProcessGroup::allocate(bytes);
    }
    SharedParts shared = share_memory(table_of(*this), facts_.layout.neighbours(), bytes);
    if (shared.parts.empty()) {
        throw Error(Errc::system, shared.problem);
    }
    const auto region = std::make_shared<Region>();
    region->parts = std::move(shared.parts);
    region->number = state_.next_region();
    if (Regions* const regions = collectives_->regions()) {
        regions->add(region);
    }
    return {.data = region->parts[facts_.layout.local].data(), .bytes = bytes, .owner = region};
} catch (const Error& error) {
    throw Error(error.code(), std::string("allocate: ") + error.what());
}

Work CpuProcessGroup::issue(const OperationRequest& request) {
    check(request, *this);
    return submit(operation_of(request, rank(), world_size(), facts_.limit));
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
    const auto ended = state_.admit(operation, [&](Operation& admitted) {
        if (admitted.signature.kind != OperationKind::form) {
            admitted.record =
                flight_recorder().issued(facts_.record, recorded(admitted), admitted.issued_at);
            admitted.report = facts_.report->issued(admitted.signature, admitted.issued_at);
            facts_.scope->note_issued(name_of(admitted.signature.kind));
        }
        if (is_collective) {
            executor_->post(std::move(admitted));
        } else if (!is_near) {
            state_.queue(std::move(admitted));
        }
    });
    if (ended) {
        facts_.fail(operation, *ended);
        return Work(std::move(state));
    }
    if (is_collective) {
        return Work(std::move(state));
    }
    if (!is_near) {
        wakeup_.ring();
        return Work(std::move(state));
    }
    flight_recorder().started(operation.record, operation.issued_at);
    if (!node_messenger_->post(operation)) {
        facts_.fail(operation, state_.failure());  // The end of the group has overtaken it.
    }
    return Work(std::move(state));
}

/// Ends the group, which has met `failure`.
void CpuProcessGroup::report(GroupFailure failure) {
    state_.report(std::move(failure));
    wakeup_.ring();
}

void CpuProcessGroup::abort(std::string_view reason) noexcept {
    state_.abort("aborted: " + std::string(reason));
    wakeup_.ring();
    descendants_->abort_all(reason);
}

}  // namespace regroup::cpu
