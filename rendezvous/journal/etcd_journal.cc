// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_journal.h"

#include <algorithm>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/journal/etcd_journal_impl.h"
#include "rendezvous/json/json_text.h"

namespace regroup::journal {

namespace {

// etcd takes 128 operations in a transaction. Each record may need the head of its job.
constexpr std::size_t kRecordsMax = 60;
// Extra time for a large write on a busy machine: 4 s for a MiB.
constexpr Duration kTimeOfByte = std::chrono::microseconds(4);

}  // namespace

EtcdJournal::Impl::Impl(asio::io_context& io_in, const Clock& clock_in, Options options_in)
    : io(io_in),
      clock(clock_in),
      options(std::move(options_in)),
      lead_client(io_in, client_options(options)),
      lease_client(io_in, client_options(options)),
      write_client(io_in, client_options(options)),
      pause(io_in),
      keep_pause(io_in),
      lease_timer(io_in),
      write_pause(io_in),
      writes(options.prefix, options.waiting_bytes_max,
             [this](const std::string& line) { hooks.log(line); }) {}

void EtcdJournal::Impl::begin_writing() {
    if (!writing && !writes.empty()) {
        writing = true;
        asio::co_spawn(io, write(self.lock()), asio::detached);
    }
}

asio::awaitable<void> EtcdJournal::Impl::write(Self self) {
    std::size_t count_max = kRecordsMax;
    while (self->leading && !self->closed && !self->writes.empty()) {
        self->writes.make_room();
        const std::uint64_t term = self->term.number;
        EtcdWrites::Batch batch = self->writes.next(count_max);
        const std::size_t count = batch.count;
        const Duration limit =
            kEtcdCallLimit + static_cast<Duration::rep>(batch.bytes) * kTimeOfByte;
        json request =
            etcd::fenced(self->leader_key(), self->term.revision, std::move(batch.operations));
        const Result<json> answer =
            co_await self->write_client.call("/v3/kv/txn", std::move(request), limit);
        if (self->term.number != term || !self->leading || self->closed) {
            continue;
        }
        if (!answer && answer.error().code == Errc::invalid_argument) {
            // One of the entries is refused permanently.
            if (count > 1) {
                count_max = 1;
            } else {
                self->writes.give_up_on_first(answer.error().detail);
                count_max = kRecordsMax;
            }
            continue;
        }
        if (!answer) {
            // A repetition is harmless: the same keys get the same values.
            self->complain(answer.error(), /*writes=*/true);
            self->stalled_since = std::min(self->stalled_since, self->clock.now());
            if (self->clock.now() >= after(self->stalled_since, self->options.stall_limit)) {
                self->lose("etcd has written nothing for " +
                           format_duration(self->options.stall_limit) + ": " +
                           answer.error().detail);
                break;
            }
            co_await wait_on(self->write_pause, kEtcdRetryInterval);
            continue;
        }
        if (field_of(*answer, "succeeded") != true) {
            self->lose("another daemon has taken the lead");
            break;
        }
        self->stalled_since = Instant::max();
        self->etcd_is_back(/*writes=*/true);
        self->writes.confirm(count);
    }
    self->writing = false;
}

void EtcdJournal::Impl::cancel_timers() {
    for (asio::steady_timer* timer : {&pause, &keep_pause, &write_pause, &lease_timer}) {
        timer->cancel();
    }
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
    if (entries.empty() || impl_->writes.is_too_large(job)) {
        done();
    } else if (impl_->leading && !impl_->closed) {
        impl_->writes.append(job, entries, std::move(done));
        impl_->begin_writing();
    }
}

void EtcdJournal::end(const JobKey& job) {
    if (impl_->leading && !impl_->closed) {
        impl_->writes.end(job);
        impl_->begin_writing();
    }
}

std::string EtcdJournal::trouble(const JobKey& job) const {
    if (impl_->writes.is_too_large(job)) {
        return kTooLarge;
    }
    const std::string& reason = impl_->outage.reason();
    return reason.empty() ? "" : "decisions wait until etcd is back (" + reason + ")";
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
