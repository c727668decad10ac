// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_writes.h"

#include <algorithm>
#include <utility>

#include "rendezvous/journal/etcd_requests.h"

namespace regroup::journal {

namespace {

using nlohmann::json;

// etcd takes 1.5 MiB in a transaction, keys and values in base64 not counted.
constexpr std::size_t kBatchBytesMax = std::size_t{900} << 10U;
constexpr std::size_t kDeletionBytes = 1024;

void call_all(const std::vector<EtcdWrites::Done>& done) {
    for (const EtcdWrites::Done& tell : done) {
        if (tell) {
            tell();
        }
    }
}

}  // namespace

void EtcdWrites::queue(Write write) {
    waiting_bytes_ += write.bytes;
    waiting_.push_back(std::move(write));
}

void EtcdWrites::queue_deletion(const JobKey& job) {
    queue({job, etcd::delete_prefix(etcd::job_prefix(prefix_, job)), kDeletionBytes, nullptr});
}

void EtcdWrites::append(const JobKey& job, const std::vector<Entry>& entries, Done done) {
    Kept& kept = kept_[job];
    const std::string prefix = etcd::job_prefix(prefix_, job);
    const std::vector<std::string> records = to_records(entries);
    for (const std::string& record : records) {
        kept.bytes += record.size();
        const bool last = &record == &records.back();
        const std::size_t number = ++kept.records;
        queue({job, etcd::put(etcd::entry_key(prefix, number), numbered(number, record)),
               record.size(), last ? std::exchange(done, nullptr) : nullptr, number});
    }
    if (kept.bytes >= Journal::kJobBytesMax) {
        log_("job " + job.id + " takes " + std::to_string(kept.bytes >> 20U) +
             " MiB in etcd: its entries are deleted; if the lead changes now, its nodes form the "
             "job anew");
        forget_entries(job);
    }
}

void EtcdWrites::end(const JobKey& job) {
    kept_.erase(job);
    queue_deletion(job);
}

bool EtcdWrites::is_too_large(const JobKey& job) const {
    const auto found = kept_.find(job);
    return found != kept_.end() && found->second.bytes >= Journal::kJobBytesMax;
}

EtcdWrites::Batch EtcdWrites::next(std::size_t count_max) const {
    Batch batch{json::array()};
    std::map<JobKey, std::size_t> records;  // The last one of each job.
    for (const Write& write : waiting_) {
        // A transaction must not touch a key twice: a delete goes alone.
        if (batch.count == count_max ||
            (batch.count > 0 && (batch.bytes + write.bytes > kBatchBytesMax || write.deletes()))) {
            break;
        }
        batch.operations.push_back(write.operation);
        ++batch.count;
        batch.bytes += write.bytes;
        if (write.deletes()) {
            break;
        }
        records[write.job] = write.record;
    }
    for (const auto& [job, last] : records) {
        batch.operations.push_back(
            etcd::put(etcd::job_prefix(prefix_, job) + "head", etcd::head_value(job, last)));
    }
    return batch;
}

void EtcdWrites::confirm(std::size_t count) {
    std::vector<Done> done;
    for (; count > 0; --count) {
        waiting_bytes_ -= waiting_.front().bytes;
        done.push_back(std::move(waiting_.front().done));
        waiting_.pop_front();
    }
    call_all(done);
}

void EtcdWrites::forget_entries(const JobKey& job) {
    const auto found = kept_.find(job);
    if (found != kept_.end()) {
        found->second.bytes = Journal::kJobBytesMax;
    }
    queue_deletion(job);
}

void EtcdWrites::give_up_on(const JobKey& job, const std::string& why) {
    std::vector<Done> done;
    std::erase_if(waiting_, [&](Write& write) {
        // A job that is over must still go from etcd.
        if (write.job != job || write.deletes()) {
            return false;
        }
        waiting_bytes_ -= write.bytes;
        done.push_back(std::move(write.done));
        return true;
    });
    if (kept_.contains(job)) {
        log_(why + "; no more entries of job " + job.id +
             " are kept: it continues, but if the lead changes now, its nodes form it anew");
        forget_entries(job);
    }
    call_all(done);
}

void EtcdWrites::give_up_on_first(const std::string& why) {
    if (waiting_.front().deletes()) {
        log_(why);
        confirm(1);
        return;
    }
    give_up_on(JobKey(waiting_.front().job), why);
}

void EtcdWrites::make_room() {
    while (waiting_bytes_ > bytes_max_) {
        std::map<JobKey, std::size_t> waiting;
        for (const Write& write : waiting_) {
            if (!write.deletes()) {
                waiting[write.job] += write.bytes;
            }
        }
        const auto most = std::ranges::max_element(
            waiting, {}, [](const auto& job_and_bytes) { return job_and_bytes.second; });
        if (most == waiting.end()) {
            return;
        }
        give_up_on(most->first, "etcd is too slow: " + std::to_string(waiting_bytes_ >> 20U) +
                                    " MiB wait for it, most of them of job " + most->first.id);
    }
}

void EtcdWrites::clear() {
    waiting_.clear();
    waiting_bytes_ = 0;
}

}  // namespace regroup::journal
