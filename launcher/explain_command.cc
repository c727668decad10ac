// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <variant>

#include "agent/explain/explanation.h"
#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/hang_files.h"
#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::launcher {

namespace {

constexpr const char* kName = "regroup explain";

Result<CommandEnd> explain(const Words& paths, bool as_json) {
    constexpr std::size_t kComplaintsMax = 20;
    if (paths.empty()) {
        return invalid_argument("needs the folder of a hang (regroup explain --help)");
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
            return invalid_argument(paths.front() + " has no stacks and no flight records");
        }
        return CommandEnd{kExitUsage};
    }
    const agent::Explanation explanation = agent::explain(files.facts);
    if (as_json) {
        print(agent::json_of(files.facts, explanation));
    } else {
        print(agent::text_of(files.facts, explanation));
    }
    return CommandEnd{};
}

}  // namespace

CommandEnd explain_command(std::span<const std::string> arguments) {
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
    flags.toggle({"--json", "", "", "Print one JSON object instead of sentences"}, as_json);
    return run_with(flags, arguments, [&](const Words& paths) { return explain(paths, as_json); });
}

}  // namespace regroup::launcher
