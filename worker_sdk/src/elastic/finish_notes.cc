// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/finish_notes.h"

#include <regroup/error.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "worker_sdk/src/base/text.h"

namespace regroup::elastic {
namespace {

/// Set by the first rank that calls finish().
constexpr const char* kSomeoneFinishes = "elastic/finish";
constexpr const char* kFinishes = "finish";
constexpr const char* kGoesOn = "step";
/// How long a rank that failed waits for the others to say whether they finish.
constexpr auto kWordLimit = std::chrono::seconds(1);

using Ranks = std::vector<std::uint32_t>;

std::string key_of(std::uint32_t rank) {
    return "elastic/finish/" + std::to_string(rank);
}

/// "ranks 0, 2 have".
std::string subject(const Ranks& ranks) {
    return listed_ranks(ranks) + (ranks.size() == 1 ? " has" : " have");
}

/// Waits up to kWordLimit for the notes of all ranks. Ranks without a note have not finished.
std::string compare_notes(Store& store, std::uint32_t world_size) {
    std::vector<std::string> keys;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        keys.push_back(key_of(rank));
    }
    bool all_noted = true;
    try {
        store.wait(keys, kWordLimit);
    } catch (const Error& error) {
        if (error.code() != Errc::deadline_exceeded) {
            throw;
        }
        all_noted = false;
    }
    Ranks finish;
    Ranks go_on;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const bool is_noted = all_noted || store.check({keys[rank]});
        (is_noted && store.get(keys[rank]) == kFinishes ? finish : go_on).push_back(rank);
    }
    return finish.empty() || go_on.empty()
               ? ""
               : subject(finish) + " called finish(), and " + subject(go_on) + " not";
}

}  // namespace

void note_finish(const Context& context, bool finishes) {
    if (context.world_size == 1) {
        return;
    }
    try {
        const std::shared_ptr<Store> store = context.store();
        store->set(key_of(context.rank), finishes ? kFinishes : kGoesOn);
        if (finishes) {
            // Unlike set(), add() is answered: the store knows both before any rank can fail.
            store->add(kSomeoneFinishes, 1);
        }
    } catch (const Error&) {
        // The note only explains errors; the vote does not need it.
    }
}

std::string finish_disagreement(const Context& context, bool finishes) {
    std::string found;
    try {
        const std::shared_ptr<Store> store = context.store();
        if (!store->check({kSomeoneFinishes})) {
            return "";
        }
        const std::string own = subject({context.rank});
        found = finishes ? own + " called finish(), and others have not"
                         : "others have called finish(), and " + own + " not";
        if (!finishes) {
            note_finish(context, false);
        }
        found = compare_notes(*store, context.world_size);
    } catch (const Error&) {
        // The others may have ended the round already.
    }
    return found;
}

}  // namespace regroup::elastic
