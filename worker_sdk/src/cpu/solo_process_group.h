// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/operation.h"
#include "worker_sdk/src/group/descendants.h"

namespace regroup::cpu {

/// The group of a world of one: every operation is complete at once. No thread, no sockets.
class SoloProcessGroup final : public ProcessGroup {
   public:
    /// A sub-group is aborted together with `siblings`.
    explicit SoloProcessGroup(std::shared_ptr<Descendants> siblings = nullptr);
    ~SoloProcessGroup() override;

    [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return 1; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "cpu"; }

    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) override;
    void abort(std::string_view reason) noexcept override;

   protected:
    [[nodiscard]] Work issue(const OperationRequest& request) override;

   private:
    const std::shared_ptr<Descendants> descendants_ = std::make_shared<Descendants>();
    std::mutex mutex_;
    std::uint64_t number_ = 0;                 // guarded by mutex_
    std::optional<std::string> abort_reason_;  // guarded by mutex_
    SubgroupRegistration subgroup_registration_;
};

}  // namespace regroup::cpu
