// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/group/group_failure.h"
#include "worker_sdk/src/group/request.h"

namespace regroup {

/// The operation that a rank has issued, as it is sent to other ranks, which compare it with their
/// own.
struct Signature {
    /// Counts the collectives of the group, and messages apart from them.
    std::uint64_t number = 0;
    std::uint64_t count = 0;  ///< Elements of one row, where there are rows of one length.
    std::uint32_t peer = 0;   ///< The root, where there is one. Messages: the other rank.
    /// Messages: the tag. Rows of given lengths: a digest of these. new_group: one of its
    /// arguments. Else 0.
    std::uint32_t tag = 0;
    OperationKind kind = OperationKind::barrier;
    DType dtype = DType::uint8;
    ReduceOp reduce_op = ReduceOp::sum;
    std::array<std::uint8_t, 5> zero{};

    bool operator==(const Signature&) const = default;
};

/// The signature of `request` in a group of `world_size` ranks, without a number.
[[nodiscard]] Signature signature_of(const OperationRequest& request, std::uint32_t world_size);

/// "all_reduce #17 (sum, 1000 x float32)".
[[nodiscard]] std::string describe(const Signature& signature);

/// `failure` of the group that is called `group`, as the operation `own` of it meets it.
[[nodiscard]] std::string describe(const GroupFailure& failure, const Signature& own,
                                   const std::string& group);

/// Two different collectives with the same number. The number 0 stands for none, and for the
/// exchanges while the group forms.
[[nodiscard]] bool differ(const Signature& one, const Signature& other) noexcept;

/// The failure of a group in which `peer` calls `theirs`; `self` and `ours` say what this rank has
/// called with that number, as "rank 2" and "calls barrier #4".
[[nodiscard]] GroupFailure disagreement(const std::string& peer, const Signature& theirs,
                                        const std::string& self, const std::string& ours);

/// How far a rank has come in the collectives of its group.
struct Standing {
    std::uint64_t version = 0;    ///< Counts the standings that the rank has told; larger is newer.
    std::uint64_t called = 0;     ///< The number of the last collective that the rank has called.
    Signature latest{};           ///< The collective that the rank is in, or its last one.
    std::uint32_t is_inside = 0;  ///< 1: it is in this collective and waits for other ranks.
    std::uint32_t zero = 0;

    bool operator==(const Standing&) const = default;
};

/// The bytes of a standing, for a notice; and back, if they are some.
[[nodiscard]] std::string text_of(const Standing& standing);
[[nodiscard]] std::optional<Standing> standing_of(std::string_view bytes);

/// "in all_reduce #17 (sum, 1000 x float32)", "after barrier #16", "before the first collective".
[[nodiscard]] std::string describe(const Standing& standing);

/// The standings of the other ranks, and the conclusions from them. Not thread-safe.
class Standings {
   public:
    /// A rank tells its standing at most this often when it answers. So ranks that ask at the same
    /// time get one answer together.
    static constexpr Duration kAnswerInterval = std::chrono::milliseconds(50);
    /// How long a rank whose time is up waits for the others' standings.
    static constexpr Duration kAnswerLimit = std::chrono::seconds(1);

    /// False if that is not news.
    bool note(std::uint32_t rank, const Standing& standing, Instant now);
    /// The signature that `rank` has told last.
    [[nodiscard]] const Signature& latest_of(std::uint32_t rank) const;
    /// Whether each of `ranks` has told its standing so recently that it is an answer.
    [[nodiscard]] bool have_answered(std::span<const std::uint32_t> ranks, Instant asked_at) const;
    /// `failure`, of a collective that has expired, with those of the `others` as its cause that
    /// hold the collective up, if any do. A rank that waits inside an earlier collective is only
    /// named if no other rank can be the cause: it may wait for a silent one.
    [[nodiscard]] GroupFailure explain(
        GroupFailure failure, Instant asked_at, std::span<const std::uint32_t> others,
        const std::function<std::string(std::uint32_t rank)>& name_of) const;

   private:
    struct Known {
        Standing standing{};
        Instant heard_at{};
    };

    [[nodiscard]] const Known& known(std::uint32_t rank) const;
    [[nodiscard]] bool is_fresh(std::uint32_t rank, Instant asked_at) const;

    std::vector<Known> known_;  // By rank, up to the last one that has told.
};

}  // namespace regroup
