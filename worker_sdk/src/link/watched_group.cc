// SPDX-License-Identifier: Apache-2.0
#include <regroup/watched_group.h>

#include <array>
#include <cstddef>
#include <new>
#include <string_view>

#include "rendezvous/worker_link/collectives_writer.h"

namespace regroup {

namespace {

using worker_link::CollectiveBackend;
using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;
using worker_link::ElementType;

// In the orders of WatchedOperation and DType.
constexpr std::array kKinds{
    CollectiveKind::all_reduce, CollectiveKind::reduce,         CollectiveKind::broadcast,
    CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all,
    CollectiveKind::gather,     CollectiveKind::scatter,        CollectiveKind::barrier,
    CollectiveKind::send,       CollectiveKind::receive,        CollectiveKind::other};
constexpr std::array kTypes{
    ElementType::float32,  ElementType::float64,     ElementType::int32,
    ElementType::int64,    ElementType::uint8,       ElementType::int8,
    ElementType::uint32,   ElementType::uint64,      ElementType::float16,
    ElementType::bfloat16, ElementType::float8_e4m3, ElementType::float8_e5m2};

template <class Value, std::size_t size>
Value in(const std::array<Value, size>& values, std::size_t at, Value otherwise) {
    return at < size ? values[at] : otherwise;
}

CollectiveSignature signature_of(WatchedOperation operation, std::optional<DType> dtype,
                                 std::uint64_t elements) {
    return {in(kKinds, static_cast<std::size_t>(operation), CollectiveKind::other),
            dtype ? in(kTypes, static_cast<std::size_t>(*dtype), ElementType::unknown)
                  : ElementType::unknown,
            elements};
}

CollectiveBackend backend_of(std::string_view name) {
    return name == "nccl"   ? CollectiveBackend::nccl
           : name == "gloo" ? CollectiveBackend::gloo
           : name == "cpu"  ? CollectiveBackend::cpu
                            : CollectiveBackend::other;
}

}  // namespace

struct WatchedGroup::Writer {
    worker_link::GroupWriter group;
};

WatchedGroup::WatchedGroup(const Identity& identity) noexcept
    : writer_(new(std::nothrow) Writer{
          worker_link::GroupWriter({.backend = backend_of(identity.backend),
                                    .id = identity.id,
                                    .size = identity.size,
                                    .rank = identity.rank,
                                    .name = identity.name,
                                    .knows_starts = true,
                                    .knows_ends = identity.ends != Ends::unknown,
                                    .looks_for_ends = identity.ends == Ends::looked_for})}) {}

WatchedGroup::~WatchedGroup() = default;

std::uint64_t WatchedGroup::entered(WatchedOperation operation, std::optional<DType> dtype,
                                    std::uint64_t elements) noexcept {
    if (writer_ == nullptr) {
        return 0;
    }
    const std::uint64_t number = writer_->group.entered(signature_of(operation, dtype, elements));
    writer_->group.started(number);
    return number;
}

void WatchedGroup::completed(std::uint64_t number) noexcept {
    if (writer_ != nullptr) {
        writer_->group.completed(number);
    }
}

void WatchedGroup::looked() noexcept {
    if (writer_ != nullptr) {
        writer_->group.looked();
    }
}

void WatchedGroup::message_entered(WatchedOperation operation, std::uint32_t peer,
                                   std::optional<DType> dtype, std::uint64_t elements) noexcept {
    if (writer_ != nullptr) {
        writer_->group.message_entered(signature_of(operation, dtype, elements), peer);
    }
}

void WatchedGroup::message_completed() noexcept {
    if (writer_ != nullptr) {
        writer_->group.message_completed();
    }
}

}  // namespace regroup
