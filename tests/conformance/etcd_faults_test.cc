// SPDX-License-Identifier: Apache-2.0
//
// The journal in an etcd that is slow, full or picky, simulated by the test in the same thread.
#include <deque>
#include <memory>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "etcd_side.h"
#include "rendezvous/journal/etcd_requests.h"
#include "rendezvous/security/base64.h"
#include "tests/support/matchers.h"

namespace regroup::journal {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using nlohmann::json;
using security::from_base64;
using security::to_base64;

const SteadyClock kClock;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

struct Answer {
    json body = json::object();
    unsigned status = 200;
    Duration delay{};
};

/// Simulates etcd: one lease, one leader's key, and answers that the test sets.
class FakeEtcd {
   public:
    using Rule = std::function<std::optional<Answer>(const std::string& path, const json& request)>;

    explicit FakeEtcd(Loop& loop)
        : io_(loop.io()), acceptor_(loop.io(), tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
        asio::co_spawn(io_, accept(), asio::detached);
    }

    [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

    Rule rule = [](const std::string&, const json&) { return std::nullopt; };
    std::string leader;              // Of the key; empty: there is none.
    std::vector<std::string> paths;  // Of all requests.
    Instant lease_ends{};            // By etcd's clock.
    Duration lease = std::chrono::seconds(5);

    [[nodiscard]] std::size_t count(const std::string& path) const {
        return static_cast<std::size_t>(std::count(paths.begin(), paths.end(), path));
    }
    [[nodiscard]] static bool is_campaign(const json& request) {
        return etcd::number_in(request.at("compare").at(0), "create_revision") == 0;
    }

   private:
    asio::awaitable<void> accept() {
        for (;;) {
            auto [error, socket] = co_await acceptor_.async_accept(kAwait);
            if (error) {
                co_return;
            }
            asio::co_spawn(io_, serve(std::move(socket)), asio::detached);
        }
    }
    asio::awaitable<void> serve(tcp::socket socket) {
        boost::beast::flat_buffer buffer;
        for (;;) {
            http::request<http::string_body> request;
            const auto [read_error, read] =
                co_await http::async_read(socket, buffer, request, kAwait);
            if (read_error) {
                co_return;
            }
            const std::string path = request.target();
            const json body = json::parse(request.body());
            paths.push_back(path);
            std::optional<Answer> answer = rule(path, body);
            if (!answer) {
                answer = usual(path, body);
            }
            asio::steady_timer timer(io_, answer->delay);
            co_await timer.async_wait(kAwait);
            http::response<http::string_body> response(http::status(answer->status), 11);
            response.body() = answer->body.dump();
            response.prepare_payload();
            const auto [write_error, written] =
                co_await http::async_write(socket, response, kAwait);
            if (write_error) {
                co_return;
            }
        }
    }
    void expire() {
        if (kClock.now() >= lease_ends) {
            leader.clear();
        }
    }
    Answer usual(const std::string& path, const json& request) {
        expire();
        const std::string seconds = std::to_string(lease / std::chrono::seconds(1));
        if (path == "/v3/lease/grant") {
            lease_ends = kClock.now() + lease;
            return {{{"ID", "7"}, {"TTL", seconds}}};
        }
        if (path == "/v3/lease/keepalive") {
            if (leader.empty()) {
                return {{{"result", {{"ID", "7"}}}}};
            }
            lease_ends = kClock.now() + lease;
            return {{{"result", {{"ID", "7"}, {"TTL", seconds}}}}};
        }
        if (path == "/v3/lease/revoke") {
            leader.clear();
        }
        if (path == "/v3/kv/txn" && is_campaign(request)) {
            const json& put = request.at("success").at(0).at("requestPut");
            leader = from_base64(put.at("value").get<std::string>()).value();
            return {{{"succeeded", true}, {"header", {{"revision", "5"}}}}};
        }
        if (path == "/v3/kv/txn") {
            return {{{"succeeded", !leader.empty()}}};
        }
        if (path == "/v3/kv/range" && !leader.empty() &&
            from_base64(request.at("key").get<std::string>()) == "regroup/leader") {
            return {{{"kvs",
                      json::array({{{"key", request.at("key")}, {"value", to_base64(leader)}}})}}};
        }
        return {};
    }

    asio::io_context& io_;
    tcp::acceptor acceptor_;
};

bool reads_jobs(const std::string& path, const json& request) {
    return path == "/v3/kv/range" &&
           from_base64(request.at("key").get<std::string>())->starts_with("regroup/jobs/");
}

class EtcdFaults : public ::testing::Test, protected testing::EtcdSide {
   public:
    // The journal's connections are closed while their event loop still exists.
    ~EtcdFaults() override { journal.reset(); }

