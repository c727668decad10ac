// SPDX-License-Identifier: Apache-2.0
#include <regroup/watched_group.h>

#include <cstdint>
#include <optional>
#include <string>

#include "worker_sdk/src/c_api/call.h"

using regroup::WatchedGroup;
using regroup::WatchedOperation;
using regroup::c_api::Call;
using regroup::c_api::guarded;

struct regroup_watched_group {
    WatchedGroup value;
};

namespace {

WatchedOperation operation_of(regroup_watched_operation operation) {
    return operation >= 0 && operation <= REGROUP_WATCHED_OTHER
               ? static_cast<WatchedOperation>(operation)
               : WatchedOperation::other;
}

std::optional<regroup::DType> dtype_of(regroup_dtype dtype) {
    return dtype >= 0 && dtype <= REGROUP_FLOAT8_E5M2
               ? std::optional(static_cast<regroup::DType>(dtype))
               : std::nullopt;
}

}  // namespace

regroup_errc regroup_watched_group_create(const char* backend, const char* name, uint64_t id,
                                          uint32_t size, uint32_t rank, regroup_watched_ends ends,
                                          regroup_watched_group** group) {
    return guarded(__func__, [&](const Call& call) {
        auto*& result = call.result(group, "group");
        if (ends < REGROUP_ENDS_UNKNOWN || ends > REGROUP_ENDS_LOOKED_FOR) {
            call.refuse("ends is " + std::to_string(ends) + ", which is none of REGROUP_ENDS_");
        }
        result = new regroup_watched_group{
            WatchedGroup({.backend = call.text(backend, "backend"),
                          .name = call.text(name, "name"),
                          .id = id,
                          .size = size,
                          .rank = rank,
                          .ends = static_cast<WatchedGroup::Ends>(ends)})};
    });
}

void regroup_watched_group_free(regroup_watched_group* group) {
    delete group;
}

uint64_t regroup_watched_group_entered(regroup_watched_group* group,
                                       regroup_watched_operation operation, regroup_dtype dtype,
                                       uint64_t elements) {
    return group == nullptr
               ? 0
               : group->value.entered(operation_of(operation), dtype_of(dtype), elements);
}

void regroup_watched_group_completed(regroup_watched_group* group, uint64_t number) {
    if (group != nullptr) {
        group->value.completed(number);
    }
}

void regroup_watched_group_looked(regroup_watched_group* group) {
    if (group != nullptr) {
        group->value.looked();
    }
}

void regroup_watched_group_message_entered(regroup_watched_group* group,
                                           regroup_watched_operation operation, uint32_t peer,
                                           regroup_dtype dtype, uint64_t elements) {
    if (group != nullptr) {
        group->value.message_entered(operation_of(operation), peer, dtype_of(dtype), elements);
    }
}

void regroup_watched_group_message_completed(regroup_watched_group* group) {
    if (group != nullptr) {
        group->value.message_completed();
    }
}
