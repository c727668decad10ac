// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "launcher/command.h"
#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/say.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/view/job_view.h"
#include "rendezvous/worker_link/messages.h"

namespace regroup::launcher {

namespace {

using worker_link::kLinkVersion;
using worker_link::kOldestLinkVersion;

std::string spoken() {
    return "control protocol " + std::to_string(protocol::kProtocolVersion) + ", worker link " +
           std::to_string(kLinkVersion) + " (programs from " + std::to_string(kOldestLinkVersion) +
           " on), journal " + std::to_string(journal::SqliteJournal::kFormat) +
           ", JSON of status " + std::to_string(rendezvous::kViewVersion);
}

std::string as_json() {
    return json_text(nlohmann::ordered_json{{"version", REGROUP_VERSION},
                                            {"control_protocol", protocol::kProtocolVersion},
                                            {"worker_link", kLinkVersion},
                                            {"worker_link_oldest", kOldestLinkVersion},
                                            {"journal", journal::SqliteJournal::kFormat},
                                            {"status", rendezvous::kViewVersion}});
}

}  // namespace

CommandEnd version_command(std::span<const std::string> arguments) {
    bool json = false;
    FlagTable flags("regroup version");
    flags.usage = "regroup version [--json]";
    flags.introduction =
        "Print the version of this program, and those of the protocols and formats that it "
        "speaks.\n"
        "docs/compatibility.md says which versions work together.";
    flags.group("Flags");
    flags.toggle({"--json", "", "", "Print one object in JSON"}, json);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        if (const Result<void> none = expect_no_words(words); !none) {
            return none.error();
        }
        if (json) {
            print(as_json());
        } else {
            print("regroup " REGROUP_VERSION);
            print(spoken());
        }
        return CommandEnd{};
    });
}

}  // namespace regroup::launcher
