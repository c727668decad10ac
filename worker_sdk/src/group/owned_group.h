// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "worker_sdk/src/base/process_mark.h"

namespace regroup {

/// The group that a program holds: that of a back end, for the process that formed it alone. In a
/// forked child each call that would reach other ranks throws, and the destructor leaves the group
/// as it is.
class OwnedGroup final : public ProcessGroup {
   public:
    explicit OwnedGroup(std::unique_ptr<ProcessGroup> group) : group_(group.release()) {}

    [[nodiscard]] std::uint32_t rank() const noexcept override { return group_->rank(); }
    [[nodiscard]] std::uint32_t world_size() const noexcept override {
        return group_->world_size();
    }
    [[nodiscard]] std::string_view backend() const noexcept override { return group_->backend(); }
    [[nodiscard]] Device device() const noexcept override { return group_->device(); }

    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) override;
    [[nodiscard]] Buffer allocate(std::size_t bytes) override;
    void use_stream(Stream stream) override;
    [[nodiscard]] std::optional<Stream> current_stream() const override;
    void use_own_stream() override;
    void abort(std::string_view reason) noexcept override;

    /// The group of the back end, where `group` is an OwnedGroup; otherwise `group`.
    [[nodiscard]] static const ProcessGroup& within(const ProcessGroup& group) noexcept;

   protected:
    [[nodiscard]] Work issue(const OperationRequest& request) override;
    void begin_batch() override;
    void end_batch() override;

   private:
    const ProcessMark mark_;
    const std::unique_ptr<ProcessGroup, OwnerDeleter> group_;
};

}  // namespace regroup
