// SPDX-License-Identifier: Apache-2.0
//
// The pages of a daemon, without the door before them.
#include "rendezvous/server/daemon_pages.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace regroup::rendezvous {
namespace {

/// Counts what is allocated and not yet freed.
template <typename T>
struct Counting {
    using value_type = T;

    explicit Counting(int& count_in) : count(&count_in) {}
    template <typename U>
    explicit Counting(const Counting<U>& other) : count(other.count) {}
    T* allocate(std::size_t size) {
        ++*count;
        return std::allocator<T>().allocate(size);
    }
    void deallocate(T* place, std::size_t size) {
        --*count;
        std::allocator<T>().deallocate(place, size);
    }
    friend bool operator==(const Counting& a, const Counting& b) { return a.count == b.count; }

    int* count;
};

class TestClock final : public Clock {
   public:
    [[nodiscard]] Instant now() const noexcept override { return time; }
    Instant time{std::chrono::hours(1)};
};

class TestViewer final : public http::Viewer {
   public:
    [[nodiscard]] bool is_open() const override { return true; }
    void push(std::shared_ptr<const std::string> /*event*/) override {}
    void show(std::shared_ptr<const std::string> /*state*/) override {}
    void close() override {}
    void finish() override {}
};

TEST(DaemonPages, ViewersThatAreGoneAreForgottenWhileOthersCome) {
    int viewers = 0;
    boost::asio::io_context io;  // It never runs, as if all viewers came at once.
    const SteadyClock clock;
    DaemonCounters counters;
    PeerLog peers_log(clock, counters, [](const std::string&) {});
    JobTable jobs(io, clock, {}, peers_log, [](const std::string&) {});
    DaemonPages pages(io, clock, jobs, [] { return DaemonCounters(); }, [](const std::string&) {});
    for (int i = 0; i < 1000; ++i) {
        http::Request request;
        request.path = "/api/v1/stream";
        pages.answer(request, [&](const http::Answer& answer) {
            ASSERT_TRUE(answer.stream);
            answer.stream(std::allocate_shared<TestViewer>(Counting<TestViewer>(viewers)));
        });
    }
    EXPECT_LE(viewers, 2);
}

TEST(SharedTexts, TextIsRenderedOnceForAllWhoAskAtTheSameTime) {
    TestClock clock;
    SharedTexts texts(clock, 1000);
    int rendered = 0;
    const auto render = [&] { return std::to_string(++rendered); };

    EXPECT_EQ(*texts.get("a", render), "1");
    EXPECT_EQ(*texts.get("a", render), "1");
    EXPECT_EQ(*texts.get("b", render), "2");
    EXPECT_EQ(*texts.renew("a", render), "3");
    EXPECT_EQ(*texts.get("a", render), "3");
    clock.time += std::chrono::milliseconds(250);
    EXPECT_EQ(*texts.get("a", render), "4");
}

TEST(SharedTexts, RenewalsTakeASmallPartOfTheTime) {
    TestClock clock;
    SharedTexts texts(clock, 1000);
    int rendered = 0;
    const auto render = [&] {
        clock.time += std::chrono::milliseconds(10);
        return std::to_string(++rendered);
    };
    for (int i = 0; i < 1000; ++i) {
        texts.renew("a", render);
    }
    const int at_once = rendered;
    EXPECT_GT(at_once, 10);
    EXPECT_LT(at_once, 100);
    clock.time += std::chrono::seconds(1);
    for (int i = 0; i < 1000; ++i) {
        texts.renew("a", render);
    }
    EXPECT_LT(rendered, at_once + 10) << "a twentieth of a second";
}

}  // namespace
}  // namespace regroup::rendezvous
