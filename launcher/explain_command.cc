// SPDX-License-Identifier: Apache-2.0
#include "launcher/explain_command.h"

#include <cstdio>
#include <variant>

#include "agent/explain/explanation.h"
#include "launcher/flag_table.h"
#include "launcher/hang_files.h"
#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::launcher {

int explain_command(std::span<const std::string> arguments) {
    constexpr const char* kName = "regroup explain";
    constexpr std::size_t kComplaintsMax = 20;
    bool as_json = false;
    FlagTable flags(kName);
    flags.usage = "regroup explain [FLAGS] HANG...";
    flags.introduction =
        "Say why a round hangs: which collective is not complete, which ranks have entered it,\n"
        "which have not, and where those are. HANG is the folder that the report of the hang\n"
        "names, or a file in it. Flight records that were saved in another way are read as well,\n"
        "if their names end with the rank.";
    flags.footer =
        "Exit code: 0 if something could be read, 2 if nothing could, or for a mistake on the\n"
        "command line.";
    flags.group("Flags");
    flags.toggle({"--json", "", "", "Print one JSON object instead of sentences", "", "-", true},
                 as_json);
    const auto parsed = flags.parse_anywhere(arguments);
    if (!parsed) {
        complain(kName, parsed.error().detail);
        return kExitUsage;
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return 0;
    }
    const auto& paths = std::get<std::vector<std::string>>(*parsed);
    if (paths.empty()) {
        complain(kName, "needs the folder of a hang (regroup explain --help)");
        return kExitUsage;
    }
    HangFiles files;
    for (const std::string& path : paths) {
        read_hang(path, files);
    }
    for (std::size_t i = 0; i < files.complaints.size() && i < kComplaintsMax; ++i) {
        complain(kName, files.complaints[i]);
    }
    if (files.complaints.size() > kComplaintsMax) {
        complain(kName, "and " + std::to_string(files.complaints.size() - kComplaintsMax) +
                            " more files could not be read");
    }
    if (files.files == 0) {
        if (files.complaints.empty()) {
            complain(kName, paths.front() + " has no stacks and no flight records");
        }
        return kExitUsage;
    }
    const agent::Explanation explanation = agent::explain(files.facts);
    if (as_json) {
        print(agent::json_of(files.facts, explanation));
    } else {
        print(agent::text_of(files.facts, explanation));
    }
    return 0;
}

}  // namespace regroup::launcher
