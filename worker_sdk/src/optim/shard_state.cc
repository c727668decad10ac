// SPDX-License-Identifier: Apache-2.0
//
// Dividing the state among ranks.
#include <regroup/cuda.h>
#include <regroup/error.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/staged.h"
#include "worker_sdk/src/optim/sharded_optimizer_impl.h"
#include "worker_sdk/src/optim/tensor_checks.h"

namespace regroup::optim {

TensorView part_of(const TensorView& whole, const Range& part) {
    return part.count() == 0 ? TensorView(nullptr, 0, whole.dtype, whole.device)
                             : whole.part(part.first, part.count());
}

namespace {

ConstTensorView part_of(const ConstTensorView& whole, const Range& part) {
    const std::size_t offset = part.first * item_bytes(whole.dtype);
    return {part.count() == 0 ? nullptr : static_cast<const std::byte*>(whole.data) + offset,
            part.count(), whole.dtype, whole.device};
}

// All that a step depends on but the learning rate, which a program may change.

using Words = std::vector<std::uint64_t>;

void note(Words& words, std::initializer_list<double> values) {
    for (const double value : values) {
        words.push_back(std::bit_cast<std::uint64_t>(value));
    }
}

void note_rule(Words& words, const SgdOptions& options) {
    note(words, {options.momentum, options.dampening, options.weight_decay});
    words.push_back(options.nesterov ? 1U : 0U);
}

void note_rule(Words& words, const AdamOptions& options) {
    note(words, {options.beta1, options.beta2, options.epsilon, options.weight_decay});
    words.push_back(options.decoupled_weight_decay ? 1U : 0U);
}

}  // namespace

std::vector<ConstTensorView> gradients_of(const ShardedState& state, const Range& range) {
    std::vector<ConstTensorView> parts;
    for (std::size_t t = 0; t < state.tensors.size(); ++t) {
        ConstTensorView gradient = state.tensors[t].gradient;
        gradient.device =
            state.device;  // Also of one that was left out, for a tensor without elements.
        parts.push_back(part_of(gradient, state.layout.part(t, range)));
    }
    return parts;
}

Shard make_shard(const ShardedState& state, const Range& range) {
    std::vector<OptimizerTensors> parts;
    for (std::size_t t = 0; t < state.tensors.size(); ++t) {
        parts.push_back({.master = part_of(state.tensors[t].master, state.layout.part(t, range))});
    }
    FusedOptimizer optimizer =
        std::visit([&](const auto& known) { return FusedOptimizer(parts, known); }, state.options);
    if (state.gradients_are_set) {
        optimizer.set_gradients(gradients_of(state, range));
    }
    return {.range = range, .optimizer = std::move(optimizer)};
}

namespace {

std::vector<std::uint32_t> staying(std::uint32_t world_size,
                                   std::span<const std::uint32_t> leaving) {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        if (std::ranges::find(leaving, rank) == leaving.end()) {
            ranks.push_back(rank);
        }
    }
    return ranks;
}

/// The ranges that each rank is to hold, its own first. Those of ranks that leave are empty.
std::vector<std::vector<Range>> divide(const ShardedState& state, std::uint32_t world_size,
                                       std::span<const std::uint32_t> staying) {
    const std::size_t count = staying.size();
    const std::vector<Range> ranges = state.layout.shards(count);
    std::vector<std::vector<Range>> wanted(world_size,
                                           {Range{state.layout.total(), state.layout.total()}});
    for (std::size_t i = 0; i < count; ++i) {
        wanted[staying[i]] = {ranges[i]};
    }
    for (std::size_t i = 0; i < count && state.shard_options.replicate && count > 1; ++i) {
        wanted[staying[(i + count / 2) % count]].push_back(ranges[i]);
    }
    return wanted;
}

/// All that this rank can offer, the latest first.
std::vector<Piece> pieces(ShardedState& state) {
    std::vector<Piece> all;
    for (const std::vector<Shard>* const list : {&state.shards, &state.former}) {
        for (const Shard& shard : *list) {
            all.push_back(shard.piece());
        }
    }
    if (state.loaded) {
        Piece& piece = all.emplace_back(Piece{.range = {0, state.layout.total()}});
        for (std::vector<float>& moment : state.loaded->moments) {
            piece.moments.emplace_back(std::span(moment));
        }
    }
    all.resize(std::min(all.size(), kOffersMax));
    return all;
}

ShardClaim claim_of(ShardedState& state) {
    Words words{state.options.index(), state.shard_options.replicate ? 1U : 0U};
    std::visit([&](const auto& known) { note_rule(words, known); }, state.options);
    for (std::size_t t = 0; t < state.tensors.size(); ++t) {
        words.push_back(state.layout.count(t));
    }
    ShardClaim mine{.layout = checksum(words),
                    .holds = state.holds || state.lost ? 1 : 0,
                    .lost = state.lost ? 1 : 0,
                    .version = state.version,
                    .can_apply = state.staged ? 1 : 0,
                    .learning_rate = std::bit_cast<std::uint64_t>(state.learning_rate),
                    .former_size = state.former_size};
    if (!state.holds) {
        return mine;
    }
    if (!state.shards.empty()) {
        std::int64_t& count = mine.step_count;
        const TensorView host(&count, 1, DType::int64);
        const Shard& first = state.shards.front();
        cuda::copy(host, state.changed
                             ? TensorView(first.before.front().data, 1, DType::int64, state.device)
                             : first.optimizer.state().front());
    } else {
        mine.step_count = state.loaded->step_count;
    }
    for (const Piece& piece : pieces(state)) {
        mine.offers[mine.offer_count++] = piece.range;
    }
    return mine;
}

std::vector<ShardClaim> gather_claims(ShardedState& state, ProcessGroup& with) {
    ShardClaim mine = claim_of(state);
    std::vector<ShardClaim> all(with.world_size());
    const Staged given(with, TensorView(&mine, sizeof mine, DType::uint8));
    Staged gathered(with, TensorView(all.data(), all.size() * sizeof mine, DType::uint8));
    with.all_gather(given.view(), gathered.view()).wait();
    gathered.read_back();
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        require(all[rank].layout == all.front().layout,
                "rank " + std::to_string(rank) +
                    " has other tensors or options than rank 0: a sharded optimizer needs the same "
                    "on every rank");
    }
    return all;
}

