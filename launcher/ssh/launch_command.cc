// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include "agent/process/linux_launcher.h"
#include "agent/process/own_limits.h"
#include "agent/process/resolve_program.h"
#include "launcher/cluster/sbatch_script.h"
#include "launcher/commands.h"
#include "launcher/host.h"
#include "launcher/run_plan.h"
#include "launcher/say.h"
#include "launcher/ssh/environment.h"
#include "launcher/ssh/launch.h"
#include "launcher/ssh/messages.h"
#include "launcher/ssh/options.h"
#include "launcher/trust.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::launcher::ssh {
namespace {

namespace fs = std::filesystem;

// The token of the user, or one of this job alone. Nothing where the hosts have other proofs, or
// where a daemon that we do not start has its own.
Result<std::optional<security::Token>> choose_token(const LaunchOptions& options) {
    using MaybeToken = std::optional<security::Token>;
    const security::CredentialSources& trust = options.run.trust;
    if (trust.insecure) {
        return MaybeToken();
    }
    const Result<security::Credentials> own = read_credentials(trust);
    if (!own) {
        return own.error();
    }
    if (own->certificates) {
        return MaybeToken();
    }
    if (!own->token) {
        return options.gives_endpoint ? MaybeToken() : MaybeToken(security::Token::generate());
    }
    if (own->token->scope().role != security::Role::full && !options.gives_endpoint) {
        return Failure(Errc::invalid_argument,
                       "the token here is for the role " +
                           std::string(to_string(own->token->scope().role)) +
                           "; the host that runs the daemon needs a full one "
                           "(--token-file names another)");
    }
    return own->token;
}

Result<std::string> folder_on_hosts(const LaunchOptions& options) {
    std::error_code error;
    const fs::path folder = fs::absolute(options.folder.empty() ? "." : options.folder, error);
    return error ? Result<std::string>(system_failure(
                       "cannot tell the current folder; --workdir names one", error.value()))
                 : folder.lexically_normal().string();
}

Result<std::string> path_of_regroup(const LaunchOptions& options) {
    if (!options.regroup.empty()) {
        return options.regroup;
    }
    std::error_code error;
    const fs::path own = fs::read_symlink("/proc/self/exe", error);
    return error ? Result<std::string>(system_failure(
                       "cannot tell the path of this program; --regroup names it", error.value()))
                 : own.string();
}

Result<std::vector<std::string>> ssh_client(const LaunchOptions& options) {
    Result<std::vector<std::string>> words = split_command(options.ssh);
    if (!words) {
        return words;
    }
    const Result<std::string> program =
        agent::resolve_program(words->front(), variable("PATH").value_or(""));
    if (!program) {
        return Failure(program.error().code, "--ssh: " + program.error().detail);
    }
    words->front() = *program;
    return words;
}

Result<LaunchPlan> make_plan(LaunchOptions options) {
    LaunchPlan plan;
    Result<std::vector<HostEntry>> hosts = read_hosts(options);
    if (!hosts) {
        return hosts.error();
    }
    plan.hosts = *std::move(hosts);
    if (const Result<void> checked = check_node_count(options, plan.hosts.size()); !checked) {
        return checked.error();
    }
    Result<std::vector<std::string>> variables =
        environment_for_hosts(agent::own_environment(), options.exports);
    if (!variables) {
        return Failure(variables.error().code, "-x " + variables.error().detail);
    }
    plan.environment = *std::move(variables);
    Result<std::vector<std::string>> ssh = ssh_client(options);
    if (!ssh) {
        return ssh.error();
    }
    plan.ssh = *std::move(ssh);
    const Result<std::string> regroup = path_of_regroup(options);
    if (!regroup) {
        return regroup.error();
    }
    // No other word needs a quote, so the login shell may be any that knows these two.
    plan.remote_command = "exec " + shell_word(*regroup) + " " + kNodeCommand;
    const Result<std::string> folder = folder_on_hosts(options);
    if (!folder) {
        return folder.error();
    }
    plan.folder = *folder;
    Result<std::optional<security::Token>> token = choose_token(options);
    if (!token) {
        return token.error();
    }
    plan.token = *std::move(token);
    plan.job = options.run.agent.core.job.empty() ? fresh_job_id() : options.run.agent.core.job;
    // Before any connection: what is too large for one host is too large for all.
    for (const Order& order : {Order(Setup{{}, {}, plan.folder, plan.environment, {}}),
                               Order(Start{{}, {}, options.run.program.arguments, {}})}) {
        if (const Result<std::string> frame = encode(order); !frame) {
            return frame.error();
        }
    }
    plan.options = std::move(options);
    return plan;
}

}  // namespace

CommandEnd launch_command(std::span<const std::string> arguments) {
    const auto fail = [](const Failure& failure) {
        return usage_error("regroup launch-ssh", failure.detail);
    };
    Result<std::variant<LaunchOptions, ShowText>> parsed = parse_launch_options(arguments);
    if (!parsed) {
        return fail(parsed.error());
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return {};
    }
    Result<LaunchPlan> plan = make_plan(std::get<LaunchOptions>(*std::move(parsed)));
    if (!plan) {
        return fail(plan.error());
    }
    agent::raise_descriptor_limit();
    return Launch(*std::move(plan)).run();
}

}  // namespace regroup::launcher::ssh
