// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/rank_snapshot.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <sched.h>
#include <utility>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/snapshot/pieces.h"
#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/context/snapshot_folder.h"
#include "worker_sdk/src/link/process_link.h"
#include "worker_sdk/src/snapshot/save_image.h"

namespace regroup::snapshot {
namespace {

/// How long `save` waits for the ranks that have not saved the step before.
constexpr Duration kSaveLimit = std::chrono::minutes(1);
/// How long a look, or the end of the object, waits for the verdict about the last step.
constexpr Duration kSettleLimit = std::chrono::seconds(10);
constexpr unsigned kThreadsMax = 64;
/// Of a room that is made before what is saved is known.
constexpr std::uint64_t kSpare = std::uint64_t{4} << 20U;

unsigned threads_of(const Context& context, unsigned wanted) {
    if (wanted != 0) {
        return std::min(wanted, kThreadsMax);
    }
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    const int count = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return std::clamp(static_cast<unsigned>(count) / std::max(context.local_world_size, 1U), 1U,
                      2U);
}

std::string folder_of(const SnapshotOptions& options) {
    return options.folder.empty() ? snapshot_folder() : options.folder.string();
}

SnapshotOptions checked(SnapshotOptions options) {
    if (!is_state_name(options.name)) {
        throw Error(Errc::invalid_argument,
                    "\"" + options.name +
                        "\" is no name for snapshots: 1 to 64 letters, digits, '-', '_' and '.', "
                        "and a letter or digit first");
    }
    return options;
}

/// For the operator.
void say(const std::string& text) {
    std::fprintf(stderr, "regroup: %s\n", printable(text).c_str());
    if (const auto link = link::process_link()) {
        link->send(worker_link::Remark{.text = text});
    }
}

[[noreturn]] void raise(const Failure& failure) {
    throw Error(failure.code, failure.detail);
}

void require_later(const Look& look, std::uint64_t step) {
    if (look.last_step && step <= *look.last_step) {
        throw Error(Errc::invalid_argument, "snapshot: step " + std::to_string(step) +
                                                " is saved after step " +
                                                std::to_string(*look.last_step) +
                                                "; steps grow within a round, except after load");
    }
}

void require(const Result<void>& done) {
    if (!done) {
        raise(done.error());
    }
}

}  // namespace

RankSnapshot::RankSnapshot(const Context& context, SnapshotOptions options)
    : context_(context),
      options_(checked(std::move(options))),
      exceptions_(std::uncaught_exceptions()),
      pool_(threads_of(context, options_.threads)),
      keeper_(make_keeper(folder_of(options_), ContextScope::of(context))),
      agreement_(context, options_.name) {}

RankSnapshot::~RankSnapshot() {
    // Others may be about to save the same step: then it is whole, and is kept.
    if (std::uncaught_exceptions() == exceptions_) {
        settle(kSettleLimit);
    }
}

void RankSnapshot::settle(Duration limit) const {
    if (watch_ && look_.last_step) {
        watch_->await_whole(look_.version_of(*look_.last_step), after(now(), limit));
    }
}

void RankSnapshot::look_together() {
    settle(kSettleLimit);
    opened_.reset();
    watch_.reset();
    keeper_->settle();
    look_ = Look{};
    ++looks_;
    look_.announcements = agreement_.announce([this] { return keeper_->holdings(options_.name); });
    look_.candidates = candidates(look_.announcements);
    look_.id = options_.replicated ? PartId{options_.name, 0, 1}
                                   : PartId{options_.name, context_.rank, context_.world_size};
    look_.saves = !options_.replicated || agreement_.is_leader();
    look_.savers = options_.replicated ? look_.announcements.size() : context_.world_size;
    if (!look_.candidates.empty()) {
        look_.whole_before = look_.candidates.front().version;
    }
    tell_place_of_copies();
    watch_ = std::make_unique<WholeWatch>(
        agreement_.store().under("saves/" + std::to_string(looks_)), look_.savers,
        ContextScope::of(context_),
        WholeWatch::Hooks{
            .is_copied = [this](const Version& version) { return keeper_->is_copied(version); },
            .on_whole =
                [this](const Version& version, bool write) {
                    if (look_.saves) {
                        keeper_->whole(look_.id, version, write);
                    }
                },
            .on_kept =
                [this](const Version& version) {
                    if (look_.saves) {
                        keeper_->kept(look_.id, version);
                    }
                }});
}

/// The node half the world away: where ranks follow switches, behind another switch.
void RankSnapshot::tell_place_of_copies() {
    const std::vector<Announcement>& nodes = look_.announcements;
    for (std::size_t i = 0; i < nodes.size() && agreement_.is_leader(); ++i) {
        if (nodes[i].node == context_.group_rank) {
            const Announcement& other = nodes[(i + nodes.size() / 2) % nodes.size()];
            keeper_->copies_to(options_.name, nodes.size() < 2 ? "" : other.endpoint);
        }
    }
}

void RankSnapshot::tell_loadable(const Version& latest) {
    if (!agreement_.is_leader() || !keeper_->outlives_process()) {
        return;
    }
    for (auto candidate = look_.candidates.rbegin(); candidate != look_.candidates.rend();
         ++candidate) {
        if (candidate->version <= latest) {
            keeper_->whole({options_.name, 0, candidate->parts}, candidate->version, false);
        }
    }
}

RankSnapshot::Readiness RankSnapshot::prepare(OpenedVersion& opened, bool for_entries) {
    Readiness readiness = Readiness::ready;
    const auto is_ready = [&readiness](const Result<void>& done) {
        // Where a tensor was not saved, the version is good, and the program is wrong.
        if (!done && done.error().code != Errc::invalid_argument) {
            say("snapshot: " + done.error().detail);
            readiness =
                done.error().code == Errc::disconnected ? Readiness::unreachable : Readiness::lost;
            return false;
        }
        return true;
    };
    if (!is_ready(opened.verify_share())) {
        return readiness;
    }
    if (look_.saves && opened.parts() == look_.id.parts) {
        const auto own = opened.image(look_.id.part);
        if (!is_ready(own ? Result<void>() : Result<void>(own.error()))) {
            return readiness;
        }
    }
    if (for_entries) {
        static_cast<void>(std::ranges::all_of(
            entries_.all(), [&](const Entry& entry) { return is_ready(opened.prepare(entry)); }));
    }
    return readiness;
}

std::optional<std::uint64_t> RankSnapshot::open(bool for_entries) {
    mark_.require("snapshot: load");
    look_together();
    for (const Candidate& candidate : look_.candidates) {
        auto opened = std::make_unique<OpenedVersion>(
            *keeper_, candidate, look_.announcements,
            OpenedVersion::Reader{options_.name, context_.group_rank, context_.rank,
                                  context_.world_size, pool_.threads()},
            [](const std::string& text) { say("snapshot: " + text); });
        const Readiness readiness = prepare(*opened, for_entries);
        if (agreement_.all(readiness == Readiness::ready)) {
            look_.whole_before = candidate.version;
            look_.begin(candidate.version.history, context_.round);
            link::note_history_read(candidate.version.history);
            tell_loadable(candidate.version);
            if (candidate.parts == look_.id.parts) {
                keep_loaded(*opened);
            }
            opened_ = std::move(opened);
            return candidate.version.step;
        }
        // An earlier step, or none, would cost more than another round.
        if (!agreement_.all(readiness != Readiness::unreachable)) {
            throw Error(Errc::disconnected,
                        "snapshot: some of " + to_string(candidate.version) + " of the state \"" +
                            options_.name +
                            "\" is on a node that other nodes cannot reach; look at the network "
                            "between them");
        }
        if (context_.rank == 0) {
            say("snapshot: " + to_string(candidate.version) + " of the state \"" + options_.name +
                "\" is not used, because some of it is lost or damaged");
        }
    }
    look_.whole_before.reset();
    return std::nullopt;
}

std::optional<std::uint64_t> RankSnapshot::load() {
    const auto step = open(true);
    if (step) {
        fill_entries();
    }
    return step;
}

void RankSnapshot::fill_entries() {
    std::exception_ptr thrown;
    try {
        for (const Entry& entry : entries_.all()) {
            if (!entry.is_bytes()) {
                require(opened_->read(entry, pool_));
            } else if (entry.load) {
                const auto found = bytes(entry.tensor.name);
                entry.load({reinterpret_cast<const char*>(found.data()), found.size()});
            }
        }
    } catch (const std::exception&) {  // Rethrown: the others wait for this rank.
        thrown = std::current_exception();
    }
    // Nobody writes to the memory that others still read.
    static_cast<void>(agreement_.all(thrown == nullptr));
    if (thrown) {
        std::rethrow_exception(thrown);
    }
}

void RankSnapshot::read(const Entry& entry) {
    mark_.require("snapshot: read");
    if (!opened_) {
        throw Error(Errc::invalid_argument, "snapshot: no step is open to read from");
    }
    require(opened_->read(entry, pool_));
}

std::span<const std::byte> RankSnapshot::bytes(const std::string& name) {
    if (!opened_) {
        throw Error(Errc::invalid_argument, "snapshot: no step is open to read from");
    }
    const auto found = opened_->bytes(name);
    if (!found) {
        raise(found.error());
    }
    return *found;
}

void RankSnapshot::keep_loaded(OpenedVersion& opened) {
    look_.loaded = opened.version();
    if (!keeper_->outlives_process()) {
        watch_->begin_from(opened.version());  // It is in the folder.
        return;
    }
    if (!look_.saves) {
        return;
    }
    const auto image = opened.image(look_.id.part);
    if (!image) {
        raise(image.error());
    }
    // A part from another node stays in the memory into which it came: it is on two nodes.
    if (const auto fetched = opened.fetched(look_.id.part); fetched && keeper_->adopt(*fetched)) {
        watch_->loaded(opened.version(), true);
        return;
    }
    const std::uint64_t flexible = std::min<std::uint64_t>(image->size(), kSpare);
    room_.make(*keeper_,
               {.id = look_.id, .bytes = image->size(), .replicated = options_.replicated},
               flexible);
    if (!room_->find(opened.version())) {
        auto slot = slot_now({});
        if (!slot) {
            make_fresh_room(image->size(), flexible);
            slot = slot_now({});
        }
        ENSURE(slot);
        room_->withdraw(*slot);
        const std::span<std::byte> to = room_->slot(*slot);
        pool_.run(pieces_count(image->size()), [&](std::size_t i) {
            const auto piece = image->subspan(
                i * kPieceBytes, std::min(kPieceBytes, image->size() - i * kPieceBytes));
            copy_bytes(to.data() + i * kPieceBytes, piece.data(), piece.size());
        });
        room_->publish(*slot, opened.version(), image->size());
    }
    static_cast<void>(keeper_->saved(look_.id, opened.version()));
    watch_->loaded(opened.version(), true);
}

std::optional<std::size_t> RankSnapshot::slot_now(const WholeWatch::State& state) const {
    std::vector<Version> needed = state.pending;
    if (keeper_->outlives_process()) {
        const std::vector<Version> before = look_.versions_after(state.kept);
        needed.insert(needed.end(), before.begin(), before.end());
    }
    return slot_for_save(room_->contents(), needed, state.kept);
}

void RankSnapshot::make_fresh_room(std::uint64_t bytes, std::uint64_t flexible) {
    try {
        room_.make(
            *keeper_,
            {.id = look_.id, .bytes = bytes, .replicated = options_.replicated, .fresh = true},
            flexible);
    } catch (const Error& error) {
        if (error.code() != Errc::system) {
            throw;
        }
        say(std::string(error.what()) +
            "; only the newest version that was there is kept meanwhile");
        std::erase_if(look_.candidates, [this](const Candidate& candidate) {
            return candidate.version != look_.whole_before;
        });
    }
}

std::optional<std::size_t> RankSnapshot::free_slot(Instant deadline) {
    for (;;) {
        agreement_.require_round();
        const WholeWatch::State state = watch_->look();
        if (state.failure) {
            raise(*state.failure);
        }
        // One version at a time: while this rank saved the next one, another might not save it
        // before the present one is kept, and the agents would copy different versions.
        if (!state.pending.empty()) {
            if (!watch_->await_kept(state.pending.front(), deadline)) {
                return std::nullopt;
            }
        } else if (const auto slot = slot_now(state)) {
            return keeper_->await_unread(*slot, deadline) ? slot : std::nullopt;
        } else {
            // Both slots have what may be loaded again.
            make_fresh_room(layout_cache_.layout->bytes(), 0);
        }
    }
}

bool RankSnapshot::make_room(std::uint64_t bytes, std::uint64_t flexible, std::string& trouble) {
    try {
        room_.make(*keeper_, {.id = look_.id, .bytes = bytes, .replicated = options_.replicated},
                   flexible);
        return true;
    } catch (const Error& error) {
        // At the first step the program learns that its memory does not suffice. Later, training
        // is worth more than a step that is not kept.
        if (!room_ || error.code() != Errc::system) {
            throw;
        }
        trouble = error.what();
        return false;
    }
}

bool RankSnapshot::give_up(std::uint64_t step, const std::string& why) {
    say("snapshot: step " + std::to_string(step) + " of the state \"" + options_.name +
        "\" is not saved by rank " + std::to_string(context_.rank) + ": " + why);
    watch_->abandon(look_.version_of(step));
    return false;
}

bool RankSnapshot::save(std::uint64_t step) {
    mark_.require("snapshot: save");
    agreement_.require_round();
    if (!name_hold_) {
        name_hold_.emplace(context_, options_.name);
    }
    if (!watch_) {
        look_together();
    }
    if (look_.loaded && look_.loaded->step == step && !look_.last_step) {
        return true;  // As loaded.
    }
    require_later(look_, step);
    if (const auto failure = watch_->look().failure) {
        raise(*failure);
    }
    if (look_.history == 0) {
        look_.begin(agreement_.number("history/" + std::to_string(looks_),
                                      look_.next_history(link::new_history())),
                    context_.round);
        if (!look_.candidates.empty()) {
            tell_loadable(look_.candidates.front().version);
        }
    }
    opened_.reset();
    if (!look_.saves) {
        look_.last_step = step;
        watch_->saved(look_.version_of(step), false, false);
        return true;
    }
    std::vector<std::string> bytes(entries_.all().size());
    std::vector<std::size_t> sizes;
    std::uint64_t flexible = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (entries_.all()[i].is_bytes()) {
            bytes[i] = entries_.all()[i].save();
            sizes.push_back(bytes[i].size());
            flexible += bytes[i].size();
        }
    }
    const ImageContent content{entries_.all(), bytes};
    auto& cache = layout_cache_;
    if (!cache.layout || cache.edition != entries_.edition() || cache.sizes != sizes ||
        cache.layout->id() != look_.id) {
        cache.layout.emplace(layout_of(look_.id, content));
        cache.edition = entries_.edition();
        cache.sizes = std::move(sizes);
    }
    std::string trouble;
    if (!make_room(cache.layout->bytes(), flexible, trouble)) {
        return give_up(step, trouble);
    }
    const auto slot = free_slot(after(now(), kSaveLimit));
    if (!slot) {
        return give_up(step, "the step before is not saved by all ranks, and copied, within " +
                                 format_duration(kSaveLimit));
    }
    room_->withdraw(*slot);
    save_image(*cache.layout, look_.version_of(step), content, room_->slot(*slot), pool_);
    // A round that has ended meanwhile counts this step no more.
    agreement_.require_round();
    room_->publish(*slot, look_.version_of(step), cache.layout->bytes());
    const bool write = keeper_->saved(look_.id, look_.version_of(step));
    look_.last_step = step;
    watch_->saved(look_.version_of(step), true, write);
    return true;
}

std::optional<std::uint64_t> RankSnapshot::whole_step() const {
    const auto whole = watch_ ? watch_->look().whole : std::nullopt;
    const auto newest = whole ? whole : look_.whole_before;
    return newest ? std::optional(newest->step) : std::nullopt;
}

std::optional<std::uint64_t> RankSnapshot::kept_step() const {
    const auto copied = watch_ ? watch_->look().copied : std::nullopt;
    return copied ? std::optional(copied->step) : std::nullopt;
}

bool RankSnapshot::wait(Until until, Duration limit) const {
    mark_.require("snapshot: wait");
    if (!look_.last_step) {
        return true;
    }
    const Version version = look_.version_of(*look_.last_step);
    const Instant deadline = after(now(), limit);
    return until == Until::whole
               ? watch_->await_whole(version, deadline)
               : watch_->await_kept(version, deadline) && watch_->look().copied == version;
}

std::shared_ptr<RankSnapshot> make_rank_snapshot(const Context& context, SnapshotOptions options) {
    return {new RankSnapshot(context, std::move(options)), OwnerDeleter()};
}

}  // namespace regroup::snapshot
