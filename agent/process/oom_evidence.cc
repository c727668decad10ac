// SPDX-License-Identifier: Apache-2.0
#include "agent/process/oom_evidence.h"

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "rendezvous/cgroup/cgroup.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

/// The text "Memory cgroup out of memory: Killed process 123 (train)" of such a record, and the
/// pid.
std::optional<std::pair<pid_t, std::string>> parse_record(std::string_view record) {
    const std::string_view text = kernel_text(record);
    for (const std::string_view reason : {"", "Out of memory: ", "Memory cgroup out of memory: ",
                                          "Out of memory (oom_kill_allocating_task): "}) {
        const std::string head = std::string(reason) + "Killed process ";
        pid_t pid = 0;
        if (!text.starts_with(head) ||
            std::from_chars(text.data() + head.size(), text.data() + text.size(), pid).ec !=
                std::errc()) {
            continue;
        }
        // The name may contain parentheses. The text after it has none.
        const std::size_t name_end = text.rfind(')');
        const bool named = name_end != text.npos && name_end > head.size();
        return std::pair(pid, std::string(text.substr(0, named ? name_end + 1 : text.npos)));
    }
    return std::nullopt;
}

}  // namespace

OomWatch::OomWatch(fs::path root) : root_(std::move(root)) {
    choose_counter();
    if (has_pids_of_machine(root_)) {
        log_.emplace(root_).skip_to_end();
    }
}

void OomWatch::choose_counter() {
    std::vector<Counter> candidates;
    const cgroup::Hierarchies all(root_);
    if (const auto group = all.find("memory")) {
        candidates.push_back(
            {group->folder / "memory.oom_control", "memory.oom_control", "this cgroup"});
    }
    if (const auto group = all.find("")) {
        candidates.push_back({group->folder / "memory.events", "memory.events", "this cgroup"});
    }
    candidates.push_back({root_ / "proc/vmstat", "/proc/vmstat", "this machine"});
    for (const Counter& candidate : candidates) {
        if (const auto count = cgroup::read_count(candidate.file, "oom_kill")) {
            counter_ = candidate;
            count_before_ = *count;
            return;
        }
    }
}

void OomWatch::begin_again() {
    if (log_) {
        log_->skip_to_end();
    }
    victims_.clear();
    if (const auto count = cgroup::read_count(counter_.file, "oom_kill")) {
        count_before_ = *count;
    }
}

void OomWatch::read_log() {
    if (!log_) {
        return;
    }
    log_->read(kLogRecordsMax, [this](std::string_view record) {
        if (auto victim = parse_record(record)) {
            victims_.push_back({victim->first, std::move(victim->second)});
            if (victims_.size() > kVictimsMax) {
                victims_.pop_front();
            }
        }
        return true;
    });
}

std::string OomWatch::evidence(pid_t pid) {
    read_log();
    for (const Victim& victim : victims_) {
        if (victim.pid == pid) {
            return "the kernel log says: " + victim.record;
        }
    }
    if (counter_.file.empty()) {
        return "";
    }
    const auto now = cgroup::read_count(counter_.file, "oom_kill");
    if (!now || *now <= count_before_) {
        return "";
    }
    const std::uint64_t killed = *now - count_before_;
    return "the kernel's out-of-memory killer ended " + std::to_string(killed) +
           (killed == 1 ? " process" : " processes") + " of " + counter_.whose + " (" +
           counter_.shown + " oom_kill " + std::to_string(count_before_) + " -> " +
           std::to_string(*now) + ")";
}

}  // namespace regroup::agent
