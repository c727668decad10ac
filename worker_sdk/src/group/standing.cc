// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/group/standing.h"

#include <algorithm>
#include <cstring>

#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/text.h"

namespace regroup {
namespace {

/// Differs, very probably, for different counts; never 0. The counts of all_to_all differ by rank.
std::uint32_t digest_of(const OperationRequest& request) {
    if (!request.is_uneven()) {
        return request.tag;
    }
    if (request.kind == OperationKind::all_to_all) {
        return 1;
    }
    return static_cast<std::uint32_t>(checksum(request.counts)) | 1U;
}

using NameOf = std::function<std::string(std::uint32_t rank)>;

std::string names_of(const std::vector<std::uint32_t>& ranks, const NameOf& name_of) {
    std::vector<std::string> names(ranks.size());
    std::ranges::transform(ranks, names.begin(), name_of);
    return listed(names, 8);
}

}  // namespace

Signature signature_of(const OperationRequest& request, std::uint32_t world_size) {
    return {.count = request.count(world_size),
            .peer = request.peer,
            .tag = digest_of(request),
            .kind = request.kind,
            .dtype = request.row().dtype,
            .reduce_op = request.reduction.op};
}

std::string describe(const Signature& signature) {
    std::string name = name_of(signature.kind);
    std::string text = name + " #" + std::to_string(signature.number);
    const std::string elements =
        std::to_string(signature.count) + " x " + std::string(regroup::to_string(signature.dtype));
    const std::string op(regroup::to_string(signature.reduce_op));
    const std::string peer = std::to_string(signature.peer);
    const std::string tag = std::to_string(signature.tag);
    const std::string rows =
        elements + (signature.tag == 0 ? "" : " in rows of given counts, digest " + tag);
    switch (signature.kind) {
        case OperationKind::form:
            return name;
        case OperationKind::all_reduce:
            return text + " (" + op + ", " + elements + ")";
        case OperationKind::reduce_scatter:
            return text + " (" + op + ", " + rows + ")";
        case OperationKind::reduce:
            return text + " (" + op + ", root " + peer + ", " + elements + ")";
        case OperationKind::broadcast:
        case OperationKind::gather:
        case OperationKind::scatter:
            return text + " (root " + peer + ", " + elements + ")";
        case OperationKind::all_gather:
            return text + " (" + rows + ")";
        case OperationKind::all_to_all:
            return text + " (" +
                   (signature.tag == 0
                        ? elements
                        : "rows of given counts, " + std::string(to_string(signature.dtype))) +
                   ")";
        case OperationKind::barrier:
            return text;
        case OperationKind::new_group:
            return text + (signature.tag == 0 ? "" : " (digest " + tag + ")");
        case OperationKind::send:
            return text + " to rank " + peer + " (tag " + tag + ", " + elements + ")";
        case OperationKind::recv:
            return text + " from rank " + peer + " (tag " + tag + ", " + elements + ")";
    }
    return text;
}

std::string text_of(const Standing& standing) {
    return {reinterpret_cast<const char*>(&standing), sizeof standing};
}

std::optional<Standing> standing_of(std::string_view bytes) {
    Standing standing;
    if (bytes.size() != sizeof standing) {
        return std::nullopt;
    }
    std::memcpy(&standing, bytes.data(), sizeof standing);
    return standing;
}

std::string describe(const Standing& standing) {
    if (standing.latest.number == 0) {
        return "before the first collective";
    }
    return (standing.is_inside != 0 ? "in " : "after ") + describe(standing.latest);
}

std::string describe(const GroupFailure& failure, const Signature& own, const std::string& group) {
    const std::string text = describe(own);
    const bool is_own = failure.operation.empty() || failure.operation == text;
    return text + group + ": " +
           (is_own ? "" : "the group has ended with " + failure.operation + ": ") + failure.cause;
}

bool differ(const Signature& one, const Signature& other) noexcept {
    return one.number == other.number && one.number != 0 && one != other;
}

GroupFailure disagreement(const std::string& peer, const Signature& theirs, const std::string& self,
                          const std::string& ours) {
    return {.code = Errc::invalid_argument,
            .cause = "the ranks do not agree: " + peer + " calls " + describe(theirs) + ", " +
                     self + " " + ours};
}

const Standings::Known& Standings::known(std::uint32_t rank) const {
    static const Known kNothing;
    return rank < known_.size() ? known_[rank] : kNothing;
}

bool Standings::note(std::uint32_t rank, const Standing& standing, Instant now) {
    if (standing.version <= known(rank).standing.version) {
        return false;
    }
    known_.resize(std::max(known_.size(), std::size_t{rank} + 1));
    known_[rank] = {.standing = standing, .heard_at = now};
    return true;
}

const Signature& Standings::latest_of(std::uint32_t rank) const {
    return known(rank).standing.latest;
}

bool Standings::is_fresh(std::uint32_t rank, Instant asked_at) const {
    const Known& last = known(rank);
    return last.standing.version != 0 && last.heard_at + kAnswerInterval >= asked_at;
}

bool Standings::have_answered(std::span<const std::uint32_t> ranks, Instant asked_at) const {
    return std::ranges::all_of(ranks, [&](std::uint32_t rank) { return is_fresh(rank, asked_at); });
}

GroupFailure Standings::explain(GroupFailure failure, Instant asked_at,
                                std::span<const std::uint32_t> others,
                                const NameOf& name_of) const {
    std::vector<std::uint32_t> outside;
    std::vector<std::uint32_t> behind;
    std::vector<std::uint32_t> silent;
    for (const std::uint32_t rank : others) {
        const Standing& standing = known(rank).standing;
        if (!is_fresh(rank, asked_at)) {
            silent.push_back(rank);
        } else if (standing.called < failure.expired->number) {
            (standing.is_inside != 0 ? behind : outside).push_back(rank);
        }
    }
    const std::string within = " within " + format_duration(failure.expired->limit);
    const std::vector<std::uint32_t>& missing =
        silent.empty() && outside.empty() ? behind : outside;
    if (!missing.empty()) {
        failure.cause = names_of(missing, name_of) + (missing.size() > 1 ? " have" : " has") +
                        " not joined in" + within;
        if (!silent.empty()) {
            failure.cause += "; " + names_of(silent, name_of) + " did not answer";
        }
    } else if (!silent.empty()) {
        failure.cause = names_of(silent, name_of) +
                        " did not answer, and the collective is not complete" + within;
    }
    return failure;
}

}  // namespace regroup
