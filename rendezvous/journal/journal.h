// SPDX-License-Identifier: Apache-2.0
//
// The durable record of a daemon: every event of a job's core, in order and with its instant. The
// core is pure, so a new core that gets the same entries reaches the same state. A restarted daemon
// and `regroup replay` rely on that.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::journal {

/// Identifies one run of a job: a job begun anew under the same id has another key.
struct JobKey {
    std::string id;
    std::int64_t began_ms = 0;  ///< Wall-clock time since 1970.

    friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

/// The most nodes of a job. The assignments of a round are one entry; of so many nodes with long
/// names it fits into a request of etcd, which takes 1.5 MiB.
inline constexpr std::size_t kNodesMax = 16384;

/// An assignment that a step sent to a node, for comparison by `regroup replay`.
struct Assigned {
    rendezvous::NodeId node;
    rendezvous::Assignment assignment;

    friend bool operator==(const Assigned&, const Assigned&) = default;
};

/// One step of a job's core.
struct Entry {
    Instant at{};  ///< On the job's own timeline, in whole microseconds.
    /// Wall-clock time since 1970, by which the timeline continues after a restart. Consecutive
    /// reports that are kept together all get the time of the last one.
    std::int64_t wall_ms = 0;
    std::optional<rendezvous::Event> event{};  ///< nullopt: time passed, and the core acted.
    std::vector<Assigned> assigned{};
};

struct StoredJob {
    JobKey key;
    std::vector<Entry> entries;
    bool ended = false;  ///< No longer needed, except for `regroup replay`.
};

/// A job whose entries are read on demand: all entries of a large, long job would not fit into
/// memory.
struct KeptJob {
    JobKey key;
    bool ended = false;
    /// The next entries, about a thousand at most; none at the end. Errors: system and
    /// invalid_argument, after which it must not be called again. Valid while the journal that gave
    /// it exists and, for a job passed to `lead`, while this daemon leads.
    std::function<Result<std::vector<Entry>>()> next;
};
[[nodiscard]] Result<StoredJob> read_all(const KeptJob& job);
[[nodiscard]] KeptJob kept(StoredJob job);

/// Storage for entries. Everything runs on the daemon's one thread. `done` and the hooks may be
/// called before a function returns, and must not destroy the journal.
class Journal {
   public:
    struct Hooks {
        /// This daemon is the leader from now on. `jobs` are complete; jobs of one name are in the
        /// order in which they began.
        std::function<void(std::vector<KeptJob> jobs)> lead;
        /// Another daemon is the leader, at `endpoint` if that is known. The remaining `done`
        /// callbacks will not be called.
        std::function<void(const std::string& endpoint)> follow;
        /// One line for the log.
        std::function<void(const std::string& line)> log;
    };
    /// The most bytes that a job may take. Beyond that the daemon stops recording that job and logs
    /// that.
    static constexpr std::size_t kJobBytesMax = std::size_t{64} << 20U;
    /// The `trouble` of a job that takes more, or whose entries cannot be kept.
    static constexpr const char* kTooLarge =
        "it is too large, so no more entries are kept: if the daemon ends, its nodes form it anew";

    virtual ~Journal() = default;

    /// Begins to call the hooks. Must be called once.
    virtual void start(Hooks hooks) = 0;
    /// Appends `entries` in order, then calls `done`. If the daemon dies meanwhile, a prefix of
    /// them is kept, or none. The first entries of a key begin the job. If they cannot be kept and
    /// the daemon decides without them, the journal logs that and calls `done` too.
    virtual void append(const JobKey& job, std::vector<Entry> entries,
                        std::function<void()> done) = 0;
    /// The job is no longer needed. Its entries may stay for a while, for `regroup replay`.
    virtual void end(const JobKey& job) = 0;
    /// A clause for people if the entries of the job are not kept, or wait; empty while all is
    /// well.
    [[nodiscard]] virtual std::string trouble(const JobKey& /*job*/) const { return ""; }
    /// This daemon is about to end, so other daemons need not wait before one leads. The caller
    /// appends nothing after this.
    virtual void resign(std::function<void()> done) { done(); }  // NOLINT(performance-*)
};

/// Applies `entry` to the core and returns the effects.
[[nodiscard]] rendezvous::Effects apply(rendezvous::RendezvousCore& core, const Entry& entry);
[[nodiscard]] std::vector<Assigned> assignments_of(const rendezvous::Effects& effects);
/// True for a refused join. It changed nothing, at most waiting nodes are told of it, and a node
/// that repeats it must not fill the journal.
[[nodiscard]] bool is_refusal(const rendezvous::Event& event, const rendezvous::Effects& effects);
/// True for a report that is answered only by a sign of life. Such a report may be kept later, if
/// phase and round did not change. If the daemon dies before that, the node repeats it to the next
/// daemon, since each report states the complete state. Long or urgent reports do not wait.
[[nodiscard]] bool is_only_noted(const rendezvous::Event& event,
                                 const rendezvous::Effects& effects);

/// Replays the entries of a job into a new core, a few entries at a time.
class JobReader {
   public:
    using OnEntry = std::function<void(const Entry& entry, rendezvous::Effects effects)>;

    explicit JobReader(KeptJob job) : job_(std::move(job)) {}

    /// Applies the next entries and calls `on_entry` for each. False at the end. Errors: those of
    /// reading; invalid_argument, when the entries do not begin with a node or go back in time.
    Result<bool> read(const OnEntry& on_entry);

    [[nodiscard]] const JobKey& key() const noexcept { return job_.key; }
    /// Requires that an entry has been read.
    [[nodiscard]] rendezvous::RendezvousCore& core() { return *core_; }
    [[nodiscard]] Instant last_at() const noexcept { return last_at_; }
    [[nodiscard]] std::int64_t last_wall_ms() const noexcept { return last_wall_ms_; }

   private:
    KeptJob job_;
    std::optional<rendezvous::RendezvousCore> core_;  // From the first entry on.
    Instant last_at_{};
    std::int64_t last_wall_ms_ = 0;
};

/// An entry as one JSON object, and the reverse. Errors: invalid_argument, naming the field.
[[nodiscard]] std::string encode(const Entry& entry);
[[nodiscard]] Result<Entry> decode_entry(std::string_view text);

/// Entries as records. Each record is one JSON value of some tens of kilobytes at most, unless a
/// single entry is larger. Consecutive equal reports, which are most of a journal, take little more
/// space than the names of the nodes.
[[nodiscard]] std::vector<std::string> to_records(std::span<const Entry> entries);
/// The entries of a record, or of a single encoded entry. Errors: invalid_argument, naming the
/// field.
[[nodiscard]] Result<std::vector<Entry>> decode_record(std::string_view record);

/// A record as a journal stores it, with its number in the job, and the reverse. The records of a
/// job have the numbers 1, 2, 3 and so on: a reader finds that one is missing, or in another's
/// place. Errors: invalid_argument, naming the number or the field.
[[nodiscard]] std::string numbered(std::size_t number, std::string_view record);
[[nodiscard]] Result<std::vector<Entry>> decode_numbered(std::size_t number,
                                                         std::string_view stored);
/// The failure of a job of whose records the last ones are missing.
[[nodiscard]] Failure cut_back(std::size_t stored, std::size_t found);

}  // namespace regroup::journal
