// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_journal.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "rendezvous/journal/etcd_client.h"
#include "rendezvous/journal/etcd_requests.h"

namespace regroup::journal {

namespace {

namespace asio = boost::asio;
using nlohmann::json;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kCallLimit = std::chrono::seconds(1);
constexpr Duration kPollInterval = std::chrono::milliseconds(200);
constexpr Duration kRetryInterval = std::chrono::milliseconds(100);
constexpr std::int64_t kPageEntries = 256;
// etcd takes 128 operations and 1.5 MiB in a transaction, keys and values in base64 not counted.
constexpr std::size_t kOperationsMax = 100;
constexpr std::size_t kBatchBytesMax = std::size_t{900} << 10U;

}  // namespace

struct EtcdJournal::Impl {
    Impl(asio::io_context& io_in, const Clock& clock_in, Options options_in)
        : io(io_in),
          clock(clock_in),
          options(std::move(options_in)),
          lead_client(io_in, options.endpoints),
          write_client(io_in, options.endpoints),
          pause(io_in),
          write_pause(io_in) {}

    /// One operation on its way, and whom to tell.
    struct Write {
        json operation;
        std::size_t bytes = 0;
        std::function<void()> done;
    };
    using Self = std::shared_ptr<Impl>;

    static asio::awaitable<void> run(Self self);
    /// The endpoint of who leads, or nothing; false in `known` if etcd did not say.
    static asio::awaitable<std::optional<std::string>> ask_leader(Self self, bool* known);
    static asio::awaitable<bool> win(Self self);
    static asio::awaitable<bool> load(Self self, std::vector<StoredJob>* jobs);
    static asio::awaitable<void> hold(Self self);
    static asio::awaitable<void> write(Self self);
    static asio::awaitable<void> give_back(Self self, std::function<void()> done);
    static asio::awaitable<void> sleep(asio::steady_timer* timer, Duration span);

    void take_up(std::vector<StoredJob> jobs);
    void queue(Write write);
    /// The next operations that go together.
    [[nodiscard]] json next_batch(std::size_t* count) const;
    void lose(const std::string& why);
    void complain(const Failure& failure);
    void etcd_is_back();
    [[nodiscard]] std::string leader_key() const { return options.prefix + "leader"; }

    std::weak_ptr<Impl> self;
    asio::io_context& io;
    const Clock& clock;
    const Options options;
    Hooks hooks;
    EtcdClient lead_client;
    EtcdClient write_client;
    asio::steady_timer pause;
    asio::steady_timer write_pause;

