// SPDX-License-Identifier: Apache-2.0
//
// The election is in etcd_leadership.cc, the writing of entries in etcd_journal.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/journal/etcd_client.h"
#include "rendezvous/journal/etcd_journal.h"
#include "rendezvous/journal/etcd_requests.h"
#include "rendezvous/journal/etcd_writes.h"

namespace regroup::journal {

namespace asio = boost::asio;
using nlohmann::json;

inline constexpr Duration kEtcdCallLimit = std::chrono::seconds(1);
inline constexpr Duration kEtcdRetryInterval = std::chrono::milliseconds(100);

[[nodiscard]] inline EtcdClient::Options client_options(const EtcdJournal::Options& options) {
    return {options.endpoints, options.access, options.prefix};
}

/// Until the timer has been cancelled, or for `span`.
asio::awaitable<void> wait_on(asio::steady_timer& timer, Duration span);

/// Whether etcd answers, for the log. Pure.
class EtcdOutage {
   public:
    /// A call has failed. `writes`: etcd does not write, so that only a successful write shows that
    /// it is back. True for each reason once, of the first few: with several endpoints each has its
    /// own, and a later one may be the one to act on.
    bool begin(const std::string& reason, bool writes);
    /// A call has succeeded. True if etcd was away and is back now.
    bool end(bool written);
    /// The writes are another daemon's now.
    void forget_writes() noexcept { of_writes_ = false; }
    /// The reason; empty while etcd answers.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

   private:
    bool of_writes_ = false;
    std::set<std::string> said_;
    std::string reason_;
};

struct EtcdJournal::Impl {
    Impl(asio::io_context& io_in, const Clock& clock_in, Options options_in);

    using Self = std::shared_ptr<Impl>;

    static asio::awaitable<void> run(Self self);
    /// The leader's endpoint, or nullopt if there is none. Errors: etcd did not answer.
    static asio::awaitable<Result<std::optional<std::string>>> ask_leader(Self self);
    static asio::awaitable<bool> win(Self self);
    static asio::awaitable<bool> load(Self self, std::vector<etcd::JobsReader::Job>* jobs);
    /// From the election to the end of the term.
    static asio::awaitable<void> lead(Self self);
    /// Renews the lease during the term.
    static asio::awaitable<void> keep(Self self);
    static asio::awaitable<void> give_back(Self self, std::function<void()> done);
    static asio::awaitable<void> write(Self self);

    void follow(const std::string& leader);
    void watch_lease();
    void take_up(std::vector<etcd::JobsReader::Job> jobs);
    void begin_writing();
    void lose(const std::string& why);
    void cancel_timers();
    void complain(const Failure& failure, bool writes = false);
    void etcd_is_back(bool writes = false);
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

    /// Of the lead that was won last.
    struct Term {
        std::uint64_t number = 0;
        std::int64_t lease = 0;
        Instant lease_ends{};
        std::int64_t revision = 0;  ///< At which the leader's key was created: the fencing token.
    };
    Term term;
    bool elected = false;  ///< This daemon's leader key exists, as far as it knows.
    bool keeping = false;  ///< `keep` runs.
    bool leading = false;  ///< Elected, and the jobs have been handed over.
    std::optional<std::string> following;
    EtcdWrites writes;
    Instant stalled_since = Instant::max();  ///< The first write has failed since then.
    bool writing = false;
    EtcdOutage outage;
    bool closed = false;
};

}  // namespace regroup::journal
