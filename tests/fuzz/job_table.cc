// SPDX-License-Identifier: Apache-2.0
//
// Any messages on any connections, operators, timers, and a journal that is slow, loses its tail
// and changes leaders, to a JobTable. Its messages decode, and its journal replays to the
// assignments that were sent.
#include "rendezvous/server/job_table.h"

#include <array>
#include <map>

#include "rendezvous/journal/replay.h"
#include "rendezvous/protocol/codec.h"
#include "tests/fuzz/values.h"

namespace regroup::fuzz_job_table {
namespace {

using namespace regroup::rendezvous;
using boost::asio::ip::tcp;

constexpr int kEventsMax = 200;
constexpr std::size_t kSessions = 6;

struct Kept {
    std::vector<std::string> records;
    bool ended = false;
};
/// The state that outlives a daemon.
using Disk = std::map<journal::JobKey, Kept>;

std::vector<journal::Entry> read(const std::vector<std::string>& records) {
    std::vector<journal::Entry> all;
    for (const std::string& record : records) {
        Result<std::vector<journal::Entry>> entries = journal::decode_record(record);
        if (!entries) {
            fuzz::fail("a record cannot be read: " + entries.error().detail);
        }
        std::move(entries->begin(), entries->end(), std::back_inserter(all));
    }
    return all;
}

class FakeJournal final : public journal::Journal {
   public:
    explicit FakeJournal(Disk& disk) : disk_(disk) {}

    void start(Hooks hooks) override { hooks_ = std::move(hooks); }
    void append(const journal::JobKey& job, std::vector<journal::Entry> entries,
                std::function<void()> done) override {
        waiting_.push_back({job, std::move(entries), std::move(done)});
        if (!is_slow) {
            write();
        }
    }
    void end(const journal::JobKey& job) override {
        waiting_.push_back({job, {}, nullptr});
        if (!is_slow) {
            write();
        }
    }

    void write() {
        for (Waiting& next : std::exchange(waiting_, {})) {
            Kept& kept = disk_[next.job];
            if (next.done == nullptr) {
                kept.ended = true;
                continue;
            }
            if (kept.ended) {
                kept = {};  // Two daemons within one millisecond of the wall clock.
            }
            for (std::string& record : journal::to_records(next.entries)) {
                kept.records.push_back(std::move(record));
            }
            next.done();
        }
    }
    void lead() {
        std::vector<journal::KeptJob> jobs;
        for (const auto& [key, kept] : disk_) {
            if (!kept.ended && !kept.records.empty()) {
                jobs.push_back(journal::kept({key, read(kept.records), false}));
            }
        }
        hooks_.lead(std::move(jobs));
    }
    void follow() {
        waiting_.clear();
        hooks_.follow("10.0.0.9:29400");
    }

    bool is_slow = false;

   private:
    struct Waiting {
        journal::JobKey job;
        std::vector<journal::Entry> entries;
        std::function<void()> done;  ///< Null: the job ends.
    };

    Disk& disk_;
    Hooks hooks_;
    std::vector<Waiting> waiting_;
};

class FakeClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override { return now_; }
    void pass(Duration time) { now_ = after(now_, time); }

   private:
    Instant now_ = Instant(std::chrono::seconds(1));  // Timers are due at once: see run_timers.
};

/// Hands the messages of the daemon to the story.
class HeardSession final : public Session {
   public:
    using Hear = std::function<void(const Session& session, const FromDaemon& message)>;

    HeardSession(tcp::socket socket, Hear hear)
        : Session(std::move(socket), {}, 1, Duration::zero()), hear_(std::move(hear)) {
        peer = {"10.0.0.2:1", "10.0.0.2"};
    }
    void send(const FromDaemon& message) override {
        if (is_open()) {
            hear_(*this, message);
        }
    }

   private:
    Hear hear_;
};

class Story {
   public:
    explicit Story(fuzz::Input& input) : input_(input), policy_(fuzz::make_policy(input)) {
        start(input.chance(192));
    }

    void run() {
        for (int events = 0; events < kEventsMax && !input_.empty(); ++events) {
            clock_.pass(std::chrono::milliseconds(input_.byte()));
            one_event();
            end_closed();
        }
        if (journal_ != nullptr) {
            journal_->write();
        }
        check_disk();
        if (input_.chance(128)) {
            table_->stop("ops", "the end");
        } else {
            table_->resign([] {});
        }
        table_->operators().end_waits();
    }

   private:
    struct Peer {
        std::shared_ptr<Session> session{};
        std::string job{};
        std::string node{};
        NodeReport report{};
        std::optional<FromDaemon> word{};
    };

    void start(bool with_journal) {
        table_ = std::make_unique<JobTable>(io_, clock_, limits(), peers_log_,
                                            [](const std::string&) {});
        journal_ = nullptr;
        if (with_journal) {
            auto journal = std::make_unique<FakeJournal>(disk_);
            journal_ = journal.get();
            table_->use(std::move(journal), [](const std::string&) {});
            journal_->lead();
            run_timers();
        }
    }

    static DaemonLimits limits() {
        DaemonLimits limits;
        limits.jobs_max = 3;
        return limits;
    }

