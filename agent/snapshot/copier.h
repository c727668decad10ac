// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/snapshot/open_sockets.h"
#include "agent/snapshot/peer_stream.h"
#include "agent/snapshot/shelf.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Copies what the workers of this node save to the agent of another node: always the latest
/// version of each part, a few of them at a time, on threads with low priority that start when they
/// are needed. Tells the worker in its room when that is done, or if no copy is to be made. Tries
/// again until it has succeeded; after some time it says so, and lets the workers go on. Any
/// thread.
class Copier {
   public:
    struct Target {
        std::string endpoint;  ///< Empty: none.
        PeerTrust trust{};

        friend bool operator==(const Target& a, const Target& b) {
            return a.endpoint == b.endpoint && a.trust.purpose == b.trust.purpose;
        }
    };
    static constexpr Duration kGiveUpAfter = std::chrono::seconds(10);

    /// `say` gets a sentence for people: copies fail for `give_up_after`, or work again. The shelf
    /// outlives this object.
    Copier(Shelf& shelf, std::function<void(const std::string& sentence)> say,
           Duration give_up_after = kGiveUpAfter);
    ~Copier();
    Copier(const Copier&) = delete;
    Copier& operator=(const Copier&) = delete;

    /// A new round: where copies go is not known yet, or there is no other node.
    void begin_round(bool has_other_nodes);
    /// Where copies go in this round.
    void set_target(Target target);
    /// `replicated`: other nodes have the same, so that no copy is to be made.
    void saved(const snapshot::PartId& id, const snapshot::Version& version, bool replicated);
    /// The peer may take now what it has refused.
    void try_again();
    /// The last version of the part that the present target has.
    [[nodiscard]] std::map<snapshot::PartId, snapshot::Version> copied() const;

   private:
    void run();
    void start_locked();
    void reset_locked();
    /// `in_vain`: they were to be made.
    void go_on_without_copies_locked(bool in_vain);
    /// The part to copy next, if there is one and a place to copy it to.
    [[nodiscard]] std::optional<snapshot::PartId> next_locked() const;
    void copy(const snapshot::PartId& id, const snapshot::Version& version, const Target& target);
    void succeeded(const snapshot::PartId& id, const snapshot::Version& version,
                   const Target& target);
    void failed(const Target& target, const std::string& why);

    Shelf& shelf_;
    std::function<void(const std::string& sentence)> say_;
    const Duration give_up_after_;
    OpenSockets sockets_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by the mutex.
    std::optional<Target> target_;  ///< Nothing: not known yet.
    std::map<snapshot::PartId, snapshot::Version> wanted_;
    std::map<snapshot::PartId, snapshot::Version> copied_;
    bool stopped_ = false;
    bool has_given_up_ = false;  ///< The workers go on while copies fail.
    std::set<snapshot::PartId> in_progress_;
    std::size_t idle_ = 0;  ///< Threads that wait for a part.
    Duration back_off_{};
    Instant not_before_ = Instant::min();
    std::optional<Instant> failing_since_;
    std::vector<std::thread> threads_;
};

}  // namespace regroup::agent
