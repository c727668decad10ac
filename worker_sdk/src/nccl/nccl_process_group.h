// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/nccl/arguments.h"
#include "worker_sdk/src/nccl/lane.h"
#include "worker_sdk/src/nccl/watchdog.h"

namespace regroup::nccl {

/// The group over NCCL: checks requests and puts them into the lane. The group that `create` formed
/// and its sub-groups share one watchdog, which ends them together.
class NcclProcessGroup final : public ProcessGroup {
   public:
    /// Takes a lane whose communicator is connected, and which `watchdog` watches.
    NcclProcessGroup(const Backend& backend, std::shared_ptr<Watchdog> watchdog,
                     std::shared_ptr<Lane> lane);
    ~NcclProcessGroup() override;

    [[nodiscard]] std::uint32_t rank() const noexcept override { return bounds_.rank; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return bounds_.world_size; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "nccl"; }
    [[nodiscard]] Device device() const noexcept override { return bounds_.device; }

    [[nodiscard]] std::unique_ptr<ProcessGroup> new_group(const std::vector<std::uint32_t>& ranks,
                                                          std::string_view name) override;
    [[nodiscard]] Buffer allocate(std::size_t bytes) override;
    void use_stream(Stream stream) override { lane_->issuer().use_stream(stream); }
    [[nodiscard]] std::optional<Stream> current_stream() const override {
        return lane_->issuer().current_stream();
    }
    void use_own_stream() override { lane_->issuer().use_stream(std::nullopt); }
    void abort(std::string_view reason) noexcept override;

   protected:
    [[nodiscard]] Work issue(const OperationRequest& request) override;
    void begin_batch() override;
    void end_batch() override;

   private:
    [[nodiscard]] GroupIdentity identity_of(const std::vector<std::uint32_t>& ranks,
                                            const std::string& name) const;
    void agree_on(const std::vector<std::uint32_t>& ranks, const std::string& name,
                  const std::optional<Error>& obstacle);
    void split(int color, int key, const std::string& name);
    void fail_batch(std::string_view reason) noexcept;

    const Backend backend_;
    const std::shared_ptr<Watchdog> watchdog_;
    const std::shared_ptr<Lane> lane_;
    const Bounds bounds_;
    std::uint32_t splits_ = 0;  // the caller's thread
    std::mutex mutex_;
    std::optional<std::vector<Call>> batch_;  // while one is open; guarded by mutex_
    /// Aborts the group at the end of the round; at once if that has passed.
    std::optional<RoundScope::Registration> registration_;
};

}  // namespace regroup::nccl