   protected:
    EtcdFaults() { leader = "nobody yet"; }
    void start() {
        EtcdJournal::Options options = options_of(etcd.port(), "a");
        configure(options);
        EtcdSide::start(loop, std::move(options));
    }
    std::function<void(EtcdJournal::Options&)> configure = [](EtcdJournal::Options&) {};

    Loop loop;
    FakeEtcd etcd{loop};
};

TEST_F(EtcdFaults, LeaseIsKeptWhileManyJobsAreRead) {
    const StoredJob story = testing::story_of_two_rounds().job();
    int pages = 0;
    // Longer than the lease, in pages as in a real etcd that has much to send.
    etcd.rule = [&](const std::string& path, const json& request) -> std::optional<Answer> {
        if (!reads_jobs(path, request)) {
            return std::nullopt;
        }
        ++pages;
        const bool last = pages == 8;
        const std::string prefix = etcd::job_prefix("regroup/", {"long", 1});
        const std::string key =
            last ? prefix + "head" : etcd::entry_key(prefix, static_cast<std::size_t>(pages));
        const std::string value =
            last ? etcd::head_value({"long", 1}, 7)
                 : numbered(static_cast<std::size_t>(pages), encode(story.entries[0]));
        return Answer{
            {{"kvs", json::array({{{"key", to_base64(key)}, {"value", to_base64(value)}}})},
             {"more", !last}},
            200,
            std::chrono::milliseconds(800)};
    };
    start();
    ASSERT_TRUE(loop.until([&] { return leads; })) << log;
    EXPECT_EQ(etcd.leader, "a:1");
    EXPECT_THAT(log, Not(HasSubstr("lost")));
    ASSERT_EQ(jobs.size(), 1U);
    EXPECT_EQ(jobs[0].entries.size(), 7U);
}

TEST(EtcdJobsReader, JobWithMissingOrMovedRecordsOrWithoutAHeadCannotBeReadAndNoOtherIsHarmed) {
    const std::string record = encode(testing::story_of_two_rounds().job().entries[0]);
    const JobKey damaged{"a/%", 1};
    const std::string prefix = etcd::job_prefix("regroup/", damaged);
    const auto entry = [&](std::size_t place, std::size_t number) {
        return etcd::KeyValue{etcd::entry_key(prefix, place), numbered(number, record)};
    };
    const auto head = [&](std::size_t records) {
        return etcd::KeyValue{prefix + "head", etcd::head_value(damaged, records)};
    };
    const auto can_be_read = [&](const std::vector<etcd::KeyValue>& pairs) {
        etcd::JobsReader reader("regroup/");
        for (const etcd::KeyValue& pair : pairs) {
            reader.read(pair);
        }
        const JobKey whole{"b", 2};
        const std::string next = etcd::job_prefix("regroup/", whole);
        reader.read({etcd::entry_key(next, 1), numbered(1, record)});
        reader.read({next + "head", etcd::head_value(whole, 1)});
        const auto jobs = reader.take();
        EXPECT_EQ(jobs.size(), 2U);
        EXPECT_EQ(jobs.at(0).job.key, damaged);
        EXPECT_EQ(jobs.at(1).job.key, whole);
        EXPECT_TRUE(read_all(jobs.at(1).job));
        return read_all(jobs.at(0).job).has_value();
    };
    EXPECT_TRUE(can_be_read({entry(1, 1), entry(2, 2), entry(3, 3), head(3)}));
    EXPECT_FALSE(can_be_read({entry(2, 2), entry(3, 3), head(3)}));
    EXPECT_FALSE(can_be_read({entry(1, 1), entry(3, 3), head(3)}));
    EXPECT_FALSE(can_be_read({entry(1, 1), entry(2, 2), head(3)}));
    EXPECT_FALSE(can_be_read({entry(1, 1), entry(3, 3), head(2)}));
    EXPECT_FALSE(can_be_read({entry(1, 1), entry(2, 3), entry(3, 2), head(3)}));
    EXPECT_FALSE(can_be_read({entry(1, 1), entry(2, 2), entry(3, 2), head(3)}));
    EXPECT_FALSE(can_be_read({entry(1, 1), entry(2, 2), entry(3, 3), head(2)}));
    EXPECT_FALSE(can_be_read({entry(1, 1), entry(2, 2)}));
    EXPECT_FALSE(can_be_read({head(3)}));
}

TEST_F(EtcdFaults, MissingPageIsRequestedAgain) {
    int pages = 0;
    etcd.rule = [&](const std::string& path, const json& request) -> std::optional<Answer> {
        return reads_jobs(path, request) && ++pages < 3 ? std::optional(Answer{{}, 503, {}})
                                                        : std::nullopt;
    };
    start();
    ASSERT_TRUE(loop.until([&] { return leads; })) << log;
    EXPECT_EQ(pages, 3);
    EXPECT_EQ(etcd.count("/v3/lease/grant"), 1U);
}

TEST_F(EtcdFaults, CampaignWithAnUnknownResultRevokesItsLease) {
    int campaigns = 0;
    etcd.rule = [&](const std::string& path, const json& request) -> std::optional<Answer> {
        if (path == "/v3/kv/txn" && FakeEtcd::is_campaign(request) && ++campaigns == 1) {
            etcd.leader = "a:1";  // The campaign succeeds, but the answer is lost.
            return Answer{{}, 503, {}};
        }
        return std::nullopt;
    };
    start();
    ASSERT_TRUE(loop.until([&] { return leads; })) << log;
    EXPECT_EQ(etcd.count("/v3/lease/revoke"), 1U);
    EXPECT_NE(leader, "a:1");
}

TEST_F(EtcdFaults, EntryThatIsTooLargeEndsTheJournalOfItsJobOnly) {
    const StoredJob story = testing::story_of_two_rounds().job();
    const std::string refused =
        to_base64(etcd::entry_key(etcd::job_prefix("regroup/", {"large", 1}), 2));
    int deleted = 0;
    etcd.rule = [&](const std::string& path, const json& request) -> std::optional<Answer> {
        const std::string text = request.dump();
        deleted += text.find("requestDeleteRange") != std::string::npos ? 1 : 0;
        return path == "/v3/kv/txn" && text.find(refused) != std::string::npos
                   ? std::optional(Answer{{{"error", "request is too large"}}, 400, {}})
                   : std::nullopt;
    };
    start();
    ASSERT_TRUE(loop.until([&] { return leads; })) << log;
    int done = 0;
    for (int i = 0; i < 3; ++i) {
        journal->append({"large", 1}, {story.entries[0]}, [&] { ++done; });
        journal->append({"small", 1}, {story.entries[0]}, [&] { ++done; });
    }
    EXPECT_TRUE(loop.until([&] { return done == 6 && deleted == 1; })) << done << log;
    EXPECT_THAT(log, HasSubstr("no more entries of job large are kept"));
    EXPECT_EQ(journal->trouble({"large", 1}), Journal::kTooLarge);
    EXPECT_EQ(journal->trouble({"small", 1}), "");
    journal->append({"large", 1}, {story.entries[0]}, [&] { ++done; });
    EXPECT_EQ(done, 7);
    EXPECT_TRUE(leads);
}

TEST_F(EtcdFaults, JobThatFillsTheQueueIsGivenUpAndNoOther) {
    etcd.rule = [&](const std::string& path, const json&) -> std::optional<Answer> {
        return leads && path == "/v3/kv/txn"
                   ? std::optional(
                         Answer{{{"succeeded", true}}, 200, std::chrono::milliseconds(50)})
                   : std::nullopt;
    };
    configure = [](EtcdJournal::Options& options) { options.waiting_bytes_max = 32U << 10U; };
    start();
    ASSERT_TRUE(loop.until([&] { return leads; })) << log;
    const Entry entry = testing::story_of_two_rounds().job().entries[0];
    int done = 0;
    journal->append({"small", 1}, {entry}, [&] { ++done; });
    journal->append({"over", 1}, {entry}, [&] { ++done; });
    journal->end({"over", 1});
    for (int i = 0; i < 300; ++i) {
        journal->append({"large", 1}, {entry}, [&] { ++done; });
    }
    journal->append({"small", 1}, {entry}, [&] { ++done; });
    EXPECT_TRUE(loop.until([&] { return done == 303; })) << done << log;
    EXPECT_THAT(log, HasSubstr("no more entries of job large are kept"));
    EXPECT_EQ(journal->trouble({"large", 1}), Journal::kTooLarge);
    EXPECT_EQ(journal->trouble({"small", 1}), "");
    EXPECT_TRUE(leads);
}

TEST_F(EtcdFaults, LeaderThatCannotWriteResignsAndReportsEtcdOnce) {
    bool full = true;
    etcd.rule = [&](const std::string& path, const json&) -> std::optional<Answer> {
        return full && leads && path == "/v3/kv/txn"
                   ? std::optional(Answer{{{"error", "database space exceeded"}}, 429, {}})
                   : std::nullopt;
    };
    configure = [](EtcdJournal::Options& options) {
        options.stall_limit = std::chrono::seconds(6);  // Several renewals of the lease.
    };
    start();
    ASSERT_TRUE(loop.until([&] { return leads; })) << log;
    bool done = false;
    journal->append({"job", 1}, {testing::story_of_two_rounds().job().entries[0]},
                    [&] { done = true; });
    EXPECT_EQ(journal->trouble({"job", 1}), "");
    EXPECT_TRUE(loop.until([&] { return !journal->trouble({"job", 1}).empty(); })) << log;
    EXPECT_THAT(journal->trouble({"job", 1}),
                ContainsRegex("decisions wait until etcd is back .*database space exceeded"));
    ASSERT_TRUE(loop.until([&] { return !leads; })) << log;
    EXPECT_FALSE(done);
    EXPECT_THAT(log, saying("database space exceeded", Not(HasSubstr("\netcd is back"))));
    full = false;
    ASSERT_TRUE(loop.until([&] { return leads; })) << log;
    EXPECT_THAT(log, HasSubstr("\netcd is back"));
    EXPECT_EQ(journal->trouble({"job", 1}), "");
}

TEST_F(EtcdFaults, AgentIsNotSentToTheDaemonThatItAsked) {
    etcd.leader = "a:1";  // Of an earlier process, whose lease is still valid.
    etcd.lease_ends = kClock.now() + std::chrono::seconds(1);
    start();
    ASSERT_TRUE(loop.until([&] { return leader.empty(); })) << leader;
    EXPECT_THAT(log, HasSubstr("an earlier process of this daemon"));
    EXPECT_TRUE(loop.until([&] { return leads; }));
}

}  // namespace
}  // namespace regroup::journal
