// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <mutex>
#include <optional>
#include <string>

namespace regroup::cpu {

/// The group of a world of one: every operation is complete at once. No thread, no sockets.
class SoloProcessGroup final : public ProcessGroup {
   public:
    [[nodiscard]] std::uint32_t rank() const noexcept override { return 0; }
    [[nodiscard]] std::uint32_t world_size() const noexcept override { return 1; }
    [[nodiscard]] std::string_view backend() const noexcept override { return "cpu"; }

    [[nodiscard]] Work all_reduce(TensorView buffer, Reduction reduction) override;
    [[nodiscard]] Work broadcast(TensorView buffer, std::uint32_t root) override;
    [[nodiscard]] Work all_gather(ConstTensorView input, TensorView output) override;
    [[nodiscard]] Work barrier() override;
    [[nodiscard]] Work send(ConstTensorView buffer, std::uint32_t peer, std::uint32_t tag) override;
    [[nodiscard]] Work recv(TensorView buffer, std::uint32_t peer, std::uint32_t tag) override;
    void abort(std::string_view reason) noexcept override;

   private:
    [[nodiscard]] Work result(std::string_view operation) const;

    mutable std::mutex mutex_;
    std::optional<std::string> abort_reason_;  // guarded by mutex_
};

}  // namespace regroup::cpu
