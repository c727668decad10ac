// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/kept_state.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "worker_sdk/src/cpu/group_formation.h"
#include "worker_sdk/src/training/replicas.h"

namespace regroup::elastic {
namespace {

/// How much of a GPU's tensor goes through the host at a time where the groups reach only that.
constexpr std::size_t kStagedBytes = std::size_t{16} << 20U;

[[noreturn]] void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, detail);
}

std::vector<std::uint64_t> gather(ProcessGroup& group, std::span<const std::uint64_t> mine) {
    std::vector<std::uint64_t> all(mine.size() * group.world_size());
    group.all_gather(mine, std::span(all)).wait();
    return all;
}

/// The ranks whose digest is not the most common one; all of them if none is more common.
std::string outliers(std::span<const std::uint64_t> by_rank) {
    std::map<std::uint64_t, std::size_t> counts;
    for (const std::uint64_t digest : by_rank) {
        ++counts[digest];
    }
    const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto most = std::max_element(counts.begin(), counts.end(), by_count);
    const bool decided = std::count_if(counts.begin(), counts.end(), [&](const auto& entry) {
                             return entry.second == most->second;
                         }) == 1;
    std::string ranks;
    std::size_t count = 0;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
        if (!decided || by_rank[rank] != most->first) {
            ranks += (count++ == 0 ? "" : ", ") + std::to_string(rank);
        }
    }
    return (count == 1 ? "rank " : "ranks ") + ranks;
}

}  // namespace

void KeptState::check_name(const std::string& name) const {
    if (std::any_of(items_.begin(), items_.end(),
                    [&](const Item& item) { return item.name == name; })) {
        refuse("keep(\"" + name + "\"): something is kept under this name already");
    }
}

void KeptState::add(std::string name, TensorView tensor) {
    check_name(name);
    if (tensor.count > 0 && tensor.data == nullptr) {
        refuse("keep(\"" + name + "\"): the tensor has no data");
    }
    items_.push_back({.name = std::move(name), .tensor = tensor});
}

void KeptState::add(std::string name, std::function<std::string()> save,
                    std::function<void(std::string_view)> load) {
    check_name(name);
    if (!save || !load) {
        refuse("keep(\"" + name + "\"): both save and load are needed");
    }
    items_.push_back(
        {.name = std::move(name), .tensor = {}, .save = std::move(save), .load = std::move(load)});
}

std::uint64_t KeptState::layout() const noexcept {
    std::string words;
    for (const Item& item : items_) {
        words += std::to_string(item.name.size()) + ":" + item.name + " ";
        words += item.save ? "value"
                           : std::to_string(item.tensor.count) + " x " +
                                 std::string(to_string(item.tensor.dtype));
        words += "\n";
    }
    return cpu::hash(words);
}

training::GradientDevice& KeptState::device(const Device& device) {
    if (!device_ || device_is_ != device) {
        device_ = training::make_gradient_device(device, Stream{});
        device_is_ = device;
    }
    return *device_;
}

void KeptState::broadcast(const Groups& groups, std::uint32_t root) {
    for (const Item& item : items_) {
        if (item.save) {
            broadcast_value(groups.control, item, root);
        } else {
            broadcast_tensor(groups, item.tensor, root);
        }
    }
}

void KeptState::broadcast_tensor(const Groups& groups, const TensorView& tensor,
                                 std::uint32_t root) {
    if (tensor.count == 0) {
        return;
    }
    for (ProcessGroup* const group : {&groups.steps, &groups.control}) {
        if (tensor.device == group->device()) {
            return group->broadcast(tensor, root).wait();
        }
    }
    training::GradientDevice& gpu = device(tensor.device);
    std::vector<std::byte> staged(std::min(tensor.bytes(), kStagedBytes));
    for (std::size_t at = 0; at < tensor.bytes(); at += staged.size()) {
        const std::size_t bytes = std::min(staged.size(), tensor.bytes() - at);
        std::byte* const there = static_cast<std::byte*>(tensor.data) + at;
        if (groups.control.rank() == root) {
            gpu.read(staged.data(), there, bytes);
        }
        groups.control.broadcast(TensorView(staged.data(), bytes, DType::uint8), root).wait();
        if (groups.control.rank() != root) {
            gpu.write(there, staged.data(), bytes);
        }
    }
}

void KeptState::broadcast_value(ProcessGroup& group, const Item& item, std::uint32_t root) {
    const bool mine = group.rank() == root;
    std::string bytes = mine ? item.save() : std::string();
    std::uint64_t count = bytes.size();
    group.broadcast(TensorView(std::span(&count, 1)), root).wait();
    bytes.resize(count);
    group.broadcast(TensorView(bytes.data(), bytes.size(), DType::uint8), root).wait();
    if (!mine) {
        item.load(bytes);
    }
}

std::uint64_t KeptState::digest_of(const Item& item) {
    if (item.save) {
        const std::string bytes = item.save();
        return training::digest_of(ConstTensorView(bytes.data(), bytes.size(), DType::uint8),
                                   device(Device()));
    }
    return training::digest_of(item.tensor, device(item.tensor.device));
}

void KeptState::compare(const Groups& groups) {
    const std::size_t world = groups.control.world_size();
    if (items_.empty() || world == 1) {
        return;
    }
    std::vector<std::uint64_t> mine;
    std::string words;
    for (const Item& item : items_) {
        mine.push_back(digest_of(item));
        words += std::to_string(mine.back()) + " ";
    }
    // One word for each rank tells whether all is well; only if not, one for each thing.
    const std::uint64_t whole = cpu::hash(words);
    const std::vector<std::uint64_t> wholes = gather(groups.control, std::span(&whole, 1));
    if (std::all_of(wholes.begin(), wholes.end(),
                    [&](std::uint64_t other) { return other == wholes.front(); })) {
        return;
    }
    const std::vector<std::uint64_t> all = gather(groups.control, mine);
    for (std::size_t index = 0; index < items_.size(); ++index) {
        std::vector<std::uint64_t> by_rank;
        for (std::size_t rank = 0; rank < world; ++rank) {
            by_rank.push_back(all[rank * items_.size() + index]);
        }
        if (std::any_of(by_rank.begin(), by_rank.end(),
                        [&](std::uint64_t other) { return other != by_rank.front(); })) {
            const std::string who = outliers(by_rank);
            refuse("the replicas differ: \"" + items_[index].name + "\" of " + who +
                   (who.starts_with("rank ") ? " is not what the others have"
                                             : " differ, and no value is the more common one") +
                   "; what is kept may be changed in the function given to commit() alone, by what "
                   "is equal on all ranks");
        }
    }
}

}  // namespace regroup::elastic
