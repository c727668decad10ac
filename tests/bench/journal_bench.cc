// SPDX-License-Identifier: Apache-2.0
//
// The size of a job's journal, and the time that the next daemon takes to read it. Elastic nodes
// lose a worker in every simulated second of training. The daemon's jobs and its SQLite journal are
// real. The nodes and the time are simulated.
//
//     journal_bench [NODES [ENTRIES...]]
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/server/job_table.h"
#include "tests/bench/report.h"

namespace regroup::bench {
namespace {

namespace asio = boost::asio;
using namespace rendezvous;  // NOLINT: the values of the protocol.
using asio::ip::tcp;
using journal::Entry;
using journal::SqliteJournal;

double cpu_seconds() {
    timespec used{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// A simulated clock, in the past, so that the daemon's timer is always due and reads this clock.
class ImaginedClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override { return now_; }
    void pass(Duration span) { now_ += span; }

   private:
    Instant now_{std::chrono::seconds(1)};
};

/// Counts the entries of a journal.
class CountingJournal final : public journal::Journal {
   public:
    struct Counts {
        std::size_t entries = 0;
        std::size_t appends = 0;
        std::size_t bytes = 0;
    };
    CountingJournal(std::unique_ptr<SqliteJournal> journal, Counts& counts)
        : journal_(std::move(journal)), counts_(counts) {}

    void start(Hooks hooks) override { journal_->start(std::move(hooks)); }
    void append(const journal::JobKey& job, std::vector<Entry> entries,
                std::function<void()> done) override {
        counts_.entries += entries.size();
        ++counts_.appends;
        for (const std::string& record : journal::to_records(entries)) {
            counts_.bytes += record.size();
        }
        journal_->append(job, std::move(entries), std::move(done));
    }
    void end(const journal::JobKey& job) override { journal_->end(job); }

   private:
    std::unique_ptr<SqliteJournal> journal_;
    Counts& counts_;
};

/// Hands the messages of the daemon to the benchmark.
class HeardSession final : public Session {
   public:
    using Hear = std::function<void(const Session& session, const FromDaemon& word)>;

    HeardSession(tcp::socket socket, Hear hear)
        : Session(std::move(socket), {}, 1, Duration::zero()), hear_(std::move(hear)) {}
    void send(const FromDaemon& message) override { hear_(*this, message); }

   private:
    Hear hear_;
};

/// A job whose nodes behave as correct agents.
class Training {
   public:
    Training(const std::string& folder, std::uint32_t nodes, CountingJournal::Counts& counts)
        : nodes_(nodes), table_(io_, clock_, limits(nodes), peers_log_, [](const std::string&) {}) {
        // No limit: the benchmark measures the size.
        auto journal = SqliteJournal::open(folder, 1, SIZE_MAX);
        if (!journal) {
            std::fprintf(stderr, "journal_bench: %s\n", journal.error().detail.c_str());
            std::exit(1);
        }
        table_.use(std::make_unique<CountingJournal>(std::move(*journal), counts),
                   [](const std::string&) {});
        tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        for (std::size_t i = 0; i < nodes; ++i) {
            peers_.emplace_back(io_).connect(acceptor.local_endpoint());
            sessions_.push_back(std::make_shared<HeardSession>(
                acceptor.accept(),
                [this](const auto& session, const auto& word) { hear(session, word); }));
        }
        for (std::size_t i = 0; i < nodes; ++i) {
            join(i);
        }
        run_until_assigned();
    }

    /// Kills a worker of one node. The round ends, and the next one begins.
    void lose_worker(std::size_t node) {
        step_ += 1000;
        heartbeats();
        WorkerFailure failure;
        failure.rank = static_cast<std::uint32_t>(8 * node);
        failure.node = failure.host = name_of(node);
        failure.pid = 12345;
        failure.signal = 9;
        failure.time = "2026-11-21 10:05:26";
        report(node, NodeState::stopping, failure);
        for (std::size_t i = 0; i < sessions_.size(); ++i) {
            clock_.pass(std::chrono::microseconds(50));
            if (i != node) {
                report(i, NodeState::stopped);
            }
        }
        report(node, NodeState::stopped, failure);
        run_until_assigned();
    }
    void heartbeats() {
        for (std::size_t i = 0; i < sessions_.size(); ++i) {
            clock_.pass(std::chrono::seconds(1) / sessions_.size());
            report(i, NodeState::running);
        }
        table_.sweep();
    }

   private:
    static DaemonLimits limits(std::uint32_t nodes) {
        DaemonLimits limits;
        limits.sessions_max = std::max<std::size_t>(limits.sessions_max, nodes);
        return limits;
    }
    static std::string name_of(std::size_t i) { return "node" + std::to_string(1000 + i); }

    void join(std::size_t i) {
        Join join;
        join.job = "20261121-100526-9f3c";
        join.offer.name = name_of(i);
        join.offer.workers = 8;
        join.node = join.offer.name + "-12345-00c0ffee";
        join.policy.nodes_min = join.policy.nodes_max = nodes_;
        join.policy.last_call = Duration::zero();
        join.policy.budgets.node_failures_max = 0;
        join.policy.restarts_max = 1U << 20U;
        join.report.store_port = port_of(i);
        table_.handle(sessions_[i], std::move(join));
    }
    static std::uint16_t port_of(std::size_t i) {
        return static_cast<std::uint16_t>(32768 + (i * 7919) % 28000);
    }
    void report(std::size_t i, NodeState state,
                const std::optional<WorkerFailure>& failure = std::nullopt) {
        Report said;
        said.report.round = round_;
        said.report.state = state;
        said.report.store_port = state == NodeState::stopped ? port_of(i) : std::uint16_t{0};
        said.report.elastic = true;
        said.report.failure = failure;
        said.report.step = said.report.held_step = step_;
        table_.handle(sessions_[i], std::move(said));
    }
    void hear(const Session& session, const FromDaemon& word) {
        if (const auto* assign = std::get_if<Assign>(&word)) {
            next_round_ = assign->assignment.round;
            first_ = assign->assignment.group_rank == 0 ? session.membership->node : first_;
            ++assigned_;
        } else if (std::holds_alternative<Refused>(word)) {
            std::fprintf(stderr, "journal_bench: %s is refused\n",
                         session.membership->node.c_str());
            std::exit(1);
        }
    }
    void run_until_assigned() {
        for (int waits = 0; assigned_ < sessions_.size(); ++waits) {
            if (waits == 10000) {
                std::fprintf(stderr, "journal_bench: the round does not form\n");
                std::exit(1);
            }
            clock_.pass(std::chrono::milliseconds(10));
            io_.restart();
            io_.poll_one();
        }
        assigned_ = 0;
        round_ = next_round_;
        for (std::size_t i = 0; i < sessions_.size(); ++i) {
            clock_.pass(std::chrono::microseconds(50));
            report(i, NodeState::running);
        }
        ++step_;
        for (const auto& session : sessions_) {
            if (session->membership->node == first_) {
                table_.handle(session, Resumed{round_, step_, {}, {}, {}});
            }
        }
    }

    const std::uint32_t nodes_;
    asio::io_context io_{1};
    ImaginedClock clock_;
    std::vector<tcp::socket> peers_;
    std::vector<std::shared_ptr<Session>> sessions_;
    DaemonCounters counters_;
    PeerLog peers_log_{clock_, counters_, [](const std::string&) {}};
    JobTable table_;
    RoundId round_ = RoundId::none;
    RoundId next_round_ = RoundId::none;
    NodeId first_;
    std::size_t assigned_ = 0;
    std::uint64_t step_ = 0;
};

/// The result of reading the journal as the next daemon does.
struct Replay {
    double seconds = 0;  // CPU time of this process.
    double worst_slice = 0;
    std::size_t entries = 0;
};

Replay replay(const std::string& folder) {
    Replay result;
    const double began = cpu_seconds();
    const auto opened = SqliteJournal::open(folder, 1);
    if (!opened) {
        std::fprintf(stderr, "journal_bench: %s\n", opened.error().detail.c_str());
        std::exit(1);
    }
    (*opened)->start(
        {[&](std::vector<journal::KeptJob> jobs) {
             for (journal::KeptJob& job : jobs) {
                 journal::JobReader reader(std::move(job));
                 bool more = true;
                 while (more) {
                     const double slice = cpu_seconds();
                     const Result<bool> read =
                         reader.read([&](const Entry&, const Effects&) { ++result.entries; });
                     more = read && *read;
                     if (!read) {
                         std::fprintf(stderr, "journal_bench: %s\n", read.error().detail.c_str());
                     }
                     result.worst_slice = std::max(result.worst_slice, cpu_seconds() - slice);
                 }
             }
         },
         [](const std::string&) {}, [](const std::string&) {}});
    result.seconds = cpu_seconds() - began;
    return result;
}

/// The size of the database with its side files.
std::uintmax_t size_of(const std::string& folder) {
    std::uintmax_t size = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
        size += file.file_size();
    }
    return size;
}

std::uint64_t number_of(const char* text) {
    std::uint64_t number = 0;
    const std::string_view digits(text);
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (number < 1 || number > 100'000'000) {
        std::fprintf(stderr, "usage: journal_bench [NODES [ENTRIES...]]\n");
        std::exit(2);
    }
    return number;
}

int run(std::uint32_t nodes, const std::vector<std::uint64_t>& wanted) {
    std::string folder = std::filesystem::temp_directory_path() / "regroup-journal-bench-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) {
        std::perror("journal_bench: a folder");
        return 1;
    }
    print_head("journal: a job of " + std::to_string(nodes) + " nodes that loses workers");
    Table table({"", "failures", "entries", "MiB written", "MiB of database", "to read, s of CPU",
                 "longest read, ms", "entries/s"});
    CountingJournal::Counts counts;
    bool complete = true;
    for (const std::uint64_t entries : wanted) {
        counts = {};
        std::size_t failures = 0;
        CountingJournal::Counts formed;
        {
            Training training(folder, nodes, counts);
            training.heartbeats();
            formed = counts;
            while (counts.entries < entries) {
                training.lose_worker(failures++ % nodes);
            }
        }
        const Replay read = replay(folder);
        complete = complete && read.entries == counts.entries;
        const double mib = 1024.0 * 1024.0;
        table.add({"", std::to_string(failures), std::to_string(counts.entries),
                   fixed(static_cast<double>(counts.bytes) / mib, 1),
                   fixed(static_cast<double>(size_of(folder)) / mib, 1), fixed(read.seconds, 2),
                   fixed(read.worst_slice * 1000, 1),
                   fixed(static_cast<double>(read.entries) / read.seconds, 0)});
        if (failures > 0) {
            const auto each = static_cast<double>(failures);
            std::printf(
                "a failure: %s entries, %s times written, %s KiB\n",
                fixed(static_cast<double>(counts.entries - formed.entries) / each, 0).c_str(),
                fixed(static_cast<double>(counts.appends - formed.appends) / each, 0).c_str(),
                fixed(static_cast<double>(counts.bytes - formed.bytes) / each / 1024, 1).c_str());
        }
        std::filesystem::remove_all(folder);
    }
    table.print();
    if (!complete) {
        std::fprintf(stderr, "journal_bench: not all that was kept came back\n");
    }
    return complete ? 0 : 1;
}

}  // namespace
}  // namespace regroup::bench

int main(int argc, char** argv) {
    using regroup::bench::number_of;
    const auto nodes = static_cast<std::uint32_t>(argc > 1 ? number_of(argv[1]) : 1000);
    std::vector<std::uint64_t> entries;
    for (int i = 2; i < argc; ++i) {
        entries.push_back(number_of(argv[i]));
    }
    if (entries.empty()) {
        entries = {200'000, 2'000'000};
    }
    return regroup::bench::run(nodes, entries);
}
