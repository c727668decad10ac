// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/worker_link/collectives_writer.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace regroup::worker_link {

namespace {

std::int64_t time_of(std::int64_t given) noexcept {
    if (given != GroupWriter::kNow) {
        return given;
    }
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

CollectivesPage* map_file(const char* path) noexcept {
    const int file = ::open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
    struct stat found{};
    const bool fits = file >= 0 && ::fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                      static_cast<std::size_t>(found.st_size) >= sizeof(CollectivesPage);
    void* const address =
        fits ? ::mmap(nullptr, sizeof(CollectivesPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
             : MAP_FAILED;
    if (file >= 0) {
        ::close(file);
    }
    return address == MAP_FAILED ? nullptr : static_cast<CollectivesPage*>(address);
}

// A wrapper may have started several processes: one of them writes. After its end, another one may.
bool take(CollectivesPage& page) noexcept {
    const auto own = static_cast<std::int32_t>(::getpid());
    std::int32_t before = page.pid.load();
    while (before != own) {
        if (before > 0 && (::kill(before, 0) == 0 || errno != ESRCH)) {
            return false;
        }
        const bool is_new = before != 0;
        if (page.pid.compare_exchange_weak(before, own)) {
            for (CollectiveGroup& group : page.used()) {
                if (is_new) {
                    group.state.store(CollectiveGroup::kFree);
                }
            }
            return true;
        }
    }
    return true;
}

// Never unmapped: threads of NCCL may still write when the process ends.
std::atomic<CollectivesPage*> g_page{nullptr};
// pthread_once, since a static variable in a function would need the C++ library at run time.
pthread_once_t g_opened = PTHREAD_ONCE_INIT;
bool g_watches_forks = false;

// The groups of a forked child are not those of its parent. It may have a page of its own.
void forget_page() noexcept {
    g_page.store(nullptr);
    g_opened = PTHREAD_ONCE_INIT;
}

void open_page() noexcept {
    if (!g_watches_forks) {
        g_watches_forks = true;
        ::pthread_atfork(nullptr, nullptr, forget_page);
    }
    const char* const path = std::getenv(kCollectivesVariable);
    CollectivesPage* const page = path == nullptr || *path == '\0' ? nullptr : map_file(path);
    if (page == nullptr) {
        return;
    }
    if (page->version != kCollectivesVersion || !take(*page)) {
        ::munmap(page, sizeof(CollectivesPage));
        return;
    }
    g_page.store(page);
}

CollectivesPage* page() noexcept {
    ::pthread_once(&g_opened, open_page);
    return g_page.load(std::memory_order_relaxed);
}

void identify(CollectiveGroup& group, const GroupIdentity& identity) noexcept {
    group.backend.store(identity.backend);
    group.id.store(identity.id);
    group.size.store(identity.size);
    group.rank.store(identity.rank);
    group.knows_starts.store(identity.knows_starts ? 1 : 0);
    group.knows_ends.store(identity.knows_ends ? 1 : 0);
    group.looked_at.store(identity.looks_for_ends ? time_of(GroupWriter::kNow) : 0);
    group.name.fill('\0');
    std::copy_n(identity.name.begin(), std::min(identity.name.size(), kGroupNameBytes - 1),
                group.name.begin());
    for (auto* const number :
         {&group.entered, &group.started, &group.completed, &group.messages_entered,
          &group.messages_completed, &group.message}) {
        number->store(0);
    }
    for (auto* const time :
         {&group.started_at, &group.completed_at, &group.spent, &group.message_at}) {
        time->store(0);
    }
    for (auto& longest : group.longest) {
        longest.store(0);
    }
}

void raise_to(std::atomic<std::int64_t>& most, std::int64_t value) noexcept {
    if (value > most.load(std::memory_order_relaxed)) {
        most.store(value, std::memory_order_relaxed);
    }
}

/// Several threads may do so at once.
void raise_to(std::atomic<std::uint32_t>& most, std::uint32_t value) noexcept {
    std::uint32_t before = most.load();
    while (before < value && !most.compare_exchange_weak(before, value)) {
    }
}

}  // namespace

bool GroupWriter::has_page() noexcept {
    return page() != nullptr;
}

GroupWriter::GroupWriter(const GroupIdentity& identity) noexcept {
    CollectivesPage* const place = page();
    if (place == nullptr) {
        return;
    }
    for (CollectiveGroup& group : place->groups) {
        std::uint32_t state = CollectiveGroup::kFree;
        if (group.state.compare_exchange_strong(state, CollectiveGroup::kTaken)) {
            raise_to(place->groups_used,
                     static_cast<std::uint32_t>(&group - place->groups.data()) + 1);
            identify(group, identity);
            group.state.store(CollectiveGroup::kInUse);
            group_ = &group;
            return;
        }
    }
    place->groups_refused.fetch_add(1, std::memory_order_relaxed);
}

GroupWriter::~GroupWriter() {
    if (CollectiveGroup* const ended = group()) {
        ended->state.store(CollectiveGroup::kFree);
    }
}

GroupWriter::GroupWriter(GroupWriter&& other) noexcept
    : group_(std::exchange(other.group_, nullptr)) {}

GroupWriter& GroupWriter::operator=(GroupWriter&& other) noexcept {
    std::swap(group_, other.group_);
    return *this;
}

CollectiveGroup* GroupWriter::group() const noexcept {
    return g_page.load(std::memory_order_relaxed) == nullptr ? nullptr : group_;
}

std::uint64_t GroupWriter::entered(CollectiveSignature signature, std::int64_t at) noexcept {
    CollectiveGroup* const place = group();
    if (place == nullptr) {
        return 0;
    }
    const std::uint64_t number = place->entered.load(std::memory_order_relaxed) + 1;
    const std::size_t slot = number % kSignaturesKept;
    const std::int64_t now = time_of(at);
    if (number > 1 && place->knows_ends.load(std::memory_order_relaxed) == 0) {
        const std::size_t before = (number - 1) % kSignaturesKept;
        raise_to(
            place->longest[time_slot(place->signatures[before].load(std::memory_order_relaxed))],
            now - place->entered_at[before].load(std::memory_order_relaxed));
    }
    place->signatures[slot].store(signature.packed(), std::memory_order_release);
    place->entered_at[slot].store(now, std::memory_order_release);
    place->entered.store(number, std::memory_order_release);
    return number;
}

void GroupWriter::started(std::uint64_t number, std::int64_t at) noexcept {
    CollectiveGroup* const place = group();
    if (place != nullptr && number > place->started.load(std::memory_order_relaxed)) {
        place->started_at.store(time_of(at), std::memory_order_relaxed);
        place->started.store(number, std::memory_order_release);
    }
}

void GroupWriter::completed(std::uint64_t number, std::int64_t at) noexcept {
    CollectiveGroup* const place = group();
    if (place == nullptr || number <= place->completed.load(std::memory_order_relaxed)) {
        return;
    }
    const std::int64_t end = time_of(at);
    const std::size_t slot = number % kSignaturesKept;
    // The device does one collective after the other.
    const std::int64_t begin = std::max({place->completed_at.load(std::memory_order_relaxed),
                                         place->entered_at[slot].load(std::memory_order_relaxed),
                                         place->knows_starts.load(std::memory_order_relaxed) != 0
                                             ? place->started_at.load(std::memory_order_relaxed)
                                             : 0});
    const std::int64_t spent = std::max<std::int64_t>(0, end - begin);
    place->spent.store(place->spent.load(std::memory_order_relaxed) + spent,
                       std::memory_order_relaxed);
    // It may have ended long before a writer that could not look for a while has found that.
    const std::int64_t looked_at = place->looked_at.load(std::memory_order_relaxed);
    if (looked_at == 0 || end - looked_at < kLookIsOldNs) {
        raise_to(place->longest[time_slot(place->signatures[slot].load(std::memory_order_relaxed))],
                 spent);
    }
    place->completed_at.store(end, std::memory_order_relaxed);
    place->completed.store(number, std::memory_order_release);
}

void GroupWriter::looked() noexcept {
    if (CollectiveGroup* const place = group()) {
        place->looked_at.store(time_of(kNow), std::memory_order_relaxed);
    }
}

void GroupWriter::knows(bool starts, bool ends) noexcept {
    if (CollectiveGroup* const place = group()) {
        place->knows_starts.store(starts ? 1 : 0, std::memory_order_relaxed);
        place->knows_ends.store(ends ? 1 : 0, std::memory_order_relaxed);
    }
}

std::uint64_t GroupWriter::message_entered(CollectiveSignature signature, std::uint32_t peer,
                                           std::int64_t at) noexcept {
    CollectiveGroup* const place = group();
    if (place == nullptr) {
        return 0;
    }
    const std::uint64_t number = place->messages_entered.load(std::memory_order_relaxed) + 1;
    place->message.store(signature.packed(), std::memory_order_relaxed);
    place->message_peer.store(peer, std::memory_order_relaxed);
    place->message_at.store(time_of(at), std::memory_order_relaxed);
    place->messages_entered.store(number, std::memory_order_release);
    return number;
}

void GroupWriter::message_completed() noexcept {
    if (CollectiveGroup* const place = group()) {
        place->messages_completed.fetch_add(1, std::memory_order_release);
    }
}

void GroupWriter::messages_completed(std::uint64_t number) noexcept {
    CollectiveGroup* const place = group();
    if (place != nullptr && number > place->messages_completed.load(std::memory_order_relaxed)) {
        place->messages_completed.store(number, std::memory_order_release);
    }
}

}  // namespace regroup::worker_link
