// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/errc.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup::nccl {

/// How the ranks that form a group find each other: by keys in the store, under the group's name,
/// its round and the attempt. Errors begin with `where`.
class Meeting {
   public:
    /// Registers the attempt in the store. Throws the errors of the store.
    Meeting(const Context& context, const std::string& name, std::string where, Duration limit);

    [[nodiscard]] MemberStore& store() noexcept { return store_; }
    [[nodiscard]] Instant deadline() const noexcept { return deadline_; }
    /// "3/here".
    [[nodiscard]] static std::string key(std::uint32_t rank, const char* name);

    /// Waits for `keys`, and throws within a second if another rank has given up this attempt. At
    /// the deadline the error names the ranks without a key `per_rank` and says `what` they have
    /// not done.
    void await(const std::vector<std::string>& keys, const char* what, const char* per_rank);
    /// Throws Error `disconnected` with the reason if another rank has given up.
    void look_around();
    /// Called after a neighbour has closed its connection. Waits a moment for the reason and throws
    /// it.
    void hear_why();
    /// Tells the other ranks, so that they do not wait for this rank until the deadline.
    void give_up(const std::string& reason) noexcept;
    /// Whether it was another rank that gave up.
    [[nodiscard]] bool has_heard() const noexcept { return heard_; }
    /// The ranks whose `per_rank` key is not there: "3, 5 and 2 more".
    [[nodiscard]] std::string missing_ranks(const char* per_rank);

    [[noreturn]] void fail(Errc code, const std::string& detail) const;

   private:
    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    const std::string where_;
    const Duration limit_;
    const Instant deadline_;
    MemberStore store_;
    bool heard_ = false;
};

}  // namespace regroup::nccl
