// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/wire.h"

namespace regroup::cpu {

/// What becomes of bytes that arrive.
enum class Landing : std::uint8_t {
    copy,
    reduce,       ///< What is here op what arrives.
    reduce_last,  ///< Likewise, and this makes it the final value: an average is divided here.
};

/// A stretch of a stream: where its bytes come from or go to.
struct Piece {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Landing landing = Landing::copy;  ///< Incoming only.
    /// Incoming and reduced only: what is here lies there; nullptr if `data` is that too.
    const std::byte* with = nullptr;
};

/// One stream out, one stream in, or both at once. Of the outgoing bytes the first `head_bytes` may
/// leave at once; each byte that has landed releases another. That is all a ring needs: a rank
/// begins with what is its own and passes on what arrives, while more is arriving.
struct Flow {
    std::optional<std::uint32_t> to{};
    std::vector<Piece> outgoing{};
    std::size_t head_bytes = 0;

    std::optional<std::uint32_t> from{};
    std::vector<Piece> incoming{};
};

/// Carries the streams of collectives, one collective at a time, and sees to it that all ranks mean
/// the same one: each stream begins with its sender's signature.
class CollectiveLane final : public net::Participant {
   public:
    explicit CollectiveLane(Mesh& mesh);

    /// Starts the collective to which the following flows belong; ends the one before. `limit` is
    /// the time after which `carry` gives up. Throws GroupFailure `invalid_argument` if it is known
    /// already that a peer means another one.
    void begin(const Signature& signature, Duration limit);
    void end();

    /// Moves all bytes of `flow`. Throws GroupFailure.
    void carry(const Flow& flow);

    /// Payload bytes sent since the group was formed. Any thread.
    [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }
    [[nodiscard]] const Mesh& mesh() const noexcept { return mesh_; }

    void watch(net::PollSet& poll) override;
    void progress() override;

   private:
    class Outgoing;
    class Incoming;

    [[nodiscard]] bool entered(std::uint32_t peer) const;
    [[nodiscard]] net::Stream* payload_stream(std::uint32_t peer);
    void check(std::uint32_t peer, const Signature& theirs) const;
    void wait(const Flow& flow, const Outgoing& outgoing, const Incoming& incoming);
    [[nodiscard]] GroupFailure deadline_failure(const Flow& flow, const Incoming& incoming) const;

    Mesh& mesh_;
    std::map<std::uint32_t, Partial<Signature>> arrivals_;  // by sender; reset when its stream ends
    std::optional<Signature> active_;
    std::deque<Signature> finished_;  // The last few, to name them in errors.
    std::uint64_t finished_number_ = 0;
    Instant deadline_;
    Duration limit_{};
    std::unique_ptr<std::byte[]> scratch_;
    std::atomic<std::uint64_t> bytes_sent_ = 0;
};

}  // namespace regroup::cpu
