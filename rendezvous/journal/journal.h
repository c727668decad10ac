// SPDX-License-Identifier: Apache-2.0
//
// What a daemon must not forget: every event that a job's core has stepped over, in order and with
// its instant. The core is pure, so a fresh one that is given the same entries stands where the
// first one stood; a restarted daemon and `regroup replay` do just that.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::journal {

/// One life of a job: a job that is begun anew under its id has another key.
struct JobKey {
    std::string id;
    std::int64_t began_ms = 0;  ///< Wall-clock time since 1970.

    friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

/// What a step told a node to run: for `regroup replay` to compare.
struct Assigned {
    rendezvous::NodeId node;
    rendezvous::Assignment assignment;

    friend bool operator==(const Assigned&, const Assigned&) = default;
};

/// One step of a job's core.
struct Entry {
    Instant at{};              ///< On the job's own timeline, in whole microseconds.
    std::int64_t wall_ms = 0;  ///< Wall-clock time since 1970: how the timeline goes on.
    std::optional<rendezvous::Event> event{};  ///< Nothing: time has passed, and the core acted.
    std::vector<Assigned> assigned{};
};

struct StoredJob {
    JobKey key;
    std::vector<Entry> entries;
    bool ended = false;  ///< Nobody needs it any more; kept for `regroup replay`.
};

/// Where entries are kept. Everything runs on the daemon's one thread; `done` and the hooks may be
/// called before the function returns. Must not be destroyed from within one of them.
class Journal {
   public:
    struct Hooks {
        /// This daemon decides from now on, for these jobs, whose entries are complete.
        std::function<void(std::vector<StoredJob> jobs)> lead;
        /// Another decides, at `endpoint` if that is known. What was not `done` never will be.
        std::function<void(const std::string& endpoint)> follow;
        /// One line for the log.
        std::function<void(const std::string& line)> log;
    };
    /// How many entries a job may have: what is beyond is not kept, and the daemon says so.
    static constexpr std::size_t kEntriesMax = 200000;

    virtual ~Journal() = default;

    /// Begins to call the hooks. Once.
    virtual void start(Hooks hooks) = 0;
    /// Keeps `entries`, all or none, after what was appended before; then `done`. The first ones of
    /// a key begin it. If they cannot be kept and this daemon decides all the same, that is said in
    /// the log, and `done` is called too.
    virtual void append(const JobKey& job, std::vector<Entry> entries,
                        std::function<void()> done) = 0;
    /// Nobody needs the job any more. It is kept for a while, for `regroup replay`.
    virtual void end(const JobKey& job) = 0;
    /// This daemon is about to end: whoever else may lead need not wait for it. Nothing is appended
    /// after this.
    virtual void resign(std::function<void()> done) { done(); }  // NOLINT(performance-*)
};

/// What the core is told by `entry`, and what it answers.
[[nodiscard]] rendezvous::Effects apply(rendezvous::RendezvousCore& core, const Entry& entry);
/// The policy of the job whose first entry this is; nothing if no job begins so.
[[nodiscard]] const rendezvous::JobPolicy* policy_of(const Entry& first);
[[nodiscard]] std::vector<Assigned> assignments_of(const rendezvous::Effects& effects);

/// An entry as one JSON object, and back. Errors: invalid_argument, naming the field.
[[nodiscard]] std::string encode(const Entry& entry);
[[nodiscard]] Result<Entry> decode_entry(std::string_view text);

}  // namespace regroup::journal
