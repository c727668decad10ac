// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "rendezvous/journal/etcd_journal_impl.h"
#include "rendezvous/journal/etcd_requests.h"

namespace regroup::journal {

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr Duration kPollInterval = std::chrono::milliseconds(200);
constexpr std::int64_t kPageEntries = 256;

}  // namespace

asio::awaitable<void> EtcdJournal::Impl::wait_on(asio::steady_timer* timer, Duration span) {
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
            co_await wait_on(&self->pause, kPollInterval);
        }
    }
}

asio::awaitable<std::optional<std::string>> EtcdJournal::Impl::ask_leader(Self self, bool* known) {
    json request = etcd::range(self->leader_key(), self->leader_key(), 1);
    const Result<json> answer =
        co_await self->lead_client.call("/v3/kv/range", std::move(request), kEtcdCallLimit);
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
        co_await self->lead_client.call("/v3/lease/grant", std::move(grant), kEtcdCallLimit);
    if (!granted) {
        self->complain(granted.error());
        co_return false;
    }
    self->lease = etcd::number_in(*granted, "ID");
    self->lease_ends = after(asked, std::chrono::seconds(etcd::number_in(*granted, "TTL")));
    json wish = etcd::campaign(self->leader_key(), self->options.advertise, self->lease);
    const Result<json> answer =
        co_await self->lead_client.call("/v3/kv/txn", std::move(wish), kEtcdCallLimit);
    if (!answer) {
        self->complain(answer.error());
        co_return false;  // If it was done all the same, the lease soon ends.
    }
    if (etcd::field_of(*answer, "succeeded") != true) {
        json revoke = {{"ID", std::to_string(self->lease)}};
        static_cast<void>(
            co_await self->lead_client.call("/v3/lease/revoke", std::move(revoke), kEtcdCallLimit));
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
            co_await self->lead_client.call("/v3/kv/range", std::move(request), kEtcdCallLimit);
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
        co_await wait_on(&self->pause, wait);
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
            wait = std::min(kEtcdRetryInterval,
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

}  // namespace regroup::journal