    void one_event() {
        const std::uint8_t kind = input_.byte();
        Peer& peer = peers_[kind % kSessions];
        const fuzz::Near near{peer.report.round, peer.report.step, 0};
        switch (kind / kSessions % 16) {
            case 0:
            case 1:
            case 2:
                join(peer, near);
                break;
            case 3:
            case 4:
            case 5:
                if (auto message =
                        fuzz::received(Report{fuzz::make_report(input_, near, peer.report)})) {
                    peer.report = std::get<Report>(*message).report;
                    hear(peer, *message);
                }
                break;
            case 6:
            case 7:
                for (Peer& other : peers_) {
                    other.report =
                        other.word ? fuzz::obeyed(*other.word, other.report) : other.report;
                    hear(other, Report{other.report});
                }
                break;
            case 8:
                if (auto message = fuzz::received(fuzz::make_resumed(input_, near))) {
                    hear(peer, *message);
                }
                break;
            case 9:
                hear(peer, Leave{input_.text(4), input_.chance(64)});
                break;
            case 10:
                operate(peer);
                break;
            case 11:
                if (peer.session) {
                    peer.session->close();
                }
                break;
            case 12:
                clock_.pass(std::min<Duration>(fuzz::make_duration(input_), std::chrono::hours(1)));
                run_timers();
                break;
            case 13:
                table_->sweep();
                break;
            case 14:
                change_journal();
                break;
            default:
                clock_.pass(std::chrono::milliseconds(200));
                run_timers();
        }
    }

    void join(Peer& peer, const fuzz::Near& near) {
        if (!peer.session || input_.chance(128)) {
            open(peer);
        }
        if (peer.node.empty() || input_.chance(64)) {
            peer.node = fuzz::node_name(input_.byte());
            peer.job = input_.chance(192) ? "job" : "other";
        }
        const JobPolicy policy = input_.chance(16) ? fuzz::make_policy(input_) : policy_;
        const Offer offer = fuzz::make_offer(input_, peer.node);
        if (auto message = fuzz::received(Join{peer.job, peer.node, policy, offer,
                                               fuzz::make_report(input_, near, peer.report)})) {
            peer.report = std::get<Join>(*message).report;
            hear(peer, *message);
        }
    }

    void operate(Peer& peer) {
        if (!peer.session || input_.chance(128)) {
            open(peer);
        }
        Operate request;
        request.action = input_.one_of({Operate::Action::drain, Operate::Action::logs,
                                        Operate::Action::release, Operate::Action::stop});
        request.job = input_.chance(64) ? "" : "job";
        request.node = fuzz::node_name(input_.byte());
        request.wait = input_.chance(128);
        hear(peer, request);
    }

    void change_journal() {
        if (journal_ == nullptr) {
            return;
        }
        switch (input_.below(5)) {
            case 0:
                journal_->is_slow = true;
                break;
            case 1:
                journal_->is_slow = false;
                journal_->write();
                break;
            case 2:
                journal_->follow();
                break;
            case 3:
                journal_->follow();
                journal_->lead();
                run_timers();
                break;
            default:  // The daemon is killed, and another one reads what is kept.
                check_disk();
                for (Peer& peer : peers_) {
                    peer.session.reset();
                }
                start(true);
        }
    }

    void open(Peer& peer) {
        if (peer.session) {
            peer.session->close();
            table_->end(peer.session);
        }
        tcp::socket socket(io_, tcp::v4());
        peer.session = std::make_shared<HeardSession>(
            std::move(socket),
            [this](const Session& session, const FromDaemon& message) { send(session, message); });
        peer.word.reset();
    }

    void hear(Peer& peer, const FromAgent& message) {
        if (peer.session && peer.session->is_open()) {
            table_->handle(peer.session, message);
        }
    }

    void send(const Session& session, const FromDaemon& message) {
        const std::optional<FromDaemon> received = fuzz::received(message);
        fuzz::require(received.has_value(), "the receiver of a message can decode it");
        for (Peer& peer : peers_) {
            if (peer.session.get() == &session) {
                peer.word = received;
            }
        }
    }

    /// As Daemon does when the read of a closed connection ends.
    void end_closed() {
        for (Peer& peer : peers_) {
            if (peer.session && !peer.session->stream.is_open()) {
                table_->end(std::exchange(peer.session, nullptr));
            }
        }
    }

    /// The clock of the timers is far ahead of ours: each is due at once, and set again.
    void run_timers() {
        for (int turns = 0; turns < 8; ++turns) {
            io_.restart();
            io_.poll_one();
        }
    }

    void check_disk() {
        for (const auto& [key, kept] : disk_) {
            if (kept.records.empty()) {
                continue;
            }
            const Result<journal::Replayed> replayed = journal::replay(
                journal::kept({key, read(kept.records), false}), [](const std::string&) {});
            if (!replayed) {
                fuzz::fail("the journal cannot be replayed: " + replayed.error().detail);
            }
            fuzz::require(replayed->is_same(), "the journal replays to the same assignments");
        }
    }

    fuzz::Input& input_;
    const JobPolicy policy_;
    boost::asio::io_context io_{1};
    FakeClock clock_;
    DaemonCounters counters_;
    PeerLog peers_log_{clock_, counters_, [](const std::string&) {}};
    Disk disk_;
    std::array<Peer, kSessions> peers_{};
    std::unique_ptr<JobTable> table_;
    FakeJournal* journal_ = nullptr;
};

std::vector<std::string> seeds() {
    return fuzz::random_seeds();
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    Story(input).run();
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_job_table
