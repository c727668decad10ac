// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include "agent/core/agent_core.h"
#include "launcher/commands.h"
#include "launcher/host.h"
#include "launcher/run_command.h"
#include "launcher/say.h"
#include "launcher/ssh/messages.h"
#include "launcher/ssh/supervisor.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/security/token.h"

namespace regroup::launcher::ssh {
namespace {

constexpr Duration kSetupLimit = std::chrono::seconds(60);

CommandEnd usage_ending(const std::string& sentence) {
    return usage_error("regroup", sentence);
}

// Workers must not read the launcher's orders, and inherit stdin.
Result<UniqueFd> take_stdin() {
    UniqueFd orders(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!orders || !null || ::dup2(null.get(), STDIN_FILENO) < 0) {
        return system_failure("cannot take over stdin", errno);
    }
    return orders;
}

// "CLIENT PORT SERVER PORT", by sshd.
std::string address_of_connection() {
    std::string rest = variable("SSH_CONNECTION").value_or("");
    for (int skipped = 0; skipped < 2; ++skipped) {
        const std::size_t blank = rest.find(' ');
        rest = blank == rest.npos ? "" : rest.substr(blank + 1);
    }
    return rest.substr(0, rest.find(' '));
}

Result<void> settle(const Setup& setup) {
    for (const std::string& variable : setup.environment) {
        const std::size_t equals = variable.find('=');
        const std::string name = variable.substr(0, equals);
        if (equals == variable.npos ||
            ::setenv(name.c_str(), variable.c_str() + equals + 1, /*overwrite=*/1) != 0) {
            return Failure(Errc::invalid_argument, "cannot set the variable " + name);
        }
    }
    if (::chdir(setup.folder.c_str()) != 0) {
        return system_failure(
            "cannot enter the folder " + setup.folder + " (--workdir names another one)", errno);
    }
    return {};
}

Result<std::optional<security::Token>> token_of(const Start& start) {
    if (start.token.empty()) {
        return std::optional<security::Token>();
    }
    Result<security::Token> token = security::Token::parse(start.token);
    return token ? Result<std::optional<security::Token>>(*std::move(token)) : token.error();
}

CommandEnd run_as_told(Supervisor& supervisor, const Start& start) {
    const Result<std::optional<security::Token>> token = token_of(start);
    if (!token) {
        return usage_ending("the launcher's token: " + token.error().detail);
    }
    Supervision supervision{
        .supervisor = supervisor, .allocation = {}, .is_head = start.is_head, .token = *token};
    supervision.allocation.scheduler = "ssh";
    supervision.allocation.index = start.index;
    supervision.allocation.node_name = supervisor.host();
    return run_command(Front::run, start.arguments, &supervision);
}

}  // namespace

CommandEnd node_command(std::span<const std::string> arguments) {
    if (!arguments.empty() || ::isatty(STDIN_FILENO) != 0) {
        return usage_ending("ssh-node is for `regroup launch-ssh`, which starts it on its hosts");
    }
    ::signal(SIGPIPE, SIG_IGN);  // The launcher may end at any time.
    Result<UniqueFd> orders = take_stdin();
    if (!orders) {
        return usage_ending(orders.error().detail);
    }
    Supervisor supervisor(*std::move(orders));
    const Result<std::optional<Order>> first = supervisor.read(kSetupLimit);
    const auto* setup = first && *first ? std::get_if<Setup>(&**first) : nullptr;
    if (setup == nullptr) {
        return usage_ending(first ? "the launcher has ended" : first.error().detail);
    }
    supervisor.introduce(*setup);
    if (const Result<void> settled = settle(*setup); !settled) {
        supervisor.tell(Refused{settled.error().detail});
        return {kExitUsage, 0};
    }
    supervisor.tell(Ready{address_of_connection()});
    const Result<std::optional<Order>> second = supervisor.read(setup->start_limit);
    const auto* start = second && *second ? std::get_if<Start>(&**second) : nullptr;
    if (start == nullptr) {
        // The launcher has ended, or has left this host out.
        return second ? CommandEnd{kExitJobFailed, 0} : usage_ending(second.error().detail);
    }
    const CommandEnd ending = run_as_told(supervisor, *start);
    supervisor.tell(Ended{ending.exit_code, ending.signal, ending.by_verdict, ending.report});
    return ending;
}

}  // namespace regroup::launcher::ssh
