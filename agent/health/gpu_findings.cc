// SPDX-License-Identifier: Apache-2.0
//
// Judges the GPUs of a node.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "agent/health/findings.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"

namespace regroup::health {

namespace {

// CUDA itself and a display take less.
constexpr std::uint64_t kMemoryInUse = std::uint64_t{512} << 20U;
constexpr std::size_t kProcessesNamed = 3;

std::vector<std::string> entries_of(const std::string& visible) {
    std::vector<std::string> entries;
    for (const std::string_view entry : split(visible, ',')) {
        entries.emplace_back(trimmed(entry));
    }
    return entries;
}

bool is_index(const std::string& entry) {
    return !entry.empty() &&
           std::all_of(entry.begin(), entry.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// A GPU with its number in nvidia-smi.
struct Numbered {
    std::size_t number = 0;
    const Gpu* gpu = nullptr;

    [[nodiscard]] std::string name() const {
        return "GPU " + std::to_string(number) + " (" + gpu->address + ")";
    }
};

/// The GPUs that the workers may use, by CUDA's rules. `certain`: they do use only these.
struct Chosen {
    std::vector<Numbered> gpus;
    bool certain = true;
};

/// False: CUDA numbers the fastest GPU first, and only CUDA knows which one that is.
bool is_numbered_by_bus(const std::vector<Numbered>& gpus, const Needs& needs) {
    return needs.gpu_order == "PCI_BUS_ID" ||
           std::all_of(gpus.begin(), gpus.end(), [&](const Numbered& gpu) {
               return gpu.gpu->model == gpus.front().gpu->model;
           });
}

Chosen choose(const std::vector<Gpu>& all, const Needs& needs) {
    const std::optional<std::string>& visible = needs.visible_gpus;
    Chosen chosen;
    std::vector<Numbered> given;
    for (std::size_t number = 0; number < all.size(); ++number) {
        if (all[number].state != Gpu::State::denied) {
            given.push_back({number, &all[number]});
        }
    }
    if (!visible) {
        chosen.gpus = std::move(given);
        return chosen;
    }
    std::set<std::size_t> taken;
    for (const std::string& entry : entries_of(*visible)) {
        if (entry.starts_with("MIG-")) {
            // Only CUDA knows the GPU of such a part.
            return {std::move(given), false};
        }
        std::size_t index = given.size();
        if (is_index(entry)) {
            if (!is_numbered_by_bus(given, needs)) {
                return {std::move(given), false};
            }
            std::from_chars(entry.data(), entry.data() + entry.size(), index);
        } else if (entry.starts_with("GPU-")) {
            index =
                static_cast<std::size_t>(std::find_if(given.begin(), given.end(),
                                                      [&](const Numbered& gpu) {
                                                          return gpu.gpu->uuid.starts_with(entry);
                                                      }) -
                                         given.begin());
            if (index == given.size()) {
                // A lost GPU has no UUID any more, so it may be the one.
                return {std::move(given), false};
            }
        }
        if (index >= given.size()) {
            break;
        }
        if (taken.insert(index).second) {
            chosen.gpus.push_back(given[index]);
        }
    }
    return chosen;
}

std::string reset(std::size_t number) {
    return "nvidia-smi --gpu-reset -i " + std::to_string(number);
}

/// Collects findings about one GPU.
class GpuJudge {
   public:
    GpuJudge(const Numbered& gpu, bool certain, std::vector<Finding>& findings)
        : gpu_(*gpu.gpu),
          number_(gpu.number),
          name_(gpu.name()),
          certain_(certain),
          findings_(findings) {}

    void judge(const Needs& needs) {
        switch (gpu_.state) {
            case Gpu::State::denied:
                return;
            case Gpu::State::lost:
                add(Check::gpu_lost, "has fallen off the bus; restart this machine");
                return;
            case Gpu::State::missing:
                add(Check::gpu_missing,
                    "is known to the kernel, but not to the driver's library; restart this "
                    "machine");
                return;
            case Gpu::State::failed:
                add(Check::gpu_error, "does not answer: " + gpu_.error +
                                          "; look at nvidia-smi -i " + std::to_string(number_));
                return;
            case Gpu::State::answers:
                break;
        }
        judge_recovery();
        judge_memory();
        judge_clocks();
        if (!needs.has_run) {
            judge_leftovers();
        }
    }

   private:
    void add(Check check, const std::string& rest) {
        findings_.push_back({check, name_ + " " + rest, certain_});
    }

    void judge_recovery() {
        struct Need {
            std::string_view what;
            std::string_view remedy;
            bool resets;
        };
        static constexpr std::string_view kEnd = "end all programs that use it, and ";
        static constexpr std::array<Need, 4> kNeeds{{
            {"needs a reset", "", true},
            {"needs a restart of this machine", "restart it", false},
            {"has broken connections to its peers", kEnd, true},
            {"must be drained and reset", kEnd, true},
        }};
        const int action = gpu_.recovery_action;
        if (action == -1 || action == 0) {
            return;
        }
        if (action < 0 || static_cast<std::size_t>(action) > kNeeds.size()) {
            add(Check::gpu_recovery, "needs recovery action " + std::to_string(action) +
                                         ", says its driver; look at nvidia-smi -q -i " +
                                         std::to_string(number_));
            return;
        }
        const Need& need = kNeeds.at(static_cast<std::size_t>(action) - 1);
        add(Check::gpu_recovery, std::string(need.what) + ", says its driver; " +
                                     std::string(need.remedy) +
                                     (need.resets ? "run " + reset(number_) : ""));
    }

    void judge_memory() {
        if (gpu_.remap_failed) {
            add(Check::gpu_remap_failed,
                "cannot replace broken rows of its memory; have the GPU replaced");
        } else if (gpu_.remap_pending) {
            add(Check::gpu_remap_pending,
                "replaces broken rows of its memory only after a reset; when it is idle, run " +
                    reset(number_));
        }
        if (gpu_.uncorrected_errors > 0) {
            add(Check::gpu_memory_errors,
                "has had " + std::to_string(gpu_.uncorrected_errors) +
                    " uncorrectable memory errors since its driver was loaded; look at nvidia-smi "
                    "-q -d ECC -i " +
                    std::to_string(number_));
        }
    }

    void judge_clocks() {
        static constexpr std::array<std::pair<std::uint64_t, std::string_view>, 4> kBad{{
            {0x08, "the hardware slows it down"},
            {0x20, "it is too hot (software limit)"},
            {0x40, "it is too hot (hardware limit)"},
            {0x80, "the power supply asks for less"},
        }};
        std::vector<std::string_view> why;
        for (const auto& [bit, text] : kBad) {
            // The first reason only says that there is one of the last two.
            const bool explained = bit == 0x08 && (gpu_.clock_reasons & 0xc0U) != 0;
            if ((gpu_.clock_reasons & bit) != 0 && !explained) {
                why.push_back(text);
            }
        }
        if (!why.empty()) {
            add(Check::gpu_clocks,
                "runs slowly: " + joined(why, ", ") + "; look at the cooling and the power supply");
        }
    }

    void judge_leftovers() {
        std::uint64_t known = 0;
        std::string who;
        std::size_t named = 0;
        for (const GpuProcess& process : gpu_.processes) {
            known += process.bytes;
            if (++named <= kProcessesNamed) {
                who += (who.empty() ? "pid " : ", pid ") + std::to_string(process.pid) +
                       (process.command.empty() ? "" : " (" + process.command + ")");
            }
        }
        if (named > kProcessesNamed) {
            who += " and " + std::to_string(named - kProcessesNamed) + " more";
        }
        const std::uint64_t used = std::max(known, gpu_.memory_used);
        if (used < kMemoryInUse) {
            return;
        }
        add(Check::gpu_memory_in_use,
            "has " + bytes_text(used) + " of its memory in use by " +
                (who.empty() ? "a process that cannot be seen from here" : who) +
                "; end it, or choose other GPUs by CUDA_VISIBLE_DEVICES");
    }

    const Gpu& gpu_;
    std::size_t number_;
    std::string name_;
    bool certain_;
    std::vector<Finding>& findings_;
};

bool is_fatal(int xid) noexcept {
    static constexpr std::array kFatal{48, 74, 79, 95, 119, 120, 145, 149};
    return std::find(kFatal.begin(), kFatal.end(), xid) != kFatal.end();
}

bool is_by_program(int xid) noexcept {
    static constexpr std::array kPrograms{13, 31, 43, 45, 68, 109};
    return std::find(kPrograms.begin(), kPrograms.end(), xid) != kPrograms.end();
}

std::string times(std::size_t count) {
    return count == 1 ? "" : " (" + std::to_string(count) + " times)";
}

void judge_xids(const Driver& driver, const Chosen& chosen, const Needs& needs,
                std::vector<Finding>& findings) {
    for (const Numbered& gpu : chosen.gpus) {
        std::map<int, std::size_t> before;
        std::map<int, std::size_t> since;
        for (const Xid& xid : driver.xids) {
            // "0000:3b:00" is the device of the function "0000:3b:00.0".
            if (gpu.gpu->address.starts_with(xid.address + ".")) {
                ++(xid.at < needs.began ? before : since)[xid.number];
            }
        }
        for (const auto& [number, count] : since) {
            const std::string told =
                gpu.name() + " has reported Xid " + std::to_string(number) + times(count);
            if (is_fatal(number)) {
                findings.push_back({Check::gpu_xid_fatal,
                                    told + " since this launcher started; restart this machine, "
                                           "and have the GPU replaced if that comes again",
                                    chosen.certain});
            } else {
                findings.push_back(
                    {Check::gpu_xid, told + " since this launcher started; " +
                                         (is_by_program(number) ? "mostly the program has caused it"
                                                                : "look it up in NVIDIA's list")});
            }
        }
        for (const auto& [number, count] : before) {
            if (!is_by_program(number)) {
                findings.push_back({Check::gpu_xid, gpu.name() + " has reported Xid " +
                                                        std::to_string(number) + times(count) +
                                                        " since this machine started; if jobs "
                                                        "fail here, look it up in NVIDIA's list"});
            }
        }
    }
}

}  // namespace

bool may_use_gpus(const std::optional<std::string>& visible) {
    if (!visible) {
        return true;
    }
    const std::string first = entries_of(*visible).front();
    return is_index(first) || first.starts_with("GPU-") || first.starts_with("MIG-");
}

std::vector<Finding> judge_driver(const Driver& driver, const Needs& needs) {
    std::vector<Finding> findings;
    switch (driver.state) {
        case Driver::State::absent:
            return findings;
        case Driver::State::no_library:
            findings.push_back(
                {Check::gpu_library, "the GPUs are not checked: " + driver.error +
                                         "; install the driver's library, libnvidia-ml.so.1"});
            return findings;
        case Driver::State::failed:
            findings.push_back(
                {Check::gpu_driver, "the NVIDIA driver does not work: " + driver.error +
                                        "; run nvidia-smi, and load the driver anew "
                                        "or restart this machine"});
            return findings;
        case Driver::State::silent:
            findings.push_back({Check::gpu_driver, "the NVIDIA driver has not answered within " +
                                                       std::to_string(driver.limit) +
                                                       " s; restart this machine"});
            return findings;
        case Driver::State::crashed:
            findings.push_back({Check::probe, "this node is checked only in part: the probe " +
                                                  driver.error + "; run regroup health"});
            return findings;
        case Driver::State::answers:
            break;
    }
    const Chosen chosen = choose(driver.gpus, needs);
    std::size_t usable = 0;
    for (const Numbered& gpu : chosen.gpus) {
        usable += gpu.gpu->state == Gpu::State::answers ? 1 : 0;
        GpuJudge(gpu, chosen.certain, findings).judge(needs);
    }
    judge_xids(driver, chosen, needs, findings);
    const bool explained = usable < chosen.gpus.size();
    if (usable < needs.gpus && chosen.certain && !explained) {
        findings.push_back(
            {Check::gpu_count, "the workers of this node need " + counted(needs.gpus, "GPU") +
                                   ", and " + std::to_string(usable) +
                                   " can be used; look at nvidia-smi and CUDA_VISIBLE_DEVICES"});
    }
    return findings;
}

}  // namespace regroup::health
