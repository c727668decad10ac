// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang_files.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <unistd.h>
#include <utility>

#include "agent/explain/plain_data.h"
#include "agent/explain/stack_text.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::launcher {
namespace {

namespace fs = std::filesystem;
using Kind = HangFileName::Kind;

constexpr std::size_t kFilesMax = 200'000;
constexpr std::uint32_t kRankMax = (1U << 17U) - 1;
constexpr std::size_t kRecordsOfRankMax = 16;

/// The digits at the beginning of `text`, which loses them.
std::optional<std::uint32_t> take_number(std::string_view& text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number > kRankMax) {
        return std::nullopt;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

std::optional<std::uint32_t> number_at_end(std::string_view text) {
    const std::size_t last = text.find_last_not_of("0123456789");
    text.remove_prefix(last == text.npos ? 0 : last + 1);
    return take_number(text);
}

Result<std::string> read_file(const std::string& path) {
    const Result<UniqueFd> file = files::open_own(path, O_RDONLY);
    if (!file) {
        return file.error();
    }
    Result<std::string> text = files::read_all(file->get(), agent::kFileBytesMax + 1);
    if (text && text->size() > agent::kFileBytesMax) {
        return Failure(Errc::invalid_argument, "it has more than 10 MiB");
    }
    return text;
}

class Reader {
   public:
    explicit Reader(HangFiles& out) : out_(out) {}

    void read_folder(const std::string& folder) {
        std::error_code error;
        std::vector<std::string> names;
        for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
             entry.increment(error)) {
            if (names.size() == kFilesMax) {
                complain(folder,
                         "only the first " + std::to_string(kFilesMax) + " of its files are read");
                break;
            }
            names.push_back(entry->path().filename().string());
        }
        if (error) {
            complain(folder, error.message());
        }
        std::ranges::sort(names);
        // The facts of the nodes have the pids, which the stacks need.
        for (const Kind kind : {Kind::node, Kind::record, Kind::stacks}) {
            for (const std::string& name : names) {
                const HangFileName parts = read_name(name);
                if (parts.kind == kind) {
                    read(folder + "/" + name, parts);
                }
            }
        }
    }

    void read(const std::string& path, const HangFileName& name) {
        const Result<std::string> text = read_file(path);
        if (!text) {
            return complain(path, text.error().detail);
        }
        switch (name.kind) {
            case Kind::node:
                return take_node(path, *text);
            case Kind::record:
                return take_record(path, *text, name);
            case Kind::stacks: {
                agent::RankFacts& rank = agent::facts_of(out_.facts, name.rank);
                rank.frames = agent::top_frames(*text, static_cast<long>(rank.pid));
                ++out_.files;
                return;
            }
            case Kind::other:
                return;
        }
    }

   private:
    void complain(const std::string& path, const std::string& why) {
        out_.complaints.push_back(path + ": " + why);
    }

    void take_node(const std::string& path, const std::string& text) {
        const Result<agent::NodeFacts> node = agent::read_node_facts(text);
        if (!node) {
            return complain(path, node.error().detail);
        }
        agent::add(out_.facts, *node);
        ++out_.files;
    }

    void take_record(const std::string& path, const std::string& text, const HangFileName& name) {
        Result<agent::FlightRecord> record = agent::read_flight_record(text);
        if (!record) {
            // In a folder of the user there are other files, too.
            return name.is_ours ? complain(path, record.error().detail) : void();
        }
        agent::RankFacts& rank = agent::facts_of(out_.facts, name.rank);
        if (rank.records.size() == kRecordsOfRankMax) {
            return complain(path, "rank " + std::to_string(name.rank) + " has " +
                                      std::to_string(kRecordsOfRankMax) + " records already");
        }
        rank.records.push_back(std::move(*record));
        ++out_.files;
    }

    HangFiles& out_;
};

}  // namespace

HangFileName read_name(std::string_view name) {
    HangFileName result;
    std::string_view rest = name;
    const auto begins = [&rest](std::string_view word) {
        if (!rest.starts_with(word)) {
            return false;
        }
        rest.remove_prefix(word.size());
        return true;
    };
    if (begins("node")) {
        const auto number = take_number(rest);
        if (number && rest == ".json") {
            return {Kind::node, *number, true};
        }
    } else if (begins("rank")) {
        const auto number = take_number(rest);
        if (number && rest == ".txt") {
            return {Kind::stacks, *number, true};
        }
        if (number && rest.starts_with('.') &&
            (rest.ends_with(".json") || rest.ends_with(".pickle"))) {
            return {Kind::record, *number, true};
        }
        if (number && rest.ends_with(".txt")) {
            return {};  // The stacks of a descendant.
        }
    }
    for (const std::string_view ending : {".json", ".pickle"}) {
        if (name.ends_with(ending)) {
            name.remove_suffix(ending.size());
        }
    }
    if (const auto number = number_at_end(name)) {
        result.kind = Kind::record;
        result.rank = *number;
    }
    return result;
}

void read_hang(const std::string& path, HangFiles& files) {
    Reader reader(files);
    std::error_code error;
    if (fs::is_directory(path, error)) {
        return reader.read_folder(path);
    }
    if (!fs::exists(path, error)) {
        files.complaints.push_back(path + ": there is no such file or folder");
        return;
    }
    const fs::path file(path);
    HangFileName name = read_name(file.filename().string());
    if (name.is_ours) {
        const fs::path folder = file.parent_path();
        return reader.read_folder(folder.empty() ? "." : folder.string());
    }
    if (name.kind != Kind::record) {
        files.complaints.push_back(path +
                                   ": the name of a flight record must end with the rank, as in "
                                   "trace_rank_3");
        return;
    }
    name.is_ours = true;
    reader.read(path, name);
}

}  // namespace regroup::launcher
