// SPDX-License-Identifier: Apache-2.0
//
// The end of training, at a step that must be the same for all ranks.
#include <regroup/error.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>

#include "worker_sdk/src/elastic/loop.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::elastic {
namespace {

/// Set by the first rank that calls finish().
constexpr const char* kSomeoneFinishes = "elastic/finish";
constexpr const char* kFinishes = "finish";
constexpr const char* kGoesOn = "step";
/// How long a rank that failed waits for the others to say whether they finish.
constexpr auto kWordLimit = std::chrono::seconds(1);
constexpr std::size_t kNamedMax = 16;

std::string key_of(std::uint32_t rank) {
    return "elastic/finish/" + std::to_string(rank);
}

std::string list(const std::vector<std::uint32_t>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < std::min(ranks.size(), kNamedMax); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    return ranks.size() > kNamedMax
               ? text + " and " + std::to_string(ranks.size() - kNamedMax) + " more"
               : text;
}

struct Finishers {
    std::vector<std::uint32_t> finish;
    std::vector<std::uint32_t> go_on;

    [[nodiscard]] bool agree() const { return finish.empty() || go_on.empty(); }
    [[nodiscard]] std::string text() const {
        return list(finish) + (finish.size() == 1 ? " has" : " have") + " called finish(), and " +
               list(go_on) + (go_on.size() == 1 ? " has" : " have") + " not";
    }
};

/// Waits up to kWordLimit for the answers of all ranks. Ranks that do not answer have not finished.
Finishers ask_finishers(Store& store, std::uint32_t world_size) {
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        keys.push_back(key_of(rank));
    }
    bool all_said = true;
    try {
        store.wait(keys, kWordLimit);
    } catch (const Error& error) {
        if (error.code() != Errc::deadline_exceeded) {
            throw;
        }
        all_said = false;
    }
    Finishers found;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const bool finishes =
            (all_said || store.check({keys[rank]})) && store.get(keys[rank]) == kFinishes;
        (finishes ? found.finish : found.go_on).push_back(rank);
    }
    return found;
}

}  // namespace

void Loop::finish() {
    require_step_open("finish");
    finishing_ = true;
    note_end_of_step();
    settle_operations();
    const Digests mine = has_peers() ? registered_.digests() : Digests();
    // The vote itself compares, so that all ranks finish or none does.
    if (!vote_on_step({.finishes = true, .digest = mine.whole}).agrees) {
        compare_replicas(mine);
    }
    try {
        round_->control().barrier().wait();
    } catch (const Error&) {
        // Every rank has voted to finish, so a loss does not matter any more.
    }
    registered_.restore_buffers();
    stage_ = Stage::finished;
    reporter_.finished();
}

/// Tells the others, through the round's store, whether this rank finishes. A rank that does not
/// finish calls it only after an error.
void Loop::note_end_of_step() {
    const Context& context = round_->context;
    if (context.world_size == 1) {
        return;
    }
    try {
        const std::shared_ptr<Store> store = context.store();
        store->set(key_of(context.rank), finishing_ ? kFinishes : kGoesOn);
        if (finishing_) {
            // Unlike set(), add() is answered: the store knows both before any rank can fail.
            store->add(kSomeoneFinishes, 1);
        }
    } catch (const Error&) {
        // The note only explains errors; the vote does not need it.
    }
}

/// Explains `error` in a sentence if some ranks have called finish() and some have not; else
/// returns an empty text. Such ranks are in different collectives, and the group knows only that
/// these differ.
std::string Loop::finish_disagreement(const Error& error) {
    const Context& context = round_->context;
    const bool of_the_group = voting_ || meter_->has_failed();  // Not an error of the program.
    if (error.code() != Errc::invalid_argument || context.world_size == 1 || applying_ ||
        !of_the_group) {
        return "";
    }
    std::string who;
    try {
        const std::shared_ptr<Store> store = context.store();
        if (!store->check({kSomeoneFinishes})) {
            return "";
        }
        const std::string own = list({context.rank});
        who = finishing_ ? own + " has called finish(), and others have not"
                         : "others have called finish(), and " + own + " has not";
        if (!finishing_) {
            note_end_of_step();
        }
        const Finishers all = ask_finishers(*store, context.world_size);
        who = all.agree() ? "" : all.text();
    } catch (const Error&) {
        // The others may have ended the round already.
    }
    return who.empty() ? ""
                       : "step " + std::to_string(step_) + ": " + who +
                             "; all ranks must call it in the same step";
}

}  // namespace regroup::elastic
