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
#include <span>
#include <string>
#include <string_view>
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
    Instant at{};  ///< On the job's own timeline, in whole microseconds.
    /// Wall-clock time since 1970: how the timeline goes on. Of reports in a row that are kept
    /// together, all come back with that of the last.
    std::int64_t wall_ms = 0;
    std::optional<rendezvous::Event> event{};  ///< Nothing: time has passed, and the core acted.
    std::vector<Assigned> assigned{};
};

struct StoredJob {
    JobKey key;
    std::vector<Entry> entries;
    bool ended = false;  ///< Nobody needs it any more; kept for `regroup replay`.
};

/// A job whose entries are read as they are needed: of a large job that has run for long, all at
/// once would not fit into memory.
struct KeptJob {
    JobKey key;
    bool ended = false;
    /// The next few entries, a thousand or so at most; none at the end. Errors: system and
    /// invalid_argument, after which it is not called again. May be used for as long as the journal
    /// that gave it, or the lead that came with it, lasts.
    std::function<Result<std::vector<Entry>>()> next;
};
[[nodiscard]] Result<StoredJob> read_all(const KeptJob& job);
[[nodiscard]] KeptJob kept(StoredJob job);

/// Where entries are kept. Everything runs on the daemon's one thread; `done` and the hooks may be
/// called before the function returns. Must not be destroyed from within one of them.
class Journal {
   public:
    struct Hooks {
        /// This daemon decides from now on, for these jobs, whose entries are complete; those of a
        /// name in the order in which they began.
        std::function<void(std::vector<KeptJob> jobs)> lead;
        /// Another decides, at `endpoint` if that is known. What was not `done` never will be.
        std::function<void(const std::string& endpoint)> follow;
        /// One line for the log.
        std::function<void(const std::string& line)> log;
    };
    /// What a job may take: what is beyond is not kept, and the daemon says so. docs/operating.md
    /// says how much that is.
    static constexpr std::size_t kJobBytesMax = std::size_t{64} << 20U;
    /// The `trouble` of a job that takes more, or that cannot be kept for what it is.
    static constexpr const char* kTooLarge =
        "it is too large to be kept any further: if the daemon ends, its nodes form it anew";

    virtual ~Journal() = default;

    /// Begins to call the hooks. Once.
    virtual void start(Hooks hooks) = 0;
    /// Keeps `entries` after what was appended before, in order: who dies meanwhile leaves some
    /// first ones of them or none; then `done`. The first ones of a key begin it. If they cannot be
    /// kept and this daemon decides all the same, that is said in the log, and `done` is called
    /// too.
    virtual void append(const JobKey& job, std::vector<Entry> entries,
                        std::function<void()> done) = 0;
    /// Nobody needs the job any more. It is kept for a while, for `regroup replay`.
    virtual void end(const JobKey& job) = 0;
    /// What people should know of how the job is kept: that it is not, or that it waits. A clause;
    /// empty while all is well.
    [[nodiscard]] virtual std::string trouble(const JobKey& /*job*/) const { return ""; }
    /// This daemon is about to end: whoever else may lead need not wait for it. Nothing is appended
    /// after this.
    virtual void resign(std::function<void()> done) { done(); }  // NOLINT(performance-*)
};

/// What the core is told by `entry`, and what it answers.
[[nodiscard]] rendezvous::Effects apply(rendezvous::RendezvousCore& core, const Entry& entry);
[[nodiscard]] std::vector<Assigned> assignments_of(const rendezvous::Effects& effects);
/// A join that was refused, which at most those who wait are told of: it has changed nothing, and
/// whoever repeats it must not be able to fill a journal.
[[nodiscard]] bool is_refusal(const rendezvous::Event& event, const rendezvous::Effects& effects);
/// A report that is answered by nothing but a sign of life, and may wait to be kept if phase and
/// round have stayed what they were. If the daemon dies before that, the node says the same again
/// to the next one: each report is the whole truth. What is long or urgent does not wait.
[[nodiscard]] bool is_only_noted(const rendezvous::Event& event,
                                 const rendezvous::Effects& effects);

/// Takes a fresh core through what is kept of a job, a few entries at a time.
class JobReader {
   public:
    using OnEntry = std::function<void(const Entry& entry, rendezvous::Effects effects)>;

    explicit JobReader(KeptJob job) : job_(std::move(job)) {}

    /// Steps over the next entries and tells `on_entry` of each. False at the end. Errors: those of
    /// reading; invalid_argument, when the entries do not begin with a node or go back in time.
    Result<bool> read(const OnEntry& on_entry);

    [[nodiscard]] const JobKey& key() const noexcept { return job_.key; }
    /// Requires that something has been read.
    [[nodiscard]] rendezvous::RendezvousCore& core() { return *core_; }
    [[nodiscard]] Instant last_at() const noexcept { return last_at_; }
    [[nodiscard]] std::int64_t last_wall_ms() const noexcept { return last_wall_ms_; }

   private:
    KeptJob job_;
    std::optional<rendezvous::RendezvousCore> core_;  // From the first entry on.
    Instant last_at_{};
    std::int64_t last_wall_ms_ = 0;
};

/// An entry as one JSON object, and back. Errors: invalid_argument, naming the field.
[[nodiscard]] std::string encode(const Entry& entry);
[[nodiscard]] Result<Entry> decode_entry(std::string_view text);

/// Entries as records, each of which is one JSON value of some tens of kilobytes at most; only an
/// entry that is larger by itself has a larger one. What nodes report in a row, which is most of
/// what a journal is told, takes little more than their names.
[[nodiscard]] std::vector<std::string> to_records(std::span<const Entry> entries);
/// Back, also from a single entry. Errors: invalid_argument, naming the field.
[[nodiscard]] Result<std::vector<Entry>> decode_record(std::string_view record);

}  // namespace regroup::journal
