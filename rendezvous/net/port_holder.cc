// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/port_holder.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <unistd.h>

#include "rendezvous/base/text.h"

namespace regroup::net {
namespace {

/// An IPv6 address, or an IPv4 one as the IPv6 address ::ffff:a.b.c.d.
using AddressBytes = std::array<unsigned char, 16>;
constexpr AddressBytes kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0};

std::optional<AddressBytes> parse_address(const std::string& text) {
    AddressBytes bytes = kMappedPrefix;
    if (::inet_pton(AF_INET, text.c_str(), &bytes[12]) == 1 ||
        ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) {
        return bytes;
    }
    return std::nullopt;
}

bool is_wildcard(const AddressBytes& address) {
    return address == AddressBytes{} || address == kMappedPrefix;
}

/// /proc/net/tcp prints an address as 32-bit words in hexadecimal, each in the host's byte order.
std::optional<AddressBytes> parse_table_address(std::string_view text) {
    if (text.size() != 8 && text.size() != 32) {
        return std::nullopt;
    }
    AddressBytes bytes = kMappedPrefix;
    std::size_t at = text.size() == 8 ? 12 : 0;
    for (; !text.empty(); text.remove_prefix(8), at += 4) {
        const auto word = parse_number<std::uint32_t>(text.substr(0, 8), 16);
        if (!word) {
            return std::nullopt;
        }
        std::memcpy(&bytes[at], &*word, sizeof *word);
    }
    return bytes;
}

/// Sockets and connections that prevent listening on a port.
struct Conflicts {
    std::set<std::uint64_t> inodes;  ///< Of sockets.
    uid_t user = 0;                  ///< The owner of one of them.
    bool ended_connection = false;   ///< A connection that no longer belongs to a process.
};

/// Adds the conflicts that `table` lists.
void collect(const char* table, const std::optional<AddressBytes>& address, std::uint16_t port,
             Conflicts& conflicts) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // Titles.
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        std::string local;
        std::string skipped;
        uid_t user = 0;
        std::uint64_t inode = 0;
        fields >> skipped >> local;  // "0:" "0100007F:733C"
        for (int i = 0; i < 5; ++i) {
            fields >> skipped;
        }
        fields >> user >> skipped >> inode;
        const std::size_t colon = local.find(':');
        if (!fields || colon == std::string::npos ||
            parse_number<std::uint16_t>(std::string_view(local).substr(colon + 1), 16) != port) {
            continue;
        }
        const auto holder = parse_table_address(std::string_view(local).substr(0, colon));
        if (holder &&
            (!address || is_wildcard(*address) || is_wildcard(*holder) || *holder == *address)) {
            if (inode == 0) {
                conflicts.ended_connection = true;
            } else {
                conflicts.inodes.insert(inode);
                conflicts.user = user;
            }
        }
    }
}

Conflicts find_conflicts(const std::string& address, std::uint16_t port) {
    const auto wanted = parse_address(address);
    Conflicts conflicts;
    collect("/proc/net/tcp", wanted, port, conflicts);
    collect("/proc/net/tcp6", wanted, port, conflicts);
    return conflicts;
}

struct CloseDirectory {
    void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

bool holds_any(const std::string& fd_folder, const std::set<std::uint64_t>& inodes) {
    const Directory directory(::opendir(fd_folder.c_str()));
    while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
        char target[64];  // "socket:[123456]"
        const ssize_t bytes =
            ::readlink((fd_folder + "/" + entry->d_name).c_str(), target, sizeof target);
        const std::string_view link(target, bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
        if (!link.starts_with("socket:[") || !link.ends_with(']')) {
            continue;
        }
        const auto inode = parse_number<std::uint64_t>(link.substr(8, link.size() - 9), 10);
        if (inode && inodes.contains(*inode)) {
            return true;
        }
    }
    return false;
}

std::string read_command(const std::string& process_folder) {
    constexpr std::size_t kShownMax = 120;
    std::ifstream file(process_folder + "/cmdline");
    std::string command(kShownMax, '\0');
    file.read(command.data(), static_cast<std::streamsize>(command.size()));
    command.resize(static_cast<std::size_t>(file.gcount()));
    const bool shortened = command.size() == kShownMax;
    while (!command.empty() && command.back() == '\0') {
        command.pop_back();
    }
    for (char& c : command) {
        // Arguments are separated by NUL; anything else unprintable must not reach a terminal.
        c = c == '\0' ? ' ' : (c >= ' ' && c <= '~') ? c : '?';
    }
    return shortened ? command + "..." : command;
}

}  // namespace

std::optional<PortHolder> find_port_holder(const std::string& address, std::uint16_t port) {
    const Conflicts conflicts = find_conflicts(address, port);
    if (conflicts.inodes.empty()) {
        return std::nullopt;
    }
    const Directory processes(::opendir("/proc"));
    while (const dirent* entry = processes ? ::readdir(processes.get()) : nullptr) {
        const auto pid = parse_number<pid_t>(entry->d_name, 10);
        const std::string folder = std::string("/proc/") + entry->d_name;
        if (pid && holds_any(folder + "/fd", conflicts.inodes)) {
            return PortHolder{conflicts.user, *pid, read_command(folder)};
        }
    }
    return PortHolder{conflicts.user, 0, ""};
}

bool is_kept_by_ended_connection(const std::string& address, std::uint16_t port) {
    const Conflicts conflicts = find_conflicts(address, port);
    return conflicts.inodes.empty() && conflicts.ended_connection;
}

}  // namespace regroup::net
