// SPDX-License-Identifier: Apache-2.0
//
// The requests of an EtcdJournal to etcd, and etcd's answers, as JSON.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "rendezvous/journal/journal.h"

namespace regroup::journal::etcd {

struct KeyValue {
    std::string key;
    std::string value;
};

/// A 64-bit number, which etcd's JSON has as a string; 0 if it is absent.
[[nodiscard]] std::int64_t number_in(const nlohmann::json& object, const char* field);
[[nodiscard]] std::vector<KeyValue> pairs_in(const nlohmann::json& range);

[[nodiscard]] nlohmann::json put(const std::string& key, const std::string& value,
                                 std::int64_t lease = 0);
[[nodiscard]] nlohmann::json delete_prefix(const std::string& prefix);
/// Keys from `first` on that begin with `prefix`, at most `count`.
[[nodiscard]] nlohmann::json range(const std::string& first, const std::string& prefix,
                                   std::int64_t count);
/// Takes the lead if there is no leader; otherwise asks for the leader.
[[nodiscard]] nlohmann::json campaign(const std::string& leader_key, const std::string& endpoint,
                                      std::int64_t lease);
/// `operations`, on condition that the leader's key was created in `revision`.
[[nodiscard]] nlohmann::json fenced(const std::string& leader_key, std::int64_t revision,
                                    nlohmann::json operations);

// Keys of a job: "jobs/BEGAN-ID/", in which ID has no slash; below it "head" and "entry/NUMBER".

[[nodiscard]] std::string job_prefix(const std::string& prefix, const JobKey& job);
[[nodiscard]] std::string entry_key(const std::string& job_prefix, std::size_t number);
/// `records`: of the job, written so far. The head is written together with the records, so that
/// it tells a reader when the last ones are missing.
[[nodiscard]] std::string head_value(const JobKey& job, std::size_t records);

/// Why etcd does not do what it was asked, as far as the client's next step depends on it.
enum class Refusal : std::uint8_t {
    request,     ///< The request itself can never succeed.
    token,       ///< The token is missing, or no longer valid: log in.
    password,    ///< Wrong user name or password.
    login_off,   ///< etcd asks for no user names.
    permission,  ///< The user may not do this.
    other,
};
/// `answer`: the body of an answer that is not HTTP 200; no object if it was no JSON.
[[nodiscard]] Refusal refusal_in(unsigned status, const nlohmann::json& answer);

/// Builds jobs from the pairs below "jobs/", given one by one in order of their keys. A malformed
/// or missing record, and a missing head, are detected when the job is read.
class JobsReader {
   public:
    struct Job {
        KeptJob job;
        std::size_t records = 0;
        std::size_t bytes = 0;
    };

    /// `prefix`: that of all keys.
    explicit JobsReader(const std::string& prefix) : jobs_prefix_(prefix + "jobs/") {}

    void read(KeyValue pair);
    [[nodiscard]] std::vector<Job> take();

   private:
    /// `stored`: the count of records that the head has; nullopt without a head.
    void finish(std::optional<std::size_t> stored);

    std::string jobs_prefix_;
    std::vector<Job> jobs_;
    std::optional<JobKey> key_;        // Of the records.
    std::deque<std::string> records_;  // Of the job whose head follows.
    std::size_t bytes_ = 0;
};

}  // namespace regroup::journal::etcd
