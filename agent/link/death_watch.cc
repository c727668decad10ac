// SPDX-License-Identifier: Apache-2.0
#include "agent/link/death_watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <limits>
#include <linux/futex.h>
#include <mutex>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "rendezvous/files/background.h"

namespace regroup::agent {
namespace {

// The kernel's limit for one wait, minus the word that wakes the thread.
constexpr std::size_t kWordsMax = FUTEX_WAITV_MAX - 1;

std::uint64_t address_of(const std::atomic<std::uint32_t>& word) {
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&word));
}

bool is_marked(std::uint32_t word) {
    return (word & FUTEX_OWNER_DIED) != 0;
}

/// Sets the waiters bit of the word if it is held. Returns the value of the word.
std::uint32_t announce_waiter(std::atomic<std::uint32_t>& word) {
    std::uint32_t value = word.load();
    while ((value & FUTEX_TID_MASK) != 0 && (value & FUTEX_WAITERS) == 0 && !is_marked(value) &&
           !word.compare_exchange_weak(value, value | FUTEX_WAITERS)) {
    }
    return (value & FUTEX_TID_MASK) != 0 && !is_marked(value) ? value | FUTEX_WAITERS : value;
}

}  // namespace

/// One thread and its words.
class DeathWatch::Lane {
   public:
    explicit Lane(int news_fd) : news_fd_(news_fd) {
        const files::AllSignalsBlocked blocked;  // The event loop handles them.
        thread_ = std::thread([this] { run(); });
    }
    ~Lane() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        rouse();
        thread_.join();
    }
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    /// False if the lane is full.
    bool add(std::uint64_t key, std::shared_ptr<SharedPage> page) {
        {
            const std::lock_guard lock(mutex_);
            if (watched_.size() >= kWordsMax) {
                return false;
            }
            watched_.push_back({key, std::move(page)});
        }
        rouse();
        return true;
    }
    /// False if the lane does not watch the key.
    bool remove(std::uint64_t key) {
        {
            const std::lock_guard lock(mutex_);
            std::erase(dead_, key);
            if (std::erase_if(watched_, [key](const Watched& w) { return w.key == key; }) == 0) {
                return false;
            }
        }
        rouse();
        return true;
    }
    [[nodiscard]] std::vector<std::uint64_t> take_dead() {
        const std::lock_guard lock(mutex_);
        return std::exchange(dead_, {});
    }

   private:
    struct Watched {
        std::uint64_t key = 0;
        std::shared_ptr<SharedPage> page;
    };

    void rouse() {
        turn_.fetch_add(1);
        ::syscall(SYS_futex, &turn_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
    }

    void run() {
        for (;;) {
            // Read this before the list: then a later change makes the wait return at once.
            const std::uint32_t turn = turn_.load();
            std::vector<Watched> watched;
            {
                const std::lock_guard lock(mutex_);
                if (stopping_) {
                    return;
                }
                watched = watched_;
            }
            if (!report_marked(watched) && !wait(turn, watched)) {
                return;
            }
        }
    }

    /// True if a word was marked.
    bool report_marked(const std::vector<Watched>& watched) {
        bool any = false;
        for (const Watched& one : watched) {
            if (is_marked((*one.page)->alive.load())) {
                const std::lock_guard lock(mutex_);
                if (std::erase_if(watched_, [&](const Watched& w) {
                        return w.key == one.key && w.page == one.page;
                    }) > 0) {
                    dead_.push_back(one.key);
                    any = true;
                }
            }
        }
        if (any) {
            ::eventfd_write(news_fd_, 1);
        }
        return any;
    }

    /// Waits until a word changes. False if this kernel cannot wait for several words.
    bool wait(std::uint32_t turn, const std::vector<Watched>& watched) {
        std::array<futex_waitv, FUTEX_WAITV_MAX> words{};
        words[0] = {turn, address_of(turn_), FUTEX_32 | FUTEX_PRIVATE_FLAG, 0};
        unsigned count = 1;
        for (const Watched& one : watched) {
            std::atomic<std::uint32_t>& alive = (*one.page)->alive;
            const std::uint32_t value = announce_waiter(alive);
            if (is_marked(value)) {
                return true;
            }
            words[count++] = {value, address_of(alive), FUTEX_32, 0};
        }
        const long result = ::syscall(SYS_futex_waitv, words.data(), count, 0, nullptr, 0);
        return result >= 0 || errno == EAGAIN || errno == EINTR;
    }

    const int news_fd_;
    std::atomic<std::uint32_t> turn_{0};  ///< Changes with the fields below.
    std::mutex mutex_;
    std::vector<Watched> watched_;
    std::vector<std::uint64_t> dead_;
    bool stopping_ = false;
    std::thread thread_;
};

DeathWatch::DeathWatch(std::function<void(std::uint64_t key)> on_death)
    : on_death_(std::move(on_death)) {}

DeathWatch::~DeathWatch() = default;

Result<std::unique_ptr<DeathWatch>> DeathWatch::start(
    boost::asio::io_context& io, std::function<void(std::uint64_t key)> on_death) {
    std::unique_ptr<DeathWatch> watch(new DeathWatch(std::move(on_death)));
    UniqueFd news(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!news) {
        return system_failure("eventfd", errno);
    }
    auto readable =
        ReadableWatch::open(io, std::move(news), [held = watch.get()] { held->handle_readable(); });
    if (!readable) {
        return readable.error();
    }
    watch->news_.emplace(*std::move(readable));
    watch->news_->arm();
    return watch;
}

void DeathWatch::add(std::uint64_t key, std::shared_ptr<SharedPage> page) {
    remove(key);
    for (const std::unique_ptr<Lane>& lane : lanes_) {
        if (lane->add(key, page)) {
            return;
        }
    }
    try {
        lanes_.push_back(std::make_unique<Lane>(news_->fd()));
    } catch (const std::system_error&) {
        return;  // No thread could be started. The end of the process tells its death later.
    }
    lanes_.back()->add(key, std::move(page));
}

void DeathWatch::remove(std::uint64_t key) {
    for (const std::unique_ptr<Lane>& lane : lanes_) {
        if (lane->remove(key)) {
            return;
        }
    }
}

void DeathWatch::handle_readable() {
    eventfd_t count = 0;
    ::eventfd_read(news_->fd(), &count);
    news_->arm();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        for (const std::uint64_t key : lanes_[i]->take_dead()) {
            on_death_(key);
        }
    }
}

}  // namespace regroup::agent
