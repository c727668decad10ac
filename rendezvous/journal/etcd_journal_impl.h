// SPDX-License-Identifier: Apache-2.0
//
// The election is in etcd_leadership.cc, the writing of entries in etcd_journal.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/journal/etcd_client.h"
#include "rendezvous/journal/etcd_journal.h"
#include "rendezvous/journal/etcd_requests.h"

namespace regroup::journal {

namespace asio = boost::asio;
using nlohmann::json;

inline constexpr Duration kEtcdCallLimit = std::chrono::seconds(1);
inline constexpr Duration kEtcdRetryInterval = std::chrono::milliseconds(100);

struct EtcdJournal::Impl {
    Impl(asio::io_context& io_in, const Clock& clock_in, Options options_in)
        : io(io_in),
          clock(clock_in),
          options(std::move(options_in)),
          lead_client(io_in, client_options()),
          lease_client(io_in, client_options()),
          write_client(io_in, client_options()),
          pause(io_in),
          keep_pause(io_in),
          lease_timer(io_in),
          write_pause(io_in) {}

    /// One pending operation and its callback.
    struct Write {
        JobKey job;
        json operation;
        std::size_t bytes = 0;
        std::function<void()> done;
        std::size_t record = 0;  ///< Its number; 0 of a deletion.

        [[nodiscard]] bool deletes() const { return record == 0; }
    };
    using Self = std::shared_ptr<Impl>;

    static asio::awaitable<void> run(Self self);
    /// The leader's endpoint, or nullopt if there is none. Sets `known` to false if etcd did not
    /// answer.
    static asio::awaitable<std::optional<std::string>> ask_leader(Self self, bool* known);
    static asio::awaitable<bool> win(Self self);
    static asio::awaitable<bool> load(Self self, std::vector<etcd::JobsReader::Job>* jobs);
    /// From the election to the end of the term.
    static asio::awaitable<void> lead(Self self);
    /// Renews the lease during the term.
    static asio::awaitable<void> keep(Self self);
    static asio::awaitable<void> revoke(Self self);
    static asio::awaitable<void> write(Self self);
    static asio::awaitable<void> give_back(Self self, std::function<void()> done);
    static asio::awaitable<void> wait_on(asio::steady_timer* timer, Duration span);

    void follow(const std::string& leader);
    void watch_lease();
    void take_up(std::vector<etcd::JobsReader::Job> jobs);
    void queue(Write write);
    /// Drops the waiting entries of the job, calls their `done`, and keeps no more of it. Requires
    /// that no write is in flight.
    void give_up_on(const JobKey& job, const std::string& why);
    /// etcd will never accept the first of the writes.
    void give_up_on_first(const std::string& why);
    /// Gives up on the jobs that have most bytes waiting, while there are too many. Requires that
    /// no write is in flight.
    void make_room();
    void forget_entries(const JobKey& job);
    /// The first `count` writes are done.
    void confirm(std::size_t count);
    [[nodiscard]] bool has_stalled() const;
    /// The next operations for one transaction, and the time limit for it.
    [[nodiscard]] json next_batch(std::size_t count_max, std::size_t* count, Duration* limit) const;
    void lose(const std::string& why);
    void cancel_timers();
    /// Logs each reason once, until etcd is back, that it does not answer or does not write. Only a
    /// successful write shows that it writes again.
    void complain(const Failure& failure, bool writes = false);
    void etcd_is_back(bool writes = false);
    [[nodiscard]] EtcdClient::Options client_options() const {
        return {options.endpoints, options.access, options.prefix};
    }
    [[nodiscard]] std::string leader_key() const { return options.prefix + "leader"; }

    std::weak_ptr<Impl> self;
    asio::io_context& io;
    const Clock& clock;
    const Options options;
    Hooks hooks;
    EtcdClient lead_client;
    EtcdClient lease_client;
    EtcdClient write_client;
    asio::steady_timer pause;
    asio::steady_timer keep_pause;
    asio::steady_timer lease_timer;  ///< Due when the lease may have ended.
    asio::steady_timer write_pause;

    std::int64_t lease = 0;
    Instant lease_ends{};
    std::int64_t revision = 0;  ///< The revision that created the leader's key: the fencing token.
    bool elected = false;       ///< This daemon's leader key exists, as far as it knows.
    bool keeping = false;       ///< `keep` runs.
    bool leading = false;       ///< Elected, and the jobs have been handed over.
    std::uint64_t term = 0;     ///< Counts the times that the lead was won.
    std::optional<std::string> following;
    /// The size of a job in etcd.
    struct Kept {
        std::size_t records = 0;
        std::size_t bytes = 0;
    };
    std::map<JobKey, Kept> kept;
    std::deque<Write> writes;
    std::size_t writes_bytes = 0;
    Instant stalled_since = Instant::max();  ///< The first write has failed since then.
    bool writing = false;
    bool away = false;
    bool away_for_writes = false;
    std::set<std::string> said;  ///< Of the reasons, the first few.
    std::string away_because;
    bool closed = false;
};

}  // namespace regroup::journal
