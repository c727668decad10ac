// SPDX-License-Identifier: Apache-2.0
// The file that a flight record is written to, and the signal that asks for it.
#include <regroup/error.h>
#include <regroup/flight_recorder.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/base/torch_record.h"

namespace regroup {
namespace {

struct Target {
    std::mutex mutex;
    std::string prefix;     // guarded by mutex
    int signal_number = 0;  // guarded by mutex
    std::atomic<std::uint32_t> rank = 0;
};

/// Never destroyed: a thread may write when the process exits.
Target& target() {
    static auto* const only = new Target();
    return *only;
}

std::atomic<int> bell = -1;
std::atomic<pid_t> owner = 0;
static_assert(std::atomic<int>::is_always_lock_free);

// A forked child inherits the handler and the bell, but has nothing to record.
void on_signal(int /*number*/) {
    const int error = errno;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written =
        ::getpid() == owner ? ::write(bell, &one, sizeof one) : 0;
    errno = error;
}

[[noreturn]] void fail(const std::string& call, const std::string& path) {
    throw Error(Errc::system,
                "the flight record: " + call + ": " + system_failure(path.c_str(), errno).detail);
}

/// Waits for the signal as long as the process lives.
void serve_signal() {
    std::uint64_t count = 0;
    while (::read(bell, &count, sizeof count) == sizeof count || errno == EINTR) {
        write_flight_record();
    }
}

void install(int signal_number) {
    const int fd = ::eventfd(0, EFD_CLOEXEC);
    if (fd < 0) {
        fail("eventfd", "REGROUP_FLIGHT_RECORD_SIGNAL");
    }
    bell = fd;
    owner = ::getpid();
    start_helper_thread("regroup-record", serve_signal).detach();
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal_number, &action, nullptr);
}

}  // namespace

std::string flight_record() {
    return flight_recorder().json();
}

void write_record_file(const std::string& path, const std::string& text) {
    const std::string partial = path + "." + std::to_string(::getpid()) + ".partial";
    // A killed process of this number may have left one. Nothing else at this name is written to.
    ::unlink(partial.c_str());
    std::FILE* const file = std::fopen(partial.c_str(), "wxe");
    if (file == nullptr) {
        fail("open", partial);
    }
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !written) {
        const int error = errno;
        ::unlink(partial.c_str());
        errno = error;
        fail("write", partial);
    }
    if (::rename(partial.c_str(), path.c_str()) != 0) {
        fail("rename", path);
    }
}

void save_flight_record(const std::string& path) {
    write_record_file(path, flight_record());
}

std::uint32_t write_all_records(const std::string& prefix) {
    std::uint32_t files = 0;
    if (flight_recorder().has_groups()) {
        write_record_file(prefix + ".regroup.json", flight_record());
        ++files;
    }
    for (const TorchRecord& record : torch_records()) {
        write_record_file(prefix + "." + record.backend + ".json", record.json);
        ++files;
    }
    return files;
}

void configure_flight_record(const std::string& prefix, int signal_number) {
    Target& place = target();
    const std::lock_guard lock(place.mutex);
    place.prefix = prefix;
    if (!prefix.empty() && signal_number != 0 && place.signal_number == 0) {
        place.signal_number = signal_number;
        install(signal_number);
    }
}

void set_flight_record_place(std::uint32_t rank, std::uint64_t round) noexcept {
    target().rank = rank;
    flight_recorder().enter_round(round);
}

void write_flight_record() noexcept {
    try {
        Target& place = target();
        const std::lock_guard lock(place.mutex);
        if (!place.prefix.empty()) {
            save_flight_record(place.prefix + std::to_string(place.rank));
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", printable(error.what()).c_str());
    }
}

}  // namespace regroup
