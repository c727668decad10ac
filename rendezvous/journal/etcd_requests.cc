// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/etcd_requests.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/security/base64.h"

namespace regroup::journal::etcd {

using nlohmann::json;
using security::from_base64;
using security::to_base64;

namespace {

/// The first key after all keys that begin with `prefix`, whose last byte is below 255.
std::string behind(std::string prefix) {
    ++prefix.back();
    return prefix;
}

/// The job of "BEGAN-ID", as job_prefix() has it.
std::optional<JobKey> key_in(std::string_view name) {
    JobKey key;
    const char* const end = name.data() + name.size();
    const auto [after, error] = std::from_chars(name.data(), end, key.began_ms);
    if (error != std::errc() || after == end || *after != '-') {
        return std::nullopt;
    }
    std::string_view id(after + 1, static_cast<std::size_t>(end - after - 1));
    while (!id.empty()) {
        const bool slash = id.starts_with("%2F");
        const bool escaped = slash || id.starts_with("%25");
        key.id += escaped ? (slash ? '/' : '%') : id.front();
        id.remove_prefix(escaped ? 3 : 1);
    }
    return key;
}

json compare_created(const std::string& key, std::int64_t revision) {
    return {{"target", "CREATE"},
            {"result", "EQUAL"},
            {"key", to_base64(key)},
            {"create_revision", std::to_string(revision)}};
}

}  // namespace

std::int64_t number_in(const json& object, const char* field) {
    const json& value = field_of(object, field);
    if (value.is_number_integer()) {
        return value.get<std::int64_t>();
    }
    return value.is_string()
               ? parse_number<std::int64_t>(value.get_ref<const std::string&>()).value_or(0)
               : 0;
}

std::vector<KeyValue> pairs_in(const json& range) {
    std::vector<KeyValue> pairs;
    for (const json& pair : field_of(range, "kvs")) {
        const json& key = field_of(pair, "key");
        const json& value = field_of(pair, "value");  // Absent when it is empty.
        auto key_bytes = key.is_string() ? from_base64(key.get<std::string>()) : std::nullopt;
        auto bytes = value.is_string() ? from_base64(value.get<std::string>())
                                       : std::optional(std::string());
        if (key_bytes && bytes) {
            pairs.push_back({std::move(*key_bytes), std::move(*bytes)});
        }
    }
    return pairs;
}

json put(const std::string& key, const std::string& value, std::int64_t lease) {
    json request = {{"key", to_base64(key)}, {"value", to_base64(value)}};
    if (lease != 0) {
        request["lease"] = std::to_string(lease);
    }
    return {{"requestPut", std::move(request)}};
}

json delete_prefix(const std::string& prefix) {
    return {{"requestDeleteRange",
             {{"key", to_base64(prefix)}, {"range_end", to_base64(behind(prefix))}}}};
}

json range(const std::string& first, const std::string& prefix, std::int64_t count) {
    return {{"key", to_base64(first)},
            {"range_end", to_base64(behind(prefix))},
            {"limit", std::to_string(count)}};
}

json campaign(const std::string& leader_key, const std::string& endpoint, std::int64_t lease) {
    return {{"compare", json::array({compare_created(leader_key, 0)})},
            {"success", json::array({put(leader_key, endpoint, lease)})},
            {"failure", json::array({{{"requestRange", {{"key", to_base64(leader_key)}}}}})}};
}

json fenced(const std::string& leader_key, std::int64_t revision, json operations) {
    return {{"compare", json::array({compare_created(leader_key, revision)})},
            {"success", std::move(operations)}};
}

std::string job_prefix(const std::string& prefix, const JobKey& job) {
    char began[24];
    std::snprintf(began, sizeof began, "%016lld", static_cast<long long>(job.began_ms));
    std::string id;
    for (const char c : job.id) {
        if (c == '/' || c == '%') {
            id += c == '/' ? "%2F" : "%25";
        } else {
            id += c;
        }
    }
    return prefix + "jobs/" + began + "-" + id + "/";
}

std::string entry_key(const std::string& job_prefix, std::size_t number) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%012zu", number);
    return job_prefix + "entry/" + digits;
}

std::string head_value(const JobKey& job, std::size_t records) {
    return json_text(json({{"job", job.id}, {"began_ms", job.began_ms}, {"records", records}}));
}

Refusal refusal_in(unsigned status, const json& answer) {
    // The texts are part of etcd's interface: its numbers do not tell these cases from others, and
    // its own clients compare the texts, too.
    static const std::map<std::string, Refusal> kKnown = {
        {"etcdserver: user name is empty", Refusal::token},
        {"etcdserver: invalid auth token", Refusal::token},
        {"etcdserver: revision of auth store is old", Refusal::token},
        {"etcdserver: authentication failed, invalid user ID or password", Refusal::password},
        {"etcdserver: authentication is not enabled", Refusal::login_off},
        {"etcdserver: permission denied", Refusal::permission},
    };
    constexpr unsigned kBadRequest = 400;
    const json& text = field_of(answer, "error");
    if (!text.is_string()) {
        return Refusal::other;
    }
    const auto known = kKnown.find(text.get<std::string>());
    if (known != kKnown.end()) {
        return known->second;
    }
    return status == kBadRequest ? Refusal::request : Refusal::other;
}

void JobsReader::read(KeyValue pair) {
    std::string_view rest = pair.key;
    if (!rest.starts_with(jobs_prefix_)) {
        return;
    }
    rest.remove_prefix(jobs_prefix_.size());
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    const std::optional<JobKey> key = key_in(rest.substr(0, slash));
    rest.remove_prefix(slash);
    if (!key || (rest != "/head" && !rest.starts_with("/entry/"))) {
        return;
    }
    if (key_ && *key_ != *key) {
        finish(std::nullopt);
    }
    key_ = key;
    if (rest == "/head") {
        // In order of keys a job's records come before its head.
        const json head = parse_json(pair.value);
        finish(static_cast<std::size_t>(number_in(head, "records")));
        return;
    }
    bytes_ += pair.value.size();
    records_.push_back(std::move(pair.value));
}

void JobsReader::finish(std::optional<std::size_t> stored) {
    Job& job = jobs_.emplace_back();
    job.job.key = *std::exchange(key_, std::nullopt);
    job.records = records_.size();
    job.bytes = std::exchange(bytes_, 0);
    std::optional<Failure> damage;
    if (!stored) {
        damage = Failure(Errc::invalid_argument, "its head is missing in etcd");
    } else if (*stored != records_.size()) {
        damage = cut_back(*stored, records_.size());
    }
    // Each record is freed once it has been read: together with the decoded entries they are large.
    const auto rest = std::make_shared<std::deque<std::string>>(std::exchange(records_, {}));
    job.job.next = [rest, damage, number = std::size_t{0}]() mutable -> Result<std::vector<Entry>> {
        if (damage) {
            return *damage;
        }
        if (rest->empty()) {
            return std::vector<Entry>();
        }
        const std::string record = std::move(rest->front());
        rest->pop_front();
        return decode_numbered(++number, record);
    };
}

std::vector<JobsReader::Job> JobsReader::take() {
    if (key_) {
        finish(std::nullopt);
    }
    return std::move(jobs_);
}

}  // namespace regroup::journal::etcd
