// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker_sdk/src/training/gradient_device.h"

namespace regroup::elastic {

/// The groups of a round: one for the tensors of the steps, one for host memory; perhaps the same.
struct Groups {
    ProcessGroup& steps;
    ProcessGroup& control;
};

/// What must be equal on all ranks after every step, by name.
class KeptState {
   public:
    /// Throw Error `invalid_argument` for a name that is taken, or a tensor without data.
    void add(std::string name, TensorView tensor);
    void add(std::string name, std::function<std::string()> save,
             std::function<void(std::string_view)> load);

    /// A hash of the names, in order, and of the tensors' counts and dtypes.
    [[nodiscard]] std::uint64_t layout() const noexcept;
    /// Everybody gets what `root` has. A collective.
    void broadcast(const Groups& groups, std::uint32_t root);
    /// A collective. Throws Error `invalid_argument` naming the first thing that differs and the
    /// ranks whose value is not the most common one; both, if there are two.
    void compare(const Groups& groups);

   private:
    struct Item {
        std::string name;
        TensorView tensor{};
        std::function<std::string()> save{};  // nullptr for a tensor
        std::function<void(std::string_view)> load{};
    };

    void check_name(const std::string& name) const;
    void broadcast_tensor(const Groups& groups, const TensorView& tensor, std::uint32_t root);
    static void broadcast_value(ProcessGroup& group, const Item& item, std::uint32_t root);
    [[nodiscard]] std::uint64_t digest_of(const Item& item);
    [[nodiscard]] training::GradientDevice& device(const Device& device);

    std::vector<Item> items_;
    std::unique_ptr<training::GradientDevice> device_;  // Of the first tensor that needed one.
    Device device_is_{};
};

}  // namespace regroup::elastic
