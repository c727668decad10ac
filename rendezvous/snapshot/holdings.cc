// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/snapshot/holdings.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/base/names.h"
#include "rendezvous/json/json_fields.h"
#include "rendezvous/json/json_text.h"

namespace regroup::snapshot {

std::string_view to_string(Holding::Place place) noexcept {
    return name_in({"room", "copy", "folder"}, place);
}

std::vector<Holding> joined(const std::vector<Holding>& holdings) {
    std::vector<Holding> runs;
    std::map<std::tuple<Holding::Place, Version, std::uint32_t>, std::size_t> last;
    for (const Holding& holding : holdings) {
        const auto [at, is_first] =
            last.try_emplace({holding.place, holding.version, holding.parts}, runs.size());
        if (!is_first && runs[at->second].part + runs[at->second].count == holding.part) {
            runs[at->second].count += holding.count;
            continue;
        }
        at->second = runs.size();
        runs.push_back(holding);
    }
    return runs;
}

std::string encode(const Announcement& announcement) {
    nlohmann::json holdings = nlohmann::json::array();
    for (const Holding& holding : announcement.holdings) {
        holdings.push_back({{"place", to_string(holding.place)},
                            {"part", holding.part},
                            {"parts", holding.parts},
                            {"history", holding.version.history},
                            {"round", holding.version.round},
                            {"step", holding.version.step},
                            {"count", holding.count}});
    }
    return json_text(nlohmann::json{{"node", announcement.node},
                                    {"name", announcement.name},
                                    {"endpoint", announcement.endpoint},
                                    {"holdings", std::move(holdings)}});
}

Result<Announcement> decode_announcement(std::string_view text) {
    const nlohmann::json object = parse_json(text);
    const nlohmann::json& list = field_in(object, "holdings");
    if (!list.is_array()) {
        return invalid_argument("the announcement of a node's snapshots is malformed");
    }
    Announcement announcement{static_cast<std::uint32_t>(number_in(object, "node")),
                              text_in(object, "name"),
                              text_in(object, "endpoint"),
                              {}};
    for (const nlohmann::json& said : list) {
        const auto place = value_named<Holding::Place>(text_in(said, "place"));
        const std::uint64_t part = number_in(said, "part");
        const std::uint64_t parts = number_in(said, "parts");
        const std::uint64_t count = number_in(said, "count");
        if (!place || parts == 0 || parts > kPartsMax || part >= parts || count == 0 ||
            count > parts - part) {
            return invalid_argument("the announcement of a node's snapshots is malformed");
        }
        announcement.holdings.push_back(
            {*place,
             static_cast<std::uint32_t>(part),
             static_cast<std::uint32_t>(parts),
             {number_in(said, "history"), number_in(said, "round"), number_in(said, "step")},
             static_cast<std::uint32_t>(count)});
    }
    return announcement;
}

std::vector<Source> Candidate::sources(std::uint32_t part) const {
    std::vector<Source> found;
    for (const Run& run : runs) {
        if (run.part <= part && part - run.part < run.count) {
            found.push_back(run.source);
        }
    }
    return found;
}

std::vector<Source> Candidate::order(std::uint32_t part, std::uint32_t node) const {
    std::vector<Source> ordered = sources(part);
    std::sort(ordered.begin(), ordered.end(), [node](const Source& a, const Source& b) {
        // Among the others each node begins with the next one, so that not all ask the same one.
        const auto rank = [node](const Source& source) {
            return std::tuple(source.place == Holding::Place::folder, source.node != node,
                              source.node < node, source.node, source.place);
        };
        return rank(a) < rank(b);
    });
    return ordered;
}

std::vector<Candidate> candidates(const std::vector<Announcement>& announcements) {
    // Of one version, all parts have the same number of parts.
    std::map<std::pair<Version, std::uint32_t>, std::vector<Candidate::Run>> found;
    for (const Announcement& announcement : announcements) {
        for (const Holding& holding : announcement.holdings) {
            found[{holding.version, holding.parts}].push_back(
                {{announcement.node, holding.place}, holding.part, holding.count});
        }
    }
    std::vector<Candidate> result;
    for (auto& [key, runs] : found) {
        std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) {
            return std::tie(a.part, a.source.node, a.source.place) <
                   std::tie(b.part, b.source.node, b.source.place);
        });
        std::uint32_t covered = 0;
        for (const Candidate::Run& run : runs) {
            covered = run.part <= covered ? std::max(covered, run.part + run.count) : covered;
        }
        if (covered == key.second) {
            result.push_back({key.first, key.second, std::move(runs)});
        }
    }
    std::reverse(result.begin(), result.end());
    return result;
}

bool may_give_up(const Version& version, const std::vector<Version>& held,
                 const std::optional<Version>& whole) {
    return whole && version < *whole &&
           std::any_of(
               held.begin(), held.end(), [&](const Version& other) { return other >= *whole; });
}

}  // namespace regroup::snapshot
