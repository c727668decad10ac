// SPDX-License-Identifier: Apache-2.0
#include "launcher/host.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <pwd.h>
#include <sched.h>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "agent/placement/gpu_shares.h"
#include "agent/placement/placement.h"
#include "agent/process/affinity.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"
#include "rendezvous/cgroup/cgroup.h"

namespace regroup::launcher {

namespace {

std::optional<std::string> numeric(const sockaddr* address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address == nullptr) {
        return std::nullopt;
    }
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        return ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    }
    if (address->sa_family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
        if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
            return std::nullopt;  // Other hosts cannot use it without an interface index.
        }
        return ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    }
    return std::nullopt;
}

// The canonical text of an address, or nothing if `text` is a name.
std::optional<std::string> canonical(const std::string& text) {
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
    std::array<char, INET6_ADDRSTRLEN> shown{};
    for (const int family : {AF_INET, AF_INET6}) {
        if (::inet_pton(family, text.c_str(), bytes.data()) == 1) {
            return ::inet_ntop(family, bytes.data(), shown.data(), shown.size());
        }
    }
    return std::nullopt;
}

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
        return "localhost";
    }
    return name.data();
}

// The host's name with its domain, as /etc/hosts or a name server knows it; else empty.
std::string canonical_name() {
    addrinfo hints{};
    hints.ai_flags = AI_CANONNAME;
    addrinfo* list = nullptr;
    if (::getaddrinfo(host_name().c_str(), nullptr, &hints, &list) != 0) {
        return "";
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
    return list->ai_canonname != nullptr ? list->ai_canonname : "";
}

/// Says it if the quota of the cgroup decides about their number.
std::uint32_t count_workers_by_cpus(const std::string& nproc_per_node,
                                    std::vector<std::string>& notes, const std::string& root) {
    const Result<std::vector<int>> cpus = agent::allowed_cpus();
    const auto allowed =
        static_cast<std::uint32_t>(cpus ? std::max<std::size_t>(1, cpus->size()) : 1);
    const auto quota = cgroup::cpu_quota(root);
    if (!quota || quota->rounded_up() >= allowed) {
        return allowed;
    }
    notes.push_back("--nproc-per-node " + nproc_per_node + ": " +
                    counted(quota->rounded_up(), "worker") +
                    ", because the CPU quota of the cgroup allows " +
                    agent::cpus_text(quota->cpus) + " of " + counted(allowed, "CPU"));
    return quota->rounded_up();
}

}  // namespace

std::optional<std::string> variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::string full_host_name() {
    return host_name();
}

std::string short_host_name() {
    const std::string name = host_name();
    return name.substr(0, name.find('.'));
}

std::string user_name(uid_t user) {
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 16384> text{};
    if (::getpwuid_r(user, &entry, text.data(), text.size(), &found) == 0 && found != nullptr) {
        return found->pw_name;
    }
    for (const char* name : {"LOGNAME", "USER"}) {
        if (std::string value = variable(name).value_or(""); !value.empty()) {
            return value;
        }
    }
    return "user " + std::to_string(user);
}

std::vector<std::string> own_addresses() {
    std::vector<std::string> result;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) {
        return result;
    }
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if ((entry->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        const auto address = numeric(entry->ifa_addr);
        if (address && !is_loopback(*address)) {
            result.push_back(*address);
        }
    }
    std::sort(result.begin(), result.end(), [](const std::string& x, const std::string& y) {
        const auto rank = [](const std::string& address) {
            return std::pair(address.find(':') != std::string::npos, address);
        };
        return rank(x) < rank(y);
    });
    return result;
}

bool names_this_host(const std::string& host) {
    const std::vector<std::string> own = own_addresses();
    const auto is_own = [&](const std::string& address) {
        return is_loopback(address) || std::find(own.begin(), own.end(), address) != own.end();
    };
    if (const auto address = canonical(host)) {
        return is_own(*address);
    }
    if (host == "localhost" || host == host_name() || host == short_host_name()) {
        return true;
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    // A pod's /etc/hosts has its full name, which name servers learn only later.
    const std::string own_name = host.starts_with(short_host_name() + ".") ? canonical_name() : "";
    if (own_name == host || own_name.starts_with(host + ".")) {
        return true;
    }
    addrinfo* list = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) {
        return false;
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        const auto address = numeric(entry->ai_addr);
        if (address && is_own(*address)) {
            return true;
        }
    }
    return false;
}

std::uint32_t count_cpus(const std::string& root) {
    const Result<std::vector<int>> cpus = agent::allowed_cpus();
    const auto allowed =
        static_cast<std::uint32_t>(cpus ? std::max<std::size_t>(1, cpus->size()) : 1);
    const auto quota = cgroup::cpu_quota(root);
    return quota ? std::min(allowed, quota->rounded_up()) : allowed;
}

std::uint32_t count_installed_gpus(const std::string& root) {
    std::uint32_t count = 0;
    std::error_code error;
    for (auto it = std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", error);
         !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
        ++count;
    }
    return count;
}

std::uint32_t count_gpus(const std::string& root) {
    const std::uint32_t count = count_installed_gpus(root);
    // The variable may come from another machine, so it counts only if there are GPUs. It may list
    // parts of a GPU (MIG).
    const auto visible = variable("CUDA_VISIBLE_DEVICES");
    return !visible || count == 0
               ? count
               : static_cast<std::uint32_t>(agent::visible_entries(*visible).size());
}

Result<std::uint32_t> count_workers(const std::string& nproc_per_node,
                                    std::vector<std::string>& notes, const std::string& root) {
    if (nproc_per_node == "cpu") {
        return count_workers_by_cpus(nproc_per_node, notes, root);
    }
    if (nproc_per_node == "gpu" || nproc_per_node == "auto") {
        const std::uint32_t gpus = count_gpus(root);
        if (gpus > 0) {
            return gpus;
        }
        if (nproc_per_node == "auto") {
            return count_workers_by_cpus(nproc_per_node, notes, root);
        }
        return Failure(Errc::invalid_argument,
                       "--nproc-per-node gpu: this node has no NVIDIA GPU that this process may "
                       "use; give a number, or auto to fall back to CPUs");
    }
    return parse_number<std::uint32_t>(nproc_per_node).value_or(0);
}

bool terminal_has_cursor() {
    const std::string kind = variable("TERM").value_or("");
    return !kind.empty() && kind != "dumb";
}

std::string state_folder() {
    const std::string state = variable("XDG_STATE_HOME").value_or("");
    const std::string home = variable("HOME").value_or("");
    return state.starts_with('/')  ? state + "/regroup"
           : home.starts_with('/') ? home + "/.local/state/regroup"
                                   : "";
}

agent::TorchPipe torch_pipe() {
    const std::string dump = variable("TORCH_FR_DUMP_TEMP_FILE").value_or("");
    return {variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE").value_or(""),
            dump.empty() ? variable("TORCH_NCCL_DEBUG_INFO_TEMP_FILE").value_or("") : dump};
}

}  // namespace regroup::launcher
