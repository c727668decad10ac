// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/registered_state.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/ddp/replicas.h"
#include "worker_sdk/src/link/progress_reporter.h"

namespace regroup::elastic {
namespace {

/// The block size for a tensor on a GPU that must pass through host memory.
constexpr std::size_t kStagedBytes = std::size_t{16} << 20U;

[[noreturn]] void refuse(const std::string& detail) {
    throw Error(Errc::invalid_argument, detail);
}

}  // namespace

void RegisteredState::check_name(const std::string& name) const {
    if (std::any_of(items_.begin(), items_.end(),
                    [&](const Item& item) { return item.name == name; })) {
        refuse("register_state(\"" + name + "\"): this name is registered already");
    }
}

void RegisteredState::add(std::string name, TensorView tensor) {
    check_name(name);
    if (tensor.count > 0 && tensor.data == nullptr) {
        refuse("register_state(\"" + name + "\"): the tensor has no data");
    }
    items_.push_back({.name = std::move(name), .tensor = tensor});
}

void RegisteredState::add_buffer(std::string name, TensorView tensor) {
    add(std::move(name), tensor);
    items_.back().is_buffer = true;
}

void RegisteredState::keep_buffers() {
    for (Item& item : items_) {
        if (item.is_buffer && item.tensor.count > 0) {
            item.committed.resize(item.tensor.bytes());
            device(item.tensor.device)
                .read(item.committed.data(), item.tensor.data, item.committed.size());
        }
    }
}

void RegisteredState::restore_buffers() {
    for (const Item& item : items_) {
        if (!item.committed.empty()) {
            device(item.tensor.device)
                .write(item.tensor.data, item.committed.data(), item.committed.size());
        }
    }
}

void RegisteredState::add(std::string name, std::function<std::string()> save,
                          std::function<void(std::string_view)> load) {
    check_name(name);
    if (!save || !load) {
        refuse("register_state(\"" + name + "\"): both save and load are needed");
    }
    items_.push_back(
        {.name = std::move(name), .tensor = {}, .save = std::move(save), .load = std::move(load)});
}

void RegisteredState::add_to(snapshot::RankSnapshot& snapshot) const {
    for (const Item& item : items_) {
        snapshot::Entry entry = snapshot::entry_of(item.name, item.tensor);
        entry.save = item.save;
        entry.load = item.load;
        snapshot.add(std::move(entry));
    }
}

std::uint64_t RegisteredState::layout() const noexcept {
    std::string words;
    for (const Item& item : items_) {
        words += std::to_string(item.name.size()) + ":" + item.name + " ";
        words += item.save ? "value"
                           : std::to_string(item.tensor.count) + " x " +
                                 std::string(to_string(item.tensor.dtype));
        words += "\n";
    }
    return checksum(words);
}

ddp::GradientDevice& RegisteredState::device(const Device& device) {
    if (!device_ || device_is_ != device) {
        device_ = ddp::make_gradient_device(device, Stream{});
        device_is_ = device;
    }
    return *device_;
}

void RegisteredState::broadcast(const Groups& groups, std::uint32_t root) {
    // The size of values is known only to the rank that sends them.
    std::uint64_t total = 0;
    for (const Item& item : items_) {
        total += item.save ? 0 : item.tensor.bytes();
    }
    const link::SdkTransfer transfer(worker_link::TransferKind::state, total);
    for (const Item& item : items_) {
        if (item.save) {
            broadcast_value(groups.control, item, root);
        } else {
            broadcast_tensor(groups, item.tensor, root);
            link::SdkTransfer::add(item.tensor.bytes());
        }
    }
    keep_buffers();
}

void RegisteredState::broadcast_tensor(const Groups& groups, const TensorView& tensor,
                                       std::uint32_t root) {
    if (tensor.count == 0) {
        return;
    }
    for (ProcessGroup* const group : {&groups.steps, &groups.control}) {
        if (tensor.device == group->device()) {
            return group->broadcast(tensor, root).wait();
        }
    }
    ddp::GradientDevice& gpu = device(tensor.device);
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

void RegisteredState::broadcast_value(ProcessGroup& group, const Item& item, std::uint32_t root) {
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

std::uint64_t RegisteredState::digest_of(const Item& item) {
    const auto digest_of_host = [this](const auto& bytes) {
        return ddp::digest_of(ConstTensorView(bytes.data(), bytes.size(), DType::uint8),
                              device(Device()));
    };
    if (item.save) {
        return digest_of_host(item.save());
    }
    if (item.is_buffer) {
        return digest_of_host(item.committed);
    }
    return ddp::digest_of(item.tensor, device(item.tensor.device));
}

Digests RegisteredState::digests() {
    Digests mine;
    std::string words;
    for (const Item& item : items_) {
        mine.things.push_back(digest_of(item));
        words += std::to_string(mine.things.back()) + " ";
    }
    mine.whole = checksum(words);
    return mine;
}

std::string RegisteredState::describe(const Groups& groups, const Dissent& dissent,
                                      const Digests& mine) const {
    std::vector<Thing> things;
    for (const Item& item : items_) {
        things.push_back({.name = item.name, .is_saved = item.save != nullptr});
    }
    std::vector<std::uint64_t> row = mine.things;
    row.resize(things.size());  // A rank without the state has no digests.
    std::vector<std::uint64_t> all(row.size() * groups.control.world_size());
    try {
        groups.control.all_gather(std::span<const std::uint64_t>(row), std::span(all)).wait();
    } catch (const Error&) {
        return elastic::describe(dissent, things, {});
    }
    try {
        groups.control.barrier().wait();
    } catch (const Error&) {
        // A lost rank ends the round; the ranks that dissent end in any case.
    }
    return elastic::describe(dissent, things, all);
}

}  // namespace regroup::elastic