    std::int64_t lease = 0;
    Instant lease_ends{};
    std::int64_t revision = 0;  ///< In which our key was created: the fence.
    bool leading = false;
    std::uint64_t term = 0;  ///< Counts the times that the lead was won.
    std::optional<std::string> following;
    std::map<JobKey, std::size_t> entries;  ///< How many each job has.
    std::deque<Write> writes;
    bool writing = false;
    bool away = false;
    bool closed = false;
};

// ---- Who leads.

asio::awaitable<void> EtcdJournal::Impl::sleep(asio::steady_timer* timer, Duration span) {
    timer->expires_after(span);
    co_await timer->async_wait(kAwait);
}

asio::awaitable<void> EtcdJournal::Impl::run(Self self) {
    while (!self->closed) {
        bool known = false;
        const std::optional<std::string> leader = co_await ask_leader(self, &known);
        if (self->closed) {
            break;
        }
        const bool is_news = known && leader && self->following != leader;
        if (is_news) {
            self->following = leader;
            self->hooks.log("the daemon at " + *leader + " leads; this one waits");
            self->hooks.follow(*leader);
        }
        const bool won = known && !leader && co_await win(self);
        std::vector<StoredJob> jobs;
        const bool ready = won && !self->closed && co_await load(self, &jobs);
        if (ready && !self->closed) {
            self->take_up(std::move(jobs));
            co_await hold(self);
        } else {
            co_await sleep(&self->pause, kPollInterval);
        }
    }
}

asio::awaitable<std::optional<std::string>> EtcdJournal::Impl::ask_leader(Self self, bool* known) {
    json request = etcd::range(self->leader_key(), self->leader_key(), 1);
    const Result<json> answer =
        co_await self->lead_client.call("/v3/kv/range", std::move(request), kCallLimit);
    *known = answer.has_value();
    if (!answer) {
        self->complain(answer.error());
        co_return std::nullopt;
    }
    self->etcd_is_back();
    const std::vector<etcd::KeyValue> pairs = etcd::pairs_in(*answer);
    co_return pairs.empty() ? std::nullopt : std::optional(pairs.front().value);
}

asio::awaitable<bool> EtcdJournal::Impl::win(Self self) {
    const Instant asked = self->clock.now();
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(self->options.lease).count();
    json grant = {{"TTL", std::to_string(seconds)}};
    const Result<json> granted =
        co_await self->lead_client.call("/v3/lease/grant", std::move(grant), kCallLimit);
    if (!granted) {
        self->complain(granted.error());
        co_return false;
    }
    self->lease = etcd::number_in(*granted, "ID");
    self->lease_ends = after(asked, std::chrono::seconds(etcd::number_in(*granted, "TTL")));
    json wish = etcd::campaign(self->leader_key(), self->options.advertise, self->lease);
    const Result<json> answer =
        co_await self->lead_client.call("/v3/kv/txn", std::move(wish), kCallLimit);
    if (!answer) {
        self->complain(answer.error());
        co_return false;  // If it was done all the same, the lease soon ends.
    }
    if (etcd::field_of(*answer, "succeeded") != true) {
        json revoke = {{"ID", std::to_string(self->lease)}};
        static_cast<void>(
            co_await self->lead_client.call("/v3/lease/revoke", std::move(revoke), kCallLimit));
        co_return false;
    }
    self->revision = etcd::number_in(etcd::field_of(*answer, "header"), "revision");
    co_return true;
}

asio::awaitable<bool> EtcdJournal::Impl::load(Self self, std::vector<StoredJob>* jobs) {
    const std::string prefix = self->options.prefix + "jobs/";
    std::vector<etcd::KeyValue> pairs;
    std::string first = prefix;
    bool more = true;
    while (more) {
        json request = etcd::range(first, prefix, kPageEntries);
        const Result<json> page =
            co_await self->lead_client.call("/v3/kv/range", std::move(request), kCallLimit);
        if (!page || self->clock.now() >= self->lease_ends) {
            if (!page) {
                self->complain(page.error());
            }
            co_return false;
        }
        for (etcd::KeyValue& pair : etcd::pairs_in(*page)) {
            first = pair.key + '\0';
            pairs.push_back(std::move(pair));
        }
        more = etcd::field_of(*page, "more") == true;
    }
    *jobs = etcd::jobs_of(pairs, self->hooks.log);
    co_return true;
}

void EtcdJournal::Impl::take_up(std::vector<StoredJob> jobs) {
    leading = true;
    ++term;
    following.reset();
    entries.clear();
    for (const StoredJob& job : jobs) {
        entries[job.key] = job.entries.size();
    }
    hooks.log("this daemon leads");
    hooks.lead(std::move(jobs));
}

asio::awaitable<void> EtcdJournal::Impl::hold(Self self) {
    const Duration interval = self->options.lease / 3;
    Duration wait = Duration::zero();
    while (self->leading && !self->closed) {
        co_await sleep(&self->pause, wait);
        const Instant asked = self->clock.now();
        if (!self->leading || self->closed) {
            break;
        }
        if (asked >= self->lease_ends) {
            self->lose("etcd has not renewed the lease in time");
            break;
        }
        json renewal = {{"ID", std::to_string(self->lease)}};
        const Duration limit = std::min(interval, self->lease_ends - asked);
        const Result<json> answer =
            co_await self->lead_client.call("/v3/lease/keepalive", std::move(renewal), limit);
        if (!self->leading || self->closed) {
            break;
        }
        if (!answer) {
            self->complain(answer.error());
            wait = std::min(kRetryInterval,
                            std::max(Duration::zero(), self->lease_ends - self->clock.now()));
            continue;
        }
        const std::int64_t seconds = etcd::number_in(etcd::field_of(*answer, "result"), "TTL");
        if (seconds <= 0) {
            self->lose("its lease has ended");
            break;
        }
        self->etcd_is_back();
        self->lease_ends = after(asked, std::chrono::seconds(seconds));
        wait = interval;
    }
}

void EtcdJournal::Impl::lose(const std::string& why) {
    if (!leading) {
        return;
    }
    leading = false;
    writes.clear();
    pause.cancel();
    write_pause.cancel();
    hooks.log("this daemon leads no more: " + why +
              "; running rounds go on, and their agents look for the daemon that leads next");
    hooks.follow("");
}

void EtcdJournal::Impl::complain(const Failure& failure) {
    if (!away && !closed) {
        away = true;
        hooks.log(failure.detail + "; running rounds go on, decisions wait until etcd is back" +
                  (leading ? ", and this daemon leads for at most " +
                                 format_duration(lease_ends - clock.now()) + " more"
                           : ""));
    }
}

void EtcdJournal::Impl::etcd_is_back() {
    if (away) {
        away = false;
        hooks.log("etcd is back");
    }
}

// ---- Records.

void EtcdJournal::Impl::queue(Write next) {
    if (!leading || closed) {
        return;
    }
    writes.push_back(std::move(next));
    if (!writing) {
        writing = true;
        asio::co_spawn(io, write(self.lock()), asio::detached);
    }
}

json EtcdJournal::Impl::next_batch(std::size_t* count) const {
    json operations = json::array();
    std::size_t bytes = 0;
    for (const Write& next : writes) {
        bytes += next.bytes;
        // A transaction must not touch a key twice: what deletes goes alone.
        const bool deletes = next.operation.contains("requestDeleteRange");
        if (operations.size() == kOperationsMax ||
            (*count > 0 && (bytes > kBatchBytesMax || deletes))) {
            break;
        }
        operations.push_back(next.operation);
        ++*count;
        if (deletes) {
            break;
        }
    }
    return operations;
}

asio::awaitable<void> EtcdJournal::Impl::write(Self self) {
    while (self->leading && !self->closed && !self->writes.empty()) {
        const std::uint64_t term = self->term;
        std::size_t count = 0;
        json batch = self->next_batch(&count);
        json request = etcd::fenced(self->leader_key(), self->revision, std::move(batch));
        const Result<json> answer =
            co_await self->write_client.call("/v3/kv/txn", std::move(request), kCallLimit);
        if (self->term != term || !self->leading || self->closed) {
            continue;
        }
        if (!answer) {
            // Written or not: the same keys get the same values.
            self->complain(answer.error());
            co_await sleep(&self->write_pause, kRetryInterval);
            continue;
        }
        if (etcd::field_of(*answer, "succeeded") != true) {
            self->lose("another daemon has taken the lead");
            break;
        }
        std::vector<std::function<void()>> done;
        for (; count > 0; --count) {
            done.push_back(std::move(self->writes.front().done));
            self->writes.pop_front();
        }
        for (const auto& tell : done) {
            if (tell) {
                tell();
            }
        }
    }
    self->writing = false;
}

asio::awaitable<void> EtcdJournal::Impl::give_back(Self self, std::function<void()> done) {
    EtcdClient client(self->io, self->options.endpoints);
    json revoke = {{"ID", std::to_string(self->lease)}};
    static_cast<void>(co_await client.call("/v3/lease/revoke", std::move(revoke), kCallLimit));
    done();
}

EtcdJournal::EtcdJournal(asio::io_context& io, const Clock& clock, Options options)
    : impl_(std::make_shared<Impl>(io, clock, std::move(options))) {
    impl_->self = impl_;
}

EtcdJournal::~EtcdJournal() {
    impl_->closed = true;
    impl_->hooks = {[](std::vector<StoredJob>) {}, [](const std::string&) {},
                    [](const std::string&) {}};
    impl_->writes.clear();
    impl_->lead_client.close();
    impl_->write_client.close();
    impl_->pause.cancel();
    impl_->write_pause.cancel();
}

void EtcdJournal::start(Hooks hooks) {
    impl_->hooks = std::move(hooks);
    asio::co_spawn(impl_->io, Impl::run(impl_), asio::detached);
}

void EtcdJournal::append(const JobKey& job, std::vector<Entry> entries,
                         std::function<void()> done) {
    std::size_t& count = impl_->entries[job];
    if (count >= kEntriesMax) {
        done();
        return;
    }
    const std::string prefix = etcd::job_prefix(impl_->options.prefix, job);
    if (count == 0) {
        impl_->queue({etcd::put(prefix + "head", etcd::head_value(job)), 1024, nullptr});
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const std::string value = encode(entries[i]);
        const bool last = i + 1 == entries.size();
        impl_->queue({etcd::put(etcd::entry_key(prefix, ++count), value), value.size(),
                      last ? std::move(done) : nullptr});
    }
    if (count >= kEntriesMax) {
        impl_->hooks.log("job " + job.id + " has " + std::to_string(count) +
                         " entries in etcd: they are deleted, and if the lead changes now, the job "
                         "is formed anew by its nodes");
        impl_->queue({etcd::delete_prefix(prefix), 1024, nullptr});
    }
}

void EtcdJournal::end(const JobKey& job) {
    impl_->entries.erase(job);
    impl_->queue(
        {etcd::delete_prefix(etcd::job_prefix(impl_->options.prefix, job)), 1024, nullptr});
}

void EtcdJournal::resign(std::function<void()> done) {
    if (!impl_->leading) {
        done();
        return;
    }
    impl_->leading = false;
    impl_->closed = true;  // It does not campaign again.
    impl_->writes.clear();
    impl_->pause.cancel();
    impl_->write_pause.cancel();
    asio::co_spawn(impl_->io, Impl::give_back(impl_, std::move(done)), asio::detached);
}

}  // namespace regroup::journal
