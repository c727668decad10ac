// SPDX-License-Identifier: Apache-2.0
#include "agent/health/gpu_holders.h"

#include <array>
#include <cerrno>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "agent/health/gpu_probe.h"
#include "agent/process/proc_files.h"
#include "rendezvous/base/text.h"

namespace regroup::health {

namespace {

// A look takes about a millisecond of the driver for each GPU. A process that allocates memory of a
// GPU needs a few hundred until it can.
constexpr int kPauseMs = 20;
constexpr std::size_t kPacketMax = std::size_t{1} << 16U;

/// The next packet; nothing if none is there; an empty one at the end.
std::optional<std::string> next_packet() {
    std::array<char, kPacketMax> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t count = ::recv(STDIN_FILENO, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return std::nullopt;
    }
    return std::string(bytes.data(), static_cast<std::size_t>(count < 0 ? 0 : count));
}

bool say(std::uint64_t packets, const std::set<pid_t>& holders) {
    const std::string text =
        std::to_string(packets) + (holders.empty() ? "" : " ") + joined(holders, " ");
    return ::send(STDIN_FILENO, text.data(), text.size(), MSG_NOSIGNAL) >= 0;
}

}  // namespace

GpuHolders::GpuHolders(const Places& places) {
    if (Result<std::unique_ptr<Nvml>> nvml = Nvml::open(places.nvml)) {
        nvml_ = *std::move(nvml);
        addresses_ = gpu_addresses(places, *nvml_);
    }
}

void GpuHolders::drop_free(std::set<pid_t>& pids) const {
    std::set<pid_t> free;
    for (const pid_t pid : pids) {
        if (agent::has_ended(pid)) {
            free.insert(pid);
        }
    }
    for (const std::string& address : addresses_) {
        if (free.empty()) {
            return;
        }
        for (const GpuProcess& process : nvml_->processes(address)) {
            free.erase(static_cast<pid_t>(process.pid));
        }
    }
    for (const pid_t pid : free) {
        pids.erase(pid);
    }
}

int answer_holders(const std::vector<std::string>& arguments) {
    if (arguments.size() != 2) {
        return 2;
    }
    const GpuHolders gpus(Places{arguments[0], arguments[1]});
    std::set<pid_t> holders;
    std::uint64_t packets = 0;
    for (bool is_new = false;; is_new = false) {
        pollfd entry{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
        ::poll(&entry, 1, holders.empty() ? -1 : kPauseMs);
        while (const std::optional<std::string> packet = next_packet()) {
            if (packet->empty()) {
                return 0;
            }
            is_new = true;
            ++packets;
            for (const std::string_view word : split(*packet, ' ')) {
                if (const auto pid = parse_number<pid_t>(word)) {
                    holders.insert(*pid);
                }
            }
        }
        const std::size_t before = holders.size();
        gpus.drop_free(holders);
        if ((is_new || holders.size() != before) && !say(packets, holders)) {
            return 0;
        }
    }
}

}  // namespace regroup::health
