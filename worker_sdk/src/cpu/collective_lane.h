// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/base/spin.h"
#include "worker_sdk/src/cpu/collective_links.h"
#include "worker_sdk/src/cpu/roll_call.h"
#include "worker_sdk/src/cpu/wire.h"

namespace regroup::cpu {

/// How a rank stores bytes that arrive.
enum class Landing : std::uint8_t {
    copy,
    reduce,       ///< Local value op arriving value.
    reduce_last,  ///< Likewise, and the result is final: an average is divided here.
};

/// A stretch of a stream: where its bytes come from or go to.
struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Landing landing = Landing::copy;  ///< Incoming only.
    /// Only for incoming data that is reduced: the local operand; nullptr if `data` holds it.
    const std::byte* with = nullptr;
};

/// One stream out, one stream in, or both at once. Of the outgoing bytes the first `head_bytes` may
/// leave at once; each byte that has landed releases another. In a ring, a rank first sends its own
/// data and then forwards data while more arrives.
struct Flow {
    std::optional<std::uint32_t> to{};
    std::vector<Piece> outgoing{};
    std::size_t head_bytes = 0;

    std::optional<std::uint32_t> from{};
    std::vector<Piece> incoming{};
};

/// Carries the streams of collectives, one collective at a time. Each stream begins with its
/// sender's signature, so that the receiver can check that both ranks execute the same collective.
///
/// Used by the thread that executes collectives; `stop` and `bytes_sent` by any.
class CollectiveLane {
   public:
    /// `links` exist as long as the lane. `crowded`: there are fewer processors than ranks.
    CollectiveLane(CollectiveLinks& links, RollCall& roll_call, bool crowded);

    /// Starts the collective to which the following flows belong. `limit` is the time after `now`
    /// after which `carry` gives up. Throws GroupFailure `invalid_argument` if a peer has already
    /// begun a different collective.
    void begin(const Signature& signature, Instant now, Duration limit);
    /// The collective is complete on this rank.
    void end();

    /// Moves all bytes of `flow`. Throws GroupFailure.
    void carry(const Flow& flow);

    /// Payload bytes sent since the group was formed.
    [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }
    [[nodiscard]] const CollectiveLinks& links() const noexcept { return links_; }

   private:
    class Outgoing;
    class Incoming;

    [[nodiscard]] bool entered(std::uint32_t peer) const;
    [[nodiscard]] net::Stream* payload_stream(std::uint32_t peer);
    void read_signature(std::uint32_t peer, net::Stream& stream);
    [[nodiscard]] bool spin(const Flow& flow, Instant& began);
    void wait(const Flow& flow, const Outgoing& outgoing, const Incoming& incoming);
    void watch_receiver(std::uint32_t peer, bool has_bytes);
    void watch_sender(std::uint32_t peer);
    [[noreturn]] void lose(std::uint32_t peer, const std::string& how) const;
    [[nodiscard]] GroupFailure deadline_failure(const Flow& flow, const Incoming& incoming) const;

    CollectiveLinks& links_;
    RollCall& roll_call_;
    SpinPolicy spin_policy_;
    std::map<std::uint32_t, Partial<Signature>> arrivals_;  // by sender; reset when its stream ends
    Signature signature_{};
    Instant deadline_;
    Duration limit_{};
    std::unique_ptr<std::byte[]> scratch_;
    std::atomic<std::uint64_t> bytes_sent_ = 0;
};

}  // namespace regroup::cpu
