// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker_sdk/src/cuda/device_runtime.h"
#include "worker_sdk/src/nccl/backend.h"
#include "worker_sdk/src/nccl/communicator.h"
#include "worker_sdk/src/nccl/group_identity.h"
#include "worker_sdk/src/nccl/in_flight.h"

namespace regroup::nccl {

/// Puts the operations of a group into streams. Used by the caller's thread alone.
class Issuer {
   public:
    /// On the current device. All arguments must outlive it.
    Issuer(const Backend& backend, const GroupIdentity& identity, Communicator& communicator,
           InFlight& in_flight);
    ~Issuer() { backend_.runtime.destroy_stream(own_stream_); }
    Issuer(const Issuer&) = delete;
    Issuer& operator=(const Issuer&) = delete;

    /// The stream of operations for which no other is named.
    [[nodiscard]] void* own_stream() const noexcept { return own_stream_; }
    /// Empty: the group's own stream.
    void use_stream(std::optional<Stream> stream) noexcept { user_stream_ = stream; }
    [[nodiscard]] std::optional<Stream> current_stream() const noexcept { return user_stream_; }
    /// Puts `calls` into the stream as one group of NCCL; their Works tell how they end. Throws
    /// Error `overloaded` or `system` if nothing was issued.
    void issue(std::vector<Call> calls);
    /// The number of the last collective.
    [[nodiscard]] std::uint64_t last_collective() const noexcept { return issued_.collective; }
    /// Counts a collective that needs no stream, and returns its number.
    std::uint64_t count_collective() noexcept { return ++issued_.collective; }

   private:
    /// The numbers of the last operations, collectives and messages.
    struct Numbers {
        std::uint64_t collective = 0;
        std::uint64_t message = 0;
    };

    [[nodiscard]] Numbers number(std::vector<Call>& calls) const;
    void record_issue(std::vector<Call>& calls) const;
    [[nodiscard]] void* begin_stream(const std::optional<Stream>& stream);
    [[nodiscard]] std::optional<GroupFailure> launch(std::span<const Call> calls, void* stream);
    [[nodiscard]] std::optional<GroupFailure> make_reductions(std::span<const Call> calls,
                                                              std::vector<ncclRedOp_t>& reductions);
    [[nodiscard]] GroupFailure failure_of(const CommReport& report,
                                          const Operation& operation) const;

    const Backend backend_;
    const GroupIdentity& identity_;
    Communicator& communicator_;
    InFlight& in_flight_;
    std::optional<Stream> user_stream_;
    cuda::Event default_stream_passed_;
    void* own_stream_;
    Numbers issued_;
};

}  // namespace regroup::nccl
