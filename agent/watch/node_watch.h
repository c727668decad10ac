// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/core/agent_core.h"
#include "agent/output/ledger.h"
#include "agent/process/linux_launcher.h"
#include "agent/watch/hang_watch.h"
#include "agent/watch/record_saver.h"
#include "agent/watch/stack_saver.h"
#include "agent/watch/work_windows.h"
#include "agent/workers/event_record.h"
#include "agent/workers/live_worker.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

struct NodeWatchOptions {
    HangLimits limits{};
    /// The folder of this run, for stacks and the ledger. Empty: stacks go to a new temporary
    /// folder, and there is no ledger.
    std::filesystem::path folder;
    std::string search_path;  ///< The value of PATH, to find tools that show stacks.
    bool keeps_ledger = true;
    TorchPipe torch_pipe{};  ///< For flight records.
};

/// Watches the workers of an agent for hangs, saves their stacks, and writes the ledger of
/// recoveries. Decides nothing about rounds.
class NodeWatch {
   public:
    struct Handlers {
        std::function<std::vector<LiveWorker>()> workers;
        /// See HangWatch::Handlers.
        std::function<std::optional<std::vector<std::uint64_t>>()> output;
        /// See HangWatch::Handlers.
        std::function<rendezvous::RankSet()> finished;
        std::function<void(const HangSuspected&)> on_hang;
        std::function<void(const WorkersAtWork&)> on_work;
        std::function<void(const StacksSaved&)> on_stacks;
        std::function<void(const std::string& line)> say;
        EventSink on_event{};  ///< May be empty.
        /// See RecordSaver::Ask.
        RecordSaver::Ask ask_for_records;
    };

    /// All references outlive this object.
    NodeWatch(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
              const AgentConfig& config, NodeWatchOptions options, Handlers handlers);

    void round_began(const Assignment& assignment);
    /// The round is stopping. May be called again.
    void round_stops() { hangs_.stop(); }
    void round_ended() { hangs_.end(); }

    /// Tells where the workers are, and saves their stacks if that is asked for. on_stacks gets the
    /// answer, unless another request comes first.
    void save_stacks(const SaveStacks& request);
    void tell(const TellRecovery& recovery);

    /// A look at each worker that has a page.
    [[nodiscard]] std::vector<WorkerLook> looks() const;
    /// A window of the round that has ended since the last call; see WorkWindows.
    [[nodiscard]] std::optional<rendezvous::WorkWindow> work_window();

   private:
    /// The workers of the present round.
    [[nodiscard]] std::vector<LiveWorker> workers() const;
    /// See HangWatch::Handlers.
    [[nodiscard]] std::vector<WorkerGroups> groups(Instant now);
    [[nodiscard]] std::optional<std::vector<std::uint64_t>> output() const;
    void tell_hang(const std::optional<rendezvous::Hang>& hang);
    [[nodiscard]] Result<std::filesystem::path> folder_for_stacks(RoundId round);
    struct HangSave;
    void save(const std::shared_ptr<HangSave>& hang, const std::string& reason);
    void write_facts(HangSave& hang, const std::string& reason) const;
    /// Tells the result once stacks and records are saved.
    void finish_if_saved(const HangSave& hang);
    void record(const Assignment& assignment, const std::vector<HangSubject>& subjects,
                const std::filesystem::path& folder) const;

    const Clock& clock_;
    const std::string job_;
    const std::string node_;  ///< The node's name.
    const std::uint32_t workers_;
    NodeWatchOptions options_;
    Handlers handlers_;
    HangWatch hangs_;
    StackSaver stacks_;
    RecordSaver records_;
    std::optional<Ledger> ledger_;
    bool ledger_trouble_ = false;  ///< An error of the ledger was printed and lasts.
    WorkWindows work_;
    Assignment assignment_;
    /// The workers of the round that write collectives, also those that have ended since. By rank.
    std::map<std::uint32_t, LiveWorker> seen_;
    std::string hang_;  ///< The printed text of the hang; empty: none.
};

}  // namespace regroup::agent
