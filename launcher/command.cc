// SPDX-License-Identifier: Apache-2.0
#include "launcher/command.h"

#include <cstdio>
#include <variant>

#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::launcher {

CommandEnd run_with(FlagTable& flags, std::span<const std::string> arguments,
                    const std::function<Result<CommandEnd>(const Words& words)>& act) {
    const auto parsed = flags.parse(arguments);
    if (!parsed) {
        return usage_error(flags.command(), parsed.error().detail);
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return {};
    }
    Result<CommandEnd> ending = act(std::get<Words>(*parsed));
    return ending ? *std::move(ending) : usage_error(flags.command(), ending.error().detail);
}

CommandEnd usage_error(const std::string& command, const std::string& line) {
    complain(command, line);
    return {kExitUsage};
}

Result<void> expect_no_words(const Words& words, const std::string& hint) {
    return words.empty() ? Result<void>()
                         : invalid_argument("takes no '" + words.front() + "'" + hint);
}

}  // namespace regroup::launcher