/// The standing of a rank that has done most steps; nothing if no rank has done any.
std::optional<ShardClaim> agree(std::span<const ShardClaim> all) {
    const ShardClaim* best = nullptr;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const ShardClaim& each = all[rank];
        if (each.lost != 0) {
            throw Error(Errc::system,
                        "optimizer: a step has failed halfway on rank " + std::to_string(rank) +
                            ", and its shard of the state is lost; begin again from a checkpoint "
                            "on all ranks, and use prepare() and apply() to survive that");
        }
        if (each.holds != 0 && (best == nullptr || each.version > best->version)) {
            best = &each;
        }
    }
    return best == nullptr ? std::nullopt : std::optional(*best);
}

/// Brings this rank to `target` applied steps, or drops what it has.
void settle(ShardedState& state, std::int64_t target) {
    if (state.holds && state.version + 1 == target && state.staged) {
        apply(state, {});  // Another rank has applied the step.
        return;
    }
    if (state.changed) {
        roll_back(state, {});
    }
    if (state.version != target) {
        state.holds = false;
        state.shards.clear();
        state.former.clear();
        state.loaded.reset();
    }
}

/// Brings the moments of `old` to where they belong. The transfers to one rank go together.
void carry_out(const ShardedState& state, ProcessGroup& with, std::span<const Transfer> transfers,
               std::span<const Piece> old, std::span<const Shard> fresh) {
    const auto part_in = [](const Piece& piece, std::size_t moment, const Range& range) {
        return piece.moments[moment].part(range.first - piece.range.first, range.count());
    };
    const auto piece_with = [](std::span<const Piece> pieces, const Range& range) -> const Piece& {
        const auto found = std::ranges::find_if(pieces, [&](const Piece& piece) {
            return piece.range.first <= range.first && piece.range.last >= range.last;
        });
        ENSURE(found != pieces.end());
        return *found;
    };
    std::vector<Piece> to;
    for (const Shard& each : fresh) {
        to.push_back(each.piece());
    }
    for (std::size_t at = 0; at < transfers.size();) {
        std::vector<Buffer> on_device;  // Of what comes from a checkpoint in host memory.
        std::vector<Work> works;
        std::optional<OperationBatch> batch;
        const std::uint32_t receiver = transfers[at].to;
        for (; at < transfers.size() && transfers[at].to == receiver; ++at) {
            const auto& [from, unused, range] = transfers[at];
            const bool sends = from == with.rank();
            const bool receives = receiver == with.rank();
            if (sends != receives && !batch) {
                batch.emplace(with);
            }
            for (std::size_t m = 0; m < state.moment_count && (sends || receives); ++m) {
                if (!sends) {
                    works.push_back(with.recv(part_in(piece_with(to, range), m, range), from));
                    continue;
                }
                TensorView source = part_in(piece_with(old, range), m, range);
                if (receives) {
                    cuda::copy(part_in(piece_with(to, range), m, range), source);
                    continue;
                }
                if (source.device != state.device) {
                    Buffer& memory = on_device.emplace_back();
                    const TensorView copy = state.allocate(source.count, source.dtype, memory);
                    cuda::copy(copy, source);
                    source = copy;
                }
                works.push_back(with.send(source, receiver));
            }
        }
        if (batch) {
            batch->start();
        }
        for (const Work& work : works) {
            work.wait();
        }
    }
}

