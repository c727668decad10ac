// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/journal/etcd_journal_impl.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/net/await.h"

namespace regroup::journal {

namespace {

using net::kAwait;

constexpr Duration kPollInterval = std::chrono::milliseconds(200);
constexpr std::int64_t kPageEntries = 256;
constexpr Duration kPageLimit = std::chrono::seconds(10);
constexpr std::size_t kReasonsMax = 4;

/// Ends the lease, so that others need not wait for the rest of it.
asio::awaitable<void> revoke(EtcdClient& client, std::int64_t lease) {
    json request = {{"ID", std::to_string(lease)}};
    static_cast<void>(co_await client.call("/v3/lease/revoke", std::move(request), kEtcdCallLimit));
}

}  // namespace

asio::awaitable<void> wait_on(asio::steady_timer& timer, Duration span) {
    timer.expires_after(span);
    co_await timer.async_wait(kAwait);
}

asio::awaitable<void> EtcdJournal::Impl::run(Self self) {
    while (!self->closed) {
        const Result<std::optional<std::string>> leader = co_await ask_leader(self);
        if (self->closed) {
            break;
        }
        if (leader && *leader && self->following != *leader) {
            self->follow(**leader);
        }
        if (leader && !*leader && co_await win(self)) {
            co_await lead(self);
        } else {
            co_await wait_on(self->pause, kPollInterval);
        }
    }
}

void EtcdJournal::Impl::follow(const std::string& leader) {
    following = leader;
    outage.forget_writes();
    etcd_is_back();
    const bool own = leader == options.advertise;
    hooks.log(own ? "etcd still has the lead of an earlier process of this daemon; this one "
                    "campaigns when that lease has ended"
                  : "the daemon at " + leader + " leads; this one waits");
    // An agent that is sent to the daemon that it asked would only ask again.
    hooks.follow(own ? "" : leader);
}

asio::awaitable<void> EtcdJournal::Impl::lead(Self self) {
    self->elected = true;
    self->keeping = true;
    ++self->term.number;
    self->watch_lease();
    // `keep` renews the lease while the jobs are read, however long that takes.
    asio::co_spawn(self->io, keep(self), asio::detached);
    std::vector<etcd::JobsReader::Job> jobs;
    const bool ready = co_await load(self, &jobs);
    if (ready && self->elected && !self->closed) {
        self->take_up(std::move(jobs));
    }
    while ((self->elected || self->keeping) && !self->closed) {
        co_await wait_on(self->pause, kPollInterval);
    }
    self->lease_timer.cancel();
    if (!self->closed) {
        co_await revoke(self->lead_client, self->term.lease);
        co_await wait_on(self->pause, 2 * kPollInterval);  // Other daemons go first.
    }
}

// Uses this daemon's clock and no connection to etcd.
void EtcdJournal::Impl::watch_lease() {
    lease_timer.expires_after(std::max(Duration::zero(), term.lease_ends - clock.now()));
    lease_timer.async_wait([weak = self](const boost::system::error_code& error) {
        const Self impl = weak.lock();
        if (error || !impl || !impl->elected || impl->closed) {
            return;
        }
        if (impl->clock.now() < impl->term.lease_ends) {
            impl->watch_lease();
        } else {
            impl->lose("etcd has not renewed the lease in time");
        }
    });
}

asio::awaitable<void> EtcdJournal::Impl::give_back(Self self, std::function<void()> done) {
    EtcdClient client(self->io, client_options(self->options));
    co_await revoke(client, self->term.lease);
    done();
}

asio::awaitable<Result<std::optional<std::string>>> EtcdJournal::Impl::ask_leader(Self self) {
    json request = etcd::range(self->leader_key(), self->leader_key(), 1);
    const Result<json> answer =
        co_await self->lead_client.call("/v3/kv/range", std::move(request), kEtcdCallLimit);
    if (!answer) {
        self->complain(answer.error());
        co_return answer.error();
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
        co_await self->lead_client.call("/v3/lease/grant", std::move(grant), kEtcdCallLimit);
    if (!granted) {
        self->complain(granted.error(), /*writes=*/true);
        co_return false;
    }
    self->term.lease = etcd::number_in(*granted, "ID");
    self->term.lease_ends = after(asked, std::chrono::seconds(etcd::number_in(*granted, "TTL")));
    json wish = etcd::campaign(self->leader_key(), self->options.advertise, self->term.lease);
    const Result<json> answer =
        co_await self->lead_client.call("/v3/kv/txn", std::move(wish), kEtcdCallLimit);
    if (!answer) {
        self->complain(answer.error(), /*writes=*/true);
        // The campaign may have succeeded without an answer.
        co_await revoke(self->lead_client, self->term.lease);
        co_return false;
    }
    if (field_of(*answer, "succeeded") != true) {
        co_await revoke(self->lead_client, self->term.lease);
        co_return false;
    }
    self->etcd_is_back(/*writes=*/true);
    self->term.revision = etcd::number_in(field_of(*answer, "header"), "revision");
    co_return true;
}

asio::awaitable<bool> EtcdJournal::Impl::load(Self self, std::vector<etcd::JobsReader::Job>* jobs) {
    const std::string prefix = self->options.prefix + "jobs/";
    etcd::JobsReader reader(self->options.prefix);
    std::string first = prefix;
    bool more = true;
    while (more && self->elected && !self->closed) {
        json request = etcd::range(first, prefix, kPageEntries);
        const Result<json> page =
            co_await self->lead_client.call("/v3/kv/range", std::move(request), kPageLimit);
        if (!self->elected || self->closed) {
            break;
        }
        if (!page) {
            self->complain(page.error());
            co_await wait_on(self->pause, kEtcdRetryInterval);
            continue;
        }
        // Page by page: between two pages the lease is renewed and agents are answered.
        for (etcd::KeyValue& pair : etcd::pairs_in(*page)) {
            first = pair.key + '\0';
            reader.read(std::move(pair));
        }
        more = field_of(*page, "more") == true;
    }
    *jobs = reader.take();
    co_return !more;
}

void EtcdJournal::Impl::take_up(std::vector<etcd::JobsReader::Job> jobs) {
    leading = true;
    following.reset();
    writes.forget_jobs();
    std::vector<KeptJob> handed_over;
    for (etcd::JobsReader::Job& job : jobs) {
        writes.take_up(job.job.key, job.records, job.bytes);
        handed_over.push_back(std::move(job.job));
    }
    hooks.log("this daemon leads");
    hooks.lead(std::move(handed_over));
}

asio::awaitable<void> EtcdJournal::Impl::keep(Self self) {
    const Duration interval = self->options.lease / 3;
    Duration wait = interval;
    while (self->elected && !self->closed) {
        co_await wait_on(self->keep_pause, wait);
        const Instant asked = self->clock.now();
        if (!self->elected || self->closed || asked >= self->term.lease_ends) {
            break;  // The timer decides at the end of the lease.
        }
        json renewal = {{"ID", std::to_string(self->term.lease)}};
        const Duration limit = std::min(interval, self->term.lease_ends - asked);
        const Result<json> answer =
            co_await self->lease_client.call("/v3/lease/keepalive", std::move(renewal), limit);
        if (!self->elected || self->closed) {
            break;
        }
        if (!answer) {
            self->complain(answer.error());
            wait = std::min(kEtcdRetryInterval,
                            std::max(Duration::zero(), self->term.lease_ends - self->clock.now()));
            continue;
        }
        const std::int64_t seconds = etcd::number_in(field_of(*answer, "result"), "TTL");
        if (seconds <= 0) {
            self->lose("its lease has ended");
            break;
        }
        self->etcd_is_back();
        self->term.lease_ends = after(asked, std::chrono::seconds(seconds));
        self->watch_lease();
        wait = interval;
    }
    self->keeping = false;
    self->pause.cancel();
}

void EtcdJournal::Impl::lose(const std::string& why) {
    if (!elected) {
        return;
    }
    elected = false;
    const bool led = std::exchange(leading, false);
    writes.clear();
    stalled_since = Instant::max();
    cancel_timers();
    if (!led) {
        hooks.log("this daemon has lost the lead before it had read the jobs: " + why);
        return;
    }
    hooks.log("this daemon no longer leads: " + why +
              "; running rounds continue, and their agents look for the next leader");
    hooks.follow("");
}

void EtcdJournal::Impl::complain(const Failure& failure, bool writes_fail) {
    if (closed || !outage.begin(failure.detail, writes_fail)) {
        return;
    }
    if (!elected) {
        hooks.log(failure.detail + "; this daemon cannot lead before etcd answers");
        return;
    }
    hooks.log(failure.detail + "; running rounds continue, decisions wait until etcd is back" +
              (writes_fail ? ""
                           : ", and this daemon leads for at most " +
                                 format_duration(term.lease_ends - clock.now()) + " more"));
}

void EtcdJournal::Impl::etcd_is_back(bool written) {
    if (outage.end(written)) {
        hooks.log("etcd is back");
    }
}

bool EtcdOutage::begin(const std::string& reason, bool writes) {
    of_writes_ = of_writes_ || writes;
    reason_ = reason;
    return said_.size() < kReasonsMax && said_.insert(reason).second;
}

bool EtcdOutage::end(bool written) {
    of_writes_ = of_writes_ && !written;
    if (reason_.empty() || of_writes_) {
        return false;
    }
    reason_.clear();
    said_.clear();
    return true;
}

}  // namespace regroup::journal
