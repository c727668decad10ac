// SPDX-License-Identifier: Apache-2.0
//
// The pages of a daemon, without the door before them.
#include "rendezvous/server/daemon_pages.h"

#include <cstddef>
#include <memory>

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

class TestViewer final : public http::Viewer {
   public:
    [[nodiscard]] bool is_open() const override { return true; }
    void push(std::shared_ptr<const std::string> /*event*/) override {}
    void show(std::shared_ptr<const std::string> /*state*/) override {}
    void close() override {}
};

TEST(DaemonPages, ViewersThatAreGoneAreForgottenWhileOthersCome) {
    boost::asio::io_context io;  // It never runs, as if all viewers came at once.
    const SteadyClock clock;
    JobTable::Hooks hooks;
    hooks.log = [](const std::string&) {};
    JobTable jobs(io, clock, {}, std::move(hooks));
    DaemonPages pages(io, clock, jobs, [] { return DaemonCounters(); }, [](const std::string&) {});
    int viewers = 0;
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

}  // namespace
}  // namespace regroup::rendezvous