/// The ranks that have held the elements that are lost, as far as this can be told. `held`: by
/// rank, what is left. `sharers`: the number of ranks among which the state was divided.
std::string describe_loss(const ShardedState& state, std::span<const std::vector<Range>> held,
                          std::size_t sharers) {
    const std::size_t count = std::max<std::size_t>(sharers, 1);
    const std::vector<Range> before = state.layout.shards(count);
    const auto is_held = [&](std::size_t element) {
        return std::ranges::any_of(held, [&](const std::vector<Range>& ranges) {
            return std::ranges::any_of(ranges,
                                       [&](const Range& range) { return range.contains(element); });
        });
    };
    std::set<std::size_t> gone;
    std::string elements;
    for (std::size_t i = 0; i < count; ++i) {
        const Range& shard = before[i];
        if (shard.count() == 0 || (is_held(shard.first) && is_held(shard.last - 1))) {
            continue;
        }
        gone.insert(i);
        if (state.shard_options.replicate) {
            gone.insert((i + count / 2) % count);
        }
        elements += (elements.empty() ? "" : ", ") + std::to_string(shard.first) + " to " +
                    std::to_string(shard.last);
    }
    if (gone.empty()) {
        return "optimizer: a part of the state is gone with the ranks that held it; begin again "
               "from a checkpoint on all ranks";
    }
    std::string ranks;
    for (const std::size_t rank : gone) {
        const bool is_last = rank == *gone.rbegin();
        ranks += (ranks.empty() ? "" : is_last ? " and " : ", ") + std::to_string(rank);
    }
    const bool several = gone.size() > 1;
    return std::string("optimizer: ") + (several ? "ranks " : "rank ") + ranks + " of the " +
           std::to_string(count) + " ranks that shared the state " + (several ? "are" : "is") +
           " gone, and with " + (several ? "them" : "it") + " the moments of elements " + elements +
           "; begin again from a checkpoint on all ranks" +
           (state.shard_options.replicate
                ? ". The option replicate survives the loss of one of the two ranks of a shard"
                : ", or use the option replicate to survive the loss of a rank");
}

/// Takes new shards whose moments are there.
void adopt(ShardedState& state, const std::optional<ShardClaim>& best, std::vector<Shard> fresh) {
    for (Shard& each : fresh) {
        std::int64_t count = best ? best->step_count : 0;
        cuda::copy(each.optimizer.state().front(), TensorView(&count, 1, DType::int64));
        each.optimizer.set_learning_rate(state.learning_rate);
    }
    state.former.insert(state.former.begin(), std::make_move_iterator(state.shards.begin()),
                        std::make_move_iterator(state.shards.end()));
    state.shards = std::move(fresh);
    state.version = best ? best->version : 0;
    state.holds = true;
    state.reduced = false;
}

}  // namespace

void shard(ShardedState& state, ProcessGroup& with, std::span<const std::uint32_t> leaving) {
    require(with.device() == state.device, "its tensors are on " + to_string(state.device) +
                                               ", but the group is on " + to_string(with.device()));
    const std::vector<std::uint32_t> ranks = staying(with.world_size(), leaving);
    if (ranks.empty()) {
        return;
    }
    try {
        confirm_last_step(state, true);
    } catch (const Error&) {
        // The standing of this rank says that its state is lost.
    }
    const std::vector<std::vector<Range>> wanted = divide(state, with.world_size(), ranks);
    const std::vector<ShardClaim> all = gather_claims(state, with);
    const std::optional<ShardClaim> best = agree(all);
    std::vector<std::vector<Range>> held(all.size());
    for (std::size_t rank = 0; rank < all.size() && best; ++rank) {
        const ShardClaim& each = all[rank];
        const bool follows = each.version + 1 == best->version && each.can_apply != 0;
        if (each.holds != 0 && (each.version == best->version || follows)) {
            held[rank].assign(each.offers.begin(),
                              each.offers.begin() + static_cast<std::ptrdiff_t>(each.offer_count));
        }
    }
    TransferPlan plan;
    if (best && state.moment_count > 0) {
        plan = plan_transfers(held, wanted);
    }
    if (plan.lost) {
        throw Error(Errc::system, describe_loss(state, held, best->former_size));
    }
    if (best) {
        settle(state, best->version);
    }
    state.learning_rate = std::bit_cast<double>((best ? *best : all.front()).learning_rate);
    std::vector<Shard> fresh;
    for (const Range& range : wanted[with.rank()]) {
        fresh.push_back(make_shard(state, range));
    }
    carry_out(state, with, plan.transfers, pieces(state), fresh);
    adopt(state, best, std::move(fresh));
    // Until all ranks have their shards, this rank can still offer its former ones, too.
    with.barrier().wait();
    state.former.clear();
    state.loaded.reset();
    state.group = &with;
    state.former_size = ranks.size();
    state.own.clear();
    for (const std::vector<Range>& ranges : wanted) {
        state.own.push_back(ranges.front());
    }
}

}  // namespace regroup::optim
