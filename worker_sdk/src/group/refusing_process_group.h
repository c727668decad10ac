// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// new_group returns this group on ranks that are not members of the new group. It refuses every
/// operation with an error that names the members.
class RefusingProcessGroup final : public ProcessGroup {
   public:
    /// `rank` is this rank's and `members` are the members' in the group that was divided.
    RefusingProcessGroup(std::string_view backend, Device device, std::string_view name,
                         std::uint32_t rank, const std::vector<std::uint32_t>& members);

    [[nodiscard]] std::uint32_t rank() const noexcept override { return kNotAMember; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return world_size_; }
    [[nodiscard]] std::string_view backend() const noexcept override { return backend_; }
    [[nodiscard]] Device device() const noexcept override { return device_; }

    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) override;
    [[nodiscard]] Buffer allocate(std::size_t bytes) override;
    void abort(std::string_view reason) noexcept override;

   protected:
    [[nodiscard]] Work issue(const OperationRequest& request) override;

   private:
    [[noreturn]] void refuse(std::string_view operation) const;

    const std::string backend_;
    const Device device_;
    const std::uint32_t world_size_;
    const std::string explanation_;
};

}  // namespace regroup
