// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/group/group_report.h"

#include <map>
#include <mutex>
#include <vector>

#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/flight_recorder.h"

namespace regroup {

namespace {

using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;
using worker_link::ElementType;

CollectiveKind kind_of(OperationKind kind) noexcept {
    switch (kind) {
        case OperationKind::all_reduce:
            return CollectiveKind::all_reduce;
        case OperationKind::reduce:
            return CollectiveKind::reduce;
        case OperationKind::reduce_scatter:
            return CollectiveKind::reduce_scatter;
        case OperationKind::broadcast:
            return CollectiveKind::broadcast;
        case OperationKind::all_gather:
            return CollectiveKind::all_gather;
        case OperationKind::gather:
            return CollectiveKind::gather;
        case OperationKind::scatter:
            return CollectiveKind::scatter;
        case OperationKind::all_to_all:
            return CollectiveKind::all_to_all;
        case OperationKind::barrier:
            return CollectiveKind::barrier;
        case OperationKind::send:
            return CollectiveKind::send;
        case OperationKind::recv:
            return CollectiveKind::receive;
        case OperationKind::form:
        case OperationKind::new_group:
            break;
    }
    return CollectiveKind::other;
}

ElementType type_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
            return ElementType::float32;
        case DType::float64:
            return ElementType::float64;
        case DType::int32:
            return ElementType::int32;
        case DType::int64:
            return ElementType::int64;
        case DType::uint8:
            return ElementType::uint8;
        case DType::int8:
            return ElementType::int8;
        case DType::uint32:
            return ElementType::uint32;
        case DType::uint64:
            return ElementType::uint64;
        case DType::float16:
            return ElementType::float16;
        case DType::bfloat16:
            return ElementType::bfloat16;
        case DType::float8_e4m3fn:
            return ElementType::float8_e4m3;
        case DType::float8_e5m2:
            return ElementType::float8_e5m2;
    }
    return ElementType::unknown;
}

/// The same on all ranks of the group: they make equal groups in the same order.
std::uint64_t id_of(const GroupReport::Identity& identity) {
    const std::uint64_t round = flight_recorder().round();
    std::vector<std::uint64_t> words{checksum(identity.name), round};
    words.insert(words.end(), identity.ranks.begin(), identity.ranks.end());
    const std::uint64_t id = checksum(words);
    static std::mutex mutex;
    static std::uint64_t counted_round = 0;
    static std::map<std::uint64_t, std::uint64_t> counts;
    const std::lock_guard lock(mutex);
    if (round != counted_round) {
        counted_round = round;
        counts.clear();
    }
    // Ranks may be threads of one process.
    const std::uint64_t before = counts[checksum(std::vector<std::uint64_t>{id, identity.rank})]++;
    return before == 0 ? id : checksum(std::vector{id, before});
}

std::int64_t nanoseconds(Instant at) noexcept {
    return at.time_since_epoch().count();
}

}  // namespace

GroupReport::GroupReport(const Identity& identity) {
    if (worker_link::GroupWriter::has_page()) {
        writer_ =
            worker_link::GroupWriter({.backend = identity.backend,
                                      .id = id_of(identity),
                                      .size = static_cast<std::uint32_t>(identity.ranks.size()),
                                      .rank = identity.rank,
                                      .name = identity.name,
                                      .knows_starts = identity.knows_starts,
                                      .knows_ends = true});
    }
}

std::uint64_t GroupReport::issued(const Signature& signature, Instant at) noexcept {
    const CollectiveSignature word{kind_of(signature.kind), type_of(signature.dtype),
                                   signature.count};
    return is_message(signature.kind)
               ? writer_.message_entered(word, signature.peer, nanoseconds(at))
               : writer_.entered(word, nanoseconds(at));
}

void GroupReport::started(OperationKind kind, std::uint64_t number, Instant at) noexcept {
    if (!is_message(kind)) {
        writer_.started(number, nanoseconds(at));
    }
}

void GroupReport::completed(OperationKind kind, std::uint64_t number, Instant at) noexcept {
    if (is_message(kind)) {
        writer_.message_completed();
    } else {
        writer_.completed(number, nanoseconds(at));
    }
}

}  // namespace regroup
