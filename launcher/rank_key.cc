// SPDX-License-Identifier: Apache-2.0
#include "launcher/rank_key.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>

#include "launcher/cluster/host_file.h"
#include "launcher/flag_values.h"
#include "rendezvous/base/names.h"

namespace regroup::launcher {

namespace {

using rendezvous::RankOrder;

constexpr const char* kFilePrefix = "file:";

Failure usage(const std::string& sentence) {
    return Failure(Errc::invalid_argument, "--rank-order=" + sentence);
}

bool is_name(const std::string& text) {
    std::string out;
    return !text.empty() && name_into(out)(text).empty();
}

Result<std::string> scheduler_key(RankOrder order, const std::optional<Allocation>& known) {
    const std::string word(to_string(order));
    std::optional<Allocation> allocation = known;
    if (!allocation) {
        // Flags that say where the nodes meet keep the allocation out of everything else.
        Result<std::optional<Allocation>> found = find_allocation(process_environment());
        if (!found) {
            return usage(word + ": " + found.error().detail);
        }
        allocation = *std::move(found);
    }
    if (!allocation) {
        return usage(word +
                     ": no scheduler has started this launcher on several nodes; use name, joined "
                     "or file:PATH");
    }
    if (order == RankOrder::scheduler) {
        return std::to_string(allocation->index);
    }
    if (!is_name(allocation->topology)) {
        return usage(word + ": " + allocation->scheduler +
                     " states no topology of usable length here (of Slurm, SLURM_TOPOLOGY_ADDR "
                     "with topology/tree); use scheduler or file:PATH");
    }
    return allocation->topology;
}

Result<std::string> read_host_file(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
        return usage(std::string(kFilePrefix) + path + ": " +
                     (error ? error.message() : "it is no regular file"));
    }
    std::ifstream file(path, std::ios::binary);
    std::string text(kHostFileBytesMax + 1, '\0');  // A byte more shows that it is too long.
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.is_open() || file.bad()) {
        return usage(std::string(kFilePrefix) + path + ": it cannot be read");
    }
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

// The keys of the hosts. In place of a switch's name its key has the line of the switch's first
// host. So hosts have their ranks from top to bottom, and those of one switch stand together.
std::map<std::string, std::string> keys_of(const std::vector<HostEntry>& hosts) {
    std::map<std::string, std::size_t> first_line;
    std::map<std::string, std::string> keys;
    std::size_t line = 0;
    for (const HostEntry& entry : hosts) {
        ++line;
        std::string key;
        for (std::size_t end = 0; !entry.switches.empty() && end < entry.switches.size() + 1;) {
            end = std::min(entry.switches.find('.', end), entry.switches.size());
            const auto [found, is_new] = first_line.emplace(entry.switches.substr(0, end), line);
            key += std::to_string(found->second) + ".";
            ++end;
        }
        keys.emplace(entry.host, key + std::to_string(line));
    }
    return keys;
}

Result<std::string> file_key(const std::string& path, const std::vector<std::string>& names,
                             std::vector<std::string>& notes) {
    const Result<std::string> text = read_host_file(path);
    if (!text) {
        return text.error();
    }
    const auto hosts = parse_host_file(*text, kFilePrefix + path);
    if (!hosts) {
        return usage(hosts.error().detail);
    }
    const std::map<std::string, std::string> keys = keys_of(*hosts);
    for (const std::string& name : names) {
        if (const auto found = keys.find(name); found != keys.end()) {
            return found->second;
        }
    }
    notes.push_back("--rank-order=" + std::string(kFilePrefix) + path +
                    ": the file does not have " + names.front() +
                    "; this node gets a rank behind the hosts of the file");
    return std::string();
}

}  // namespace

FlagTable::Take rank_order_into(RankOrder& out, std::string& file) {
    return [&out, &file](const std::string& text) -> std::string {
        file.clear();
        if (text.starts_with(kFilePrefix)) {
            out = RankOrder::file;
            file = text.substr(std::string(kFilePrefix).size());
            return file.empty() ? "must have a path after file:" : "";
        }
        const std::optional<RankOrder> order = value_named<RankOrder>(text);
        if (!order || *order == RankOrder::file) {
            return "must be auto, name, joined, scheduler, topology or file:PATH, not " +
                   in_quotes(text);
        }
        out = *order;
        return "";
    };
}

Result<std::string> rank_key(RankOrder order, const std::string& file,
                             const std::optional<Allocation>& allocation,
                             const std::vector<std::string>& names,
                             std::vector<std::string>& notes) {
    switch (order) {
        case RankOrder::automatic:
            return !allocation                     ? std::string()
                   : is_name(allocation->topology) ? allocation->topology
                                                   : std::to_string(allocation->index);
        case RankOrder::joined:  // The daemon counts.
        case RankOrder::name:
            return std::string();
        case RankOrder::scheduler:
        case RankOrder::topology:
            return scheduler_key(order, allocation);
        case RankOrder::file:
            return file_key(file, names, notes);
    }
    return std::string();
}

}  // namespace regroup::launcher
