// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_journal.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/journal/etcd_journal_impl.h"
#include "rendezvous/journal/etcd_requests.h"

namespace regroup::journal {

namespace {

// etcd takes 128 operations and 1.5 MiB in a transaction, keys and values in base64 not counted.
constexpr std::size_t kOperationsMax = 100;
constexpr std::size_t kBatchBytesMax = std::size_t{900} << 10U;

}  // namespace

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
            co_await self->write_client.call("/v3/kv/txn", std::move(request), kEtcdCallLimit);
        if (self->term != term || !self->leading || self->closed) {
            continue;
        }
        if (!answer) {
            // Written or not: the same keys get the same values.
            self->complain(answer.error());
            co_await wait_on(&self->write_pause, kEtcdRetryInterval);
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

void EtcdJournal::Impl::cancel_timers() {
    for (asio::steady_timer* timer : {&pause, &keep_pause, &write_pause, &lease_timer}) {
        timer->cancel();
    }
}

asio::awaitable<void> EtcdJournal::Impl::give_back(Self self, std::function<void()> done) {
    EtcdClient client(self->io, self->options.endpoints);
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
    impl_->hooks = {[](const std::vector<StoredJob>&) {}, [](const std::string&) {},
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
    std::size_t& count = impl_->entries[job];
    if (entries.empty() || count >= kEntriesMax) {
        done();
        return;
    }
    const std::string prefix = etcd::job_prefix(impl_->options.prefix, job);
    if (count == 0) {
        impl_->queue({etcd::put(prefix + "head", etcd::head_value(job)), 1024, nullptr});
    }
    const auto put = [&](const Entry& entry, std::function<void()> then) {
        const std::string value = encode(entry);
        impl_->queue(
            {etcd::put(etcd::entry_key(prefix, ++count), value), value.size(), std::move(then)});
    };
    for (const Entry& entry : std::span(entries).first(entries.size() - 1)) {
        put(entry, nullptr);
    }
    put(entries.back(), std::move(done));
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
