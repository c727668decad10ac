// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "agent/snapshot/image_memory.h"
#include "rendezvous/snapshot/channel.h"

namespace regroup::agent {

/// Images from other nodes, and ranges of them, each fetched once for all workers of this node. Any
/// thread.
class Fetches {
   public:
    using Image = Result<std::shared_ptr<ImageMemory>>;
    /// Has its own deadlines.
    using Get = std::function<Image(const snapshot::Ask& ask)>;

    explicit Fetches(Get get) : get_(std::move(get)) {}

    /// The image that `ask` names. Blocks while this thread or another one fetches it. One that
    /// could not be fetched is tried again by the next call.
    Image get(const snapshot::Ask& ask);
    /// Null if it was not fetched, or is dropped.
    [[nodiscard]] std::shared_ptr<ImageMemory> find(const snapshot::Ask& ask);
    /// The workers have what they need of versions before `whole`; those that still read them keep
    /// their memory.
    void drop(const std::string& state, const snapshot::Version& whole);
    void drop_all();

   private:
    using Key = std::tuple<snapshot::PartId, snapshot::Version, snapshot::Holding::Place,
                           std::string, std::uint64_t, std::uint64_t, bool>;
    struct Entry;
    [[nodiscard]] static Key key_of(const snapshot::Ask& ask) {
        return {ask.id, ask.version, ask.place, ask.endpoint, ask.begin, ask.bytes, ask.patient};
    }

    Get get_;
    std::mutex mutex_;
    std::condition_variable done_;
    std::map<Key, std::shared_ptr<Entry>> entries_;
};

}  // namespace regroup::agent
