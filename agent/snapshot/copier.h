// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/snapshot/open_sockets.h"
#include "agent/snapshot/peer_stream.h"
#include "agent/snapshot/shelf.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Copies what the workers of this node save to the agent of another node: always the latest
/// version of each part, one after the other, on a thread with low priority that starts with the
/// first. Tries again until it has succeeded. Any thread.
class Copier {
   public:
    struct Target {
        std::string endpoint;  ///< Empty: none.
        PeerTrust trust{};

        friend bool operator==(const Target& a, const Target& b) {
            return a.endpoint == b.endpoint && a.trust.purpose == b.trust.purpose;
        }
    };
    /// `say` gets a sentence for people: copies fail for some time, or work again. The shelf
    /// outlives this object.
    Copier(Shelf& shelf, std::function<void(const std::string& sentence)> say);
    ~Copier();
    Copier(const Copier&) = delete;
    Copier& operator=(const Copier&) = delete;

    /// Where copies go from now on: all parts that are in rooms, too.
    void set_target(Target target);
    void saved(const snapshot::PartId& id, const snapshot::Version& version);
    /// The last version of the part that the present target has.
    [[nodiscard]] std::map<snapshot::PartId, snapshot::Version> copied() const;

   private:
    void run();
    void start_locked();
    /// Nothing: there is nothing to do, and no place to copy to.
    [[nodiscard]] std::optional<snapshot::PartId> next_locked() const;
    void copy(const snapshot::PartId& id, const snapshot::Version& version, const Target& target);
    void succeeded(const snapshot::PartId& id, const snapshot::Version& version,
                   const Target& target);
    void failed(const std::string& why);

    Shelf& shelf_;
    std::function<void(const std::string& sentence)> say_;
    OpenSockets sockets_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by the mutex.
    Target target_;
    std::map<snapshot::PartId, snapshot::Version> wanted_;
    std::map<snapshot::PartId, snapshot::Version> copied_;
    bool stopped_ = false;
    // Of the thread.
    Duration back_off_{};
    std::optional<Instant> failing_since_;
    bool has_complained_ = false;
    int overtaken_ = 0;  ///< Versions in succession that were gone before they were copied.
    std::thread thread_;
};

}  // namespace regroup::agent
