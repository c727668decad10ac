// SPDX-License-Identifier: Apache-2.0
//
// The JSON that answers an EtcdJournal, and the jobs that it is read into.
#include <nlohmann/json.hpp>

#include "rendezvous/journal/etcd_requests.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/security/base64.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/journal_stories.h"

namespace regroup::fuzz_etcd_replies {
namespace {

using namespace regroup::journal;
using nlohmann::json;
using security::from_base64;
using security::to_base64;

json pair_of(const std::string& key, const std::string& value) {
    return {{"key", to_base64(key)}, {"value", to_base64(value)}};
}

std::vector<std::string> seeds() {
    const StoredJob job = testing::story_of_two_rounds().job();
    const std::string prefix = etcd::job_prefix("/regroup/", job.key);
    json pairs = json::array();
    std::size_t number = 0;
    for (const std::string& record : to_records(job.entries)) {
        pairs.push_back(pair_of(etcd::entry_key(prefix, number + 1), numbered(number + 1, record)));
        ++number;
    }
    pairs.push_back(pair_of(prefix + "head", etcd::head_value(job.key, number)));
    const json small =
        json::array({pair_of("/regroup/jobs/1-a/entry/1", "1 {\"at_us\":1}"),
                     pair_of("/regroup/jobs/1-a/head", etcd::head_value({"a", 1}, 1)),
                     pair_of("/regroup/jobs/2-b%2F/entry/2", "2 {\"at_us\":1}")});
    return {json({{"kvs", pairs}, {"count", "3"}, {"more", true}}).dump(),
            json({{"kvs", small}}).dump(),
            R"({"succeeded":true,"header":{"revision":"12"},"responses":[{"response_range":{}}]})",
            R"({"error":"etcdserver: user name is empty","code":3})",
            R"({"result":{"ID":"7587","TTL":"10"}})"};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    const std::string_view text(reinterpret_cast<const char*>(bytes), count);
    if (const auto decoded = from_base64(text)) {
        fuzz::require(from_base64(to_base64(*decoded)) == decoded, "Base64 loses nothing");
    }
    const json answer = json::parse(text, nullptr, /*allow_exceptions=*/false);
    (void)etcd::number_in(field_of(answer, "header"), "revision");
    (void)etcd::number_in(answer, "TTL");
    etcd::JobsReader reader("/regroup/");
    for (etcd::KeyValue& pair : etcd::pairs_in(answer)) {
        reader.read(std::move(pair));
    }
    for (etcd::JobsReader::Job& job : reader.take()) {
        (void)read_all(job.job);
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_etcd_replies
