// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_command.h"

#include <cstdio>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "agent/process/own_limits.h"
#include "agent/process/warden.h"
#include "launcher/node.h"
#include "launcher/output_plan.h"
#include "launcher/run_plan.h"
#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/client/deliver.h"

namespace regroup::launcher {

namespace {

constexpr Duration kLastWordLimit = std::chrono::milliseconds(400);

// The agent with its daemon and logs has about 28 open, and for a moment some more. Each worker
// adds six (its pidfd, its page, two pipes, two files), and with the SDK or PyTorch its connections
// to the agent and to the store.
constexpr std::uint64_t kDescriptorsOfAgent = 36;
constexpr std::uint64_t kDescriptorsOfWorker = 8;

// Without them the agent could not reach its own workers, or not know them for its own.
Result<void> require_descriptors(const RunPlan& plan) {
    const std::uint64_t workers = plan.agent.core.offer.workers;
    const Result<void> enough =
        agent::require_descriptors(kDescriptorsOfAgent + kDescriptorsOfWorker * workers);
    if (enough) {
        return {};
    }
    return Failure(enough.error().code,
                   "--nproc-per-node " + std::to_string(workers) + ": " + enough.error().detail +
                       "; raise the limit (ulimit -n), or start fewer workers");
}

// The warden runs it when the agent is dead. The daemon may be gone, too.
agent::Warden::Deliver last_word_sender(const RunPlan& plan) {
    const security::Identity identity{plan.agent.daemon.credentials,
                                      {security::Role::node, plan.agent.core.job}};
    return [identity](const agent::Warden::LastWord& word) {
        rendezvous::deliver({word.address, word.port}, word.name, word.bytes, identity,
                            kLastWordLimit);
    };
}

// The warden runs it when the agent was killed.
void clean_up_after(const RunPlan& plan) {
    remove_temporary(plan.temporary_folder);
    const std::string& fifo = plan.agent.group.command.watchdog_file;
    struct stat status{};
    if (!fifo.empty() && ::lstat(fifo.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {
        ::unlink(fifo.c_str());
    }
}

}  // namespace

CommandEnd run_command(Front front, std::span<const std::string> arguments,
                       const Supervision* supervision) {
    ssh::Supervisor* const supervisor = supervision != nullptr ? &supervision->supervisor : nullptr;
    const std::string who = own_prefix(supervisor) + "regroup";
    Result<std::variant<RunFlags, ShowText>> parsed = parse_run_flags(front, arguments);
    if (!parsed) {
        return usage_error(who, parsed.error().detail);
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return {};
    }
    auto& flags = std::get<RunFlags>(*parsed);
    if (supervision != nullptr) {
        flags.rendezvous.allocation = supervision->allocation;
        flags.rendezvous.is_host = supervision->is_head;
        flags.trust.token = supervision->token;
    }
    ServiceManager manager;  // Before the plan takes the environment for the workers.
    Result<RunPlan> plan = make_run_plan(std::move(flags));
    if (!plan) {
        return usage_error(who, plan.error().detail);
    }
    if (const Result<void> enough = require_descriptors(*plan); !enough) {
        return usage_error(who, enough.error().detail);
    }
    Result<agent::Warden> warden = agent::Warden::split(signals_of(*plan), last_word_sender(*plan),
                                                        [&plan] { clean_up_after(*plan); });
    if (!warden) {
        complain(who, warden.error().detail);
        return {kExitJobFailed};
    }
    Node node(*std::move(plan), std::move(manager), supervisor);
    CommandEnd ending = node.run(*warden);
    warden->say_goodbye();
    return ending;
}

}  // namespace regroup::launcher
