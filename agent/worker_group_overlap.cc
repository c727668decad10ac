// SPDX-License-Identifier: Apache-2.0
//
// How a WorkerGroup deals with workers beside which others are started before they have ended.
#include <algorithm>
#include <unistd.h>
#include <utility>

#include "agent/process/process_tree.h"
#include "agent/worker_group.h"

namespace regroup::agent {

namespace {

// Added to the local rank, names the output of who was released.
constexpr std::uint32_t kReleasedOutput = 1U << 31U;

bool contains(const std::vector<std::uint32_t>& local_ranks, std::uint32_t local_rank) {
    return std::find(local_ranks.begin(), local_ranks.end(), local_rank) != local_ranks.end();
}

}  // namespace

void WorkerGroup::release(const std::vector<std::uint32_t>& local_ranks) {
    for (auto& [key, process] : processes_) {
        if (!process.released && !process.told && contains(local_ranks, process.local_rank)) {
            process.released = true;
            process.output = kReleasedOutput + process.local_rank;
            output_.renumber(process.local_rank, process.output);
        }
    }
}

MemoryRoom WorkerGroup::room_for_successors() {
    std::vector<std::uint64_t> asked;
    for (const auto& [key, process] : processes_) {
        if (process.asked && !process.told) {
            asked.push_back(key);
        }
    }
    std::vector<pid_t> trees;
    for (const std::uint64_t key : asked) {
        look_at(key);
        const pid_t pid = processes_.at(key).child->pid();
        const std::vector<pid_t> below = descendants(pid);
        trees.push_back(pid);
        trees.insert(trees.end(), below.begin(), below.end());
    }
    return measure_room(trees);
}

void WorkerGroup::end_released(int signal, const std::vector<std::uint32_t>& local_ranks) {
    for (auto& [key, process] : processes_) {
        if (process.released && !process.told && contains(local_ranks, process.local_rank)) {
            this->signal(process, signal);
        }
    }
    look_soon();
}

// Where its successor has the same file, as in a folder for each restart, it would be taken for
// that one's.
void WorkerGroup::forget_late_error(const Process& process) {
    const Process* const successor = process.released ? living(process.local_rank) : nullptr;
    if (successor != nullptr && !process.error_file.empty() &&
        successor->error_file == process.error_file) {
        ::unlink(process.error_file.c_str());
    }
}

}  // namespace regroup::agent
