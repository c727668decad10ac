// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_journal.h"

#include <algorithm>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/journal/etcd_journal_impl.h"

namespace regroup::journal {

namespace {

// etcd takes 128 operations and 1.5 MiB in a transaction, keys and values in base64 not counted.
// Each record may need the head of its job.
constexpr std::size_t kRecordsMax = 60;
constexpr std::size_t kBatchBytesMax = std::size_t{900} << 10U;
// Extra time for a large write on a busy machine: 4 s for a MiB.
constexpr Duration kTimeOfByte = std::chrono::microseconds(4);

}  // namespace

void EtcdJournal::Impl::queue(Write next) {
    if (!leading || closed) {
        return;
    }
    writes_bytes += next.bytes;
    writes.push_back(std::move(next));
    if (!writing) {
        writing = true;
        asio::co_spawn(io, write(self.lock()), asio::detached);
    }
}

json EtcdJournal::Impl::next_batch(std::size_t count_max, std::size_t* count,
                                   Duration* limit) const {
    json operations = json::array();
    std::map<JobKey, std::size_t> records;  // The last one of each job.
    std::size_t bytes = 0;
    *limit = kEtcdCallLimit;
    for (const Write& next : writes) {
        bytes += next.bytes;
        // A transaction must not touch a key twice: a delete goes alone.
        if (operations.size() == count_max ||
            (*count > 0 && (bytes > kBatchBytesMax || next.deletes()))) {
            break;
        }
        operations.push_back(next.operation);
        ++*count;
        *limit += static_cast<Duration::rep>(next.bytes) * kTimeOfByte;
        if (next.deletes()) {
            break;
        }
        records[next.job] = next.record;
    }
    for (const auto& [job, last] : records) {
        operations.push_back(
            etcd::put(etcd::job_prefix(options.prefix, job) + "head", etcd::head_value(job, last)));
    }
    return operations;
}

void EtcdJournal::Impl::confirm(std::size_t count) {
    std::vector<std::function<void()>> done;
    for (; count > 0; --count) {
        writes_bytes -= writes.front().bytes;
        done.push_back(std::move(writes.front().done));
        writes.pop_front();
    }
    for (const auto& tell : done) {
        if (tell) {
            tell();
        }
    }
}

void EtcdJournal::Impl::forget_entries(const JobKey& job) {
    const auto found = kept.find(job);
    if (found != kept.end()) {
        found->second.bytes = kJobBytesMax;
    }
    queue({job, etcd::delete_prefix(etcd::job_prefix(options.prefix, job)), 1024, nullptr});
}

void EtcdJournal::Impl::give_up_on(const JobKey& job, const std::string& why) {
    std::vector<std::function<void()>> done;
    std::erase_if(writes, [&](Write& write) {
        // A job that is over must still go from etcd.
        if (write.job != job || write.deletes()) {
            return false;
        }
        writes_bytes -= write.bytes;
        done.push_back(std::move(write.done));
        return true;
    });
    if (kept.contains(job)) {
        hooks.log(why + "; no more entries of job " + job.id +
                  " are kept: it continues, but if the lead changes now, its nodes form it anew");
        forget_entries(job);
    }
    for (const auto& tell : done) {
        if (tell) {
            tell();
        }
    }
}

void EtcdJournal::Impl::give_up_on_first(const std::string& why) {
    if (writes.front().deletes()) {
        hooks.log(why);
        confirm(1);
        return;
    }
    give_up_on(JobKey(writes.front().job), why);
}

void EtcdJournal::Impl::make_room() {
    while (writes_bytes > options.waiting_bytes_max) {
        std::map<JobKey, std::size_t> waiting;
        for (const Write& write : writes) {
            if (!write.deletes()) {
                waiting[write.job] += write.bytes;
            }
        }
        const auto most = std::ranges::max_element(
            waiting, {}, [](const auto& job_and_bytes) { return job_and_bytes.second; });
        if (most == waiting.end()) {
            return;
        }
        give_up_on(most->first, "etcd is too slow: " + std::to_string(writes_bytes >> 20U) +
                                    " MiB wait for it, most of them of job " + most->first.id);
    }
}

bool EtcdJournal::Impl::has_stalled() const {
    return stalled_since != Instant::max() &&
           clock.now() >= after(stalled_since, options.stall_limit);
}

asio::awaitable<void> EtcdJournal::Impl::write(Self self) {
    std::size_t count_max = kRecordsMax;
    while (self->leading && !self->closed && !self->writes.empty()) {
        self->make_room();
        const std::uint64_t term = self->term;
        std::size_t count = 0;
        Duration limit{};
        json batch = self->next_batch(count_max, &count, &limit);
        json request = etcd::fenced(self->leader_key(), self->revision, std::move(batch));
        const Result<json> answer =
            co_await self->write_client.call("/v3/kv/txn", std::move(request), limit);
        if (self->term != term || !self->leading || self->closed) {
            continue;
        }
        if (!answer && answer.error().code == Errc::invalid_argument) {
            // One of the entries is refused permanently.
            if (count > 1) {
                count_max = 1;
            } else {
                self->give_up_on_first(answer.error().detail);
                count_max = kRecordsMax;
            }
            continue;
        }
        if (!answer) {
            // A repetition is harmless: the same keys get the same values.
            self->complain(answer.error(), /*writes=*/true);
            self->stalled_since = std::min(self->stalled_since, self->clock.now());
            if (self->has_stalled()) {
                self->lose("etcd has written nothing for " +
                           format_duration(self->options.stall_limit) + ": " +
                           answer.error().detail);
                break;
            }
            co_await wait_on(&self->write_pause, kEtcdRetryInterval);
            continue;
        }
        if (etcd::field_of(*answer, "succeeded") != true) {
            self->lose("another daemon has taken the lead");
            break;
        }
        self->stalled_since = Instant::max();
        self->etcd_is_back(/*writes=*/true);
        self->confirm(count);
    }
    self->writing = false;
}

void EtcdJournal::Impl::cancel_timers() {
    for (asio::steady_timer* timer : {&pause, &keep_pause, &write_pause, &lease_timer}) {
        timer->cancel();
    }
}

asio::awaitable<void> EtcdJournal::Impl::give_back(Self self, std::function<void()> done) {
    EtcdClient client(self->io, self->client_options());
    json revoke = {{"ID", std::to_string(self->lease)}};
    static_cast<void>(co_await client.call("/v3/lease/revoke", std::move(revoke), kEtcdCallLimit));
    done();
}

EtcdJournal::EtcdJournal(asio::io_context& io, const Clock& clock, Options options)
    : impl_(std::make_shared<Impl>(io, clock, std::move(options))) {
    impl_->self = impl_;
}

EtcdJournal::~EtcdJournal() {
    impl_->closed = true;
    impl_->hooks = {[](const std::vector<KeptJob>&) {}, [](const std::string&) {},
                    [](const std::string&) {}};
    impl_->writes.clear();
    impl_->lead_client.close();
    impl_->lease_client.close();
    impl_->write_client.close();
    impl_->cancel_timers();
}

void EtcdJournal::start(Hooks hooks) {
    impl_->hooks = std::move(hooks);
    asio::co_spawn(impl_->io, Impl::run(impl_), asio::detached);
}

void EtcdJournal::append(const JobKey& job, std::vector<Entry> entries,
                         std::function<void()> done) {
    Impl::Kept& kept = impl_->kept[job];
    if (entries.empty() || kept.bytes >= kJobBytesMax) {
        done();
        return;
    }
    const std::string prefix = etcd::job_prefix(impl_->options.prefix, job);
    const std::vector<std::string> records = to_records(entries);
    for (const std::string& record : records) {
        kept.bytes += record.size();
        const bool last = &record == &records.back();
        const std::size_t number = ++kept.records;
        impl_->queue({job, etcd::put(etcd::entry_key(prefix, number), numbered(number, record)),
                      record.size(), last ? std::exchange(done, nullptr) : nullptr, number});
    }
    if (kept.bytes >= kJobBytesMax) {
        impl_->hooks.log("job " + job.id + " takes " + std::to_string(kept.bytes >> 20U) +
                         " MiB in etcd: its entries are deleted; if the lead changes now, its "
                         "nodes form the job anew");
        impl_->forget_entries(job);
    }
}

void EtcdJournal::end(const JobKey& job) {
    impl_->kept.erase(job);
    impl_->queue(
        {job, etcd::delete_prefix(etcd::job_prefix(impl_->options.prefix, job)), 1024, nullptr});
}

std::string EtcdJournal::trouble(const JobKey& job) const {
    const auto found = impl_->kept.find(job);
    if (found != impl_->kept.end() && found->second.bytes >= kJobBytesMax) {
        return kTooLarge;
    }
    return impl_->away ? "decisions wait until etcd is back (" + impl_->away_because + ")" : "";
}

void EtcdJournal::resign(std::function<void()> done) {
    if (!impl_->elected) {
        done();
        return;
    }
    impl_->leading = false;
    impl_->elected = false;
    impl_->closed = true;  // It does not campaign again.
    impl_->writes.clear();
    impl_->cancel_timers();
    asio::co_spawn(impl_->io, Impl::give_back(impl_, std::move(done)), asio::detached);
}

}  // namespace regroup::journal
