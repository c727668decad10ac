// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker_sdk/src/ddp/gradient_device.h"
#include "worker_sdk/src/elastic/dissent.h"
#include "worker_sdk/src/snapshot/rank_snapshot.h"

namespace regroup::elastic {

/// The groups of a round: one for the tensors of the steps, one for host memory; on the CPU both
/// are the same.
struct Groups {
    ProcessGroup& steps;
    ProcessGroup& control;
};

/// Hashes of the registered state: of each item, and of all items.
struct Digests {
    std::vector<std::uint64_t> things;
    std::uint64_t whole = 0;
};

/// The state that must be equal on all ranks after every step, by name.
class RegisteredState {
   public:
    /// Throws Error `invalid_argument` for a name that is registered already, or a tensor without
    /// data.
    void add(std::string name, TensorView tensor);
    void add(std::string name, std::function<std::string()> save,
             std::function<void(std::string_view)> load);

    /// A tensor that steps change before they are committed; otherwise as `add`.
    void add_buffer(std::string name, TensorView tensor);

    /// Copies the present value of all buffers: it is committed.
    void keep_buffers();
    /// Gives all buffers their committed value.
    void restore_buffers();

    /// Adds everything to the snapshot, in order.
    void add_to(snapshot::RankSnapshot& snapshot) const;

    /// A hash of the names, in order, and of the tensors' counts and dtypes.
    [[nodiscard]] std::uint64_t layout() const noexcept;
    /// Gives all ranks the state of `root`, whose buffers have their committed values. A
    /// collective.
    void broadcast(const Groups& groups, std::uint32_t root);
    /// Of the state of this rank; of the committed value of buffers.
    [[nodiscard]] Digests digests();
    /// Describes the differences in a sentence. A collective of all ranks, with or without state:
    /// when it returns on one rank, all ranks know of the difference. If the collective fails, the
    /// sentence has no names.
    [[nodiscard]] std::string describe(const Groups& groups, const Dissent& dissent,
                                       const Digests& mine) const;

   private:
    struct Item {
        std::string name;
        TensorView tensor{};
        std::function<std::string()> save{};  // nullptr for a tensor
        std::function<void(std::string_view)> load{};
        bool is_buffer = false;
        std::vector<std::byte> committed{};  // of a buffer
    };

    void check_name(const std::string& name) const;
    void broadcast_tensor(const Groups& groups, const TensorView& tensor, std::uint32_t root);
    static void broadcast_value(ProcessGroup& group, const Item& item, std::uint32_t root);
    [[nodiscard]] std::uint64_t digest_of(const Item& item);
    [[nodiscard]] ddp::GradientDevice& device(const Device& device);

    std::vector<Item> items_;
    std::unique_ptr<ddp::GradientDevice> device_;
    Device device_is_{};
};

}  // namespace regroup::elastic
