// SPDX-License-Identifier: Apache-2.0
#include <regroup/context.h>
#include <regroup/cuda.h>
#include <regroup/stop.h>
#include <regroup/store.h>

#include <type_traits>

#include "rendezvous/worker_link/worker_place.h"
#include "worker_sdk/src/c_api/call.h"

using regroup::c_api::Call;
using regroup::c_api::guarded;

namespace {

constexpr std::chrono::minutes kStoreTimeout{5};

regroup_errc give_store(const char* function, regroup_store** store, const auto& make) {
    return guarded(function, [&](const Call& call) {
        regroup_store*& result = call.result(store, "store");
        result = new regroup_store{make(call)};
    });
}

regroup::Store& open(const Call& call, regroup_store* store) {
    return *call(store, "store").value;
}

}  // namespace

regroup_errc regroup_context_from_environment(regroup_context** context) {
    return guarded(__func__, [&](const Call& call) {
        regroup_context*& result = call.result(context, "context");
        result = new regroup_context{regroup::Context::from_environment()};
    });
}

regroup_errc regroup_context_create(uint32_t rank, uint32_t world_size, const char* master_addr,
                                    uint16_t master_port, regroup_context** context) {
    return guarded(__func__, [&](const Call& call) {
        regroup_context*& result = call.result(context, "context");
        if (rank >= world_size) {
            call.refuse("rank " + std::to_string(rank) + " is not below the world size, " +
                        std::to_string(world_size));
        }
        auto created = std::make_unique<regroup_context>();
        created->value.rank = created->value.local_rank = rank;
        created->value.world_size = created->value.local_world_size = world_size;
        created->value.master_addr = call.text(master_addr, "master_addr");
        created->value.master_port = master_port;
        created->value.master_node_addr =
            regroup::Context::master_node_of(created->value.master_addr);
        result = created.release();
    });
}

regroup_errc regroup_context_of_ranks(const regroup_context* parent, const uint32_t* ranks,
                                      size_t count, regroup_context** context) {
    return guarded(__func__, [&](const Call& call) {
        regroup_context*& result = call.result(context, "context");
        result = new regroup_context{
            call(parent, "parent").value.of_ranks(call.copy(ranks, count, "ranks"))};
    });
}

regroup_errc regroup_context_cuda_device(const regroup_context* context, int32_t* device) {
    return guarded(__func__, [&](const Call& call) {
        int32_t& result = call(device, "device");
        result = regroup::cuda::device_of(call(context, "context").value).index;
    });
}

regroup_errc regroup_context_get(const regroup_context* context, regroup_context_info* info) {
    return guarded(__func__, [&](const Call& call) {
        const regroup::Context& value = call(context, "context").value;
        regroup_context_info& result = call(info, "info");
        regroup::worker_link::visit_place(
            [](const auto& /*fact*/, const auto& held, auto& shown) {
                if constexpr (std::is_pointer_v<std::remove_reference_t<decltype(shown)>>) {
                    shown = held.c_str();
                } else {
                    shown = held;
                }
            },
            value, result);
    });
}

regroup_errc regroup_context_await_end(const regroup_context* context, int64_t timeout_ms,
                                       int32_t* over) {
    return guarded(__func__, [&](const Call& call) {
        int32_t& result = call(over, "over");
        const auto limit = call.timeout(timeout_ms, std::chrono::nanoseconds::zero());
        result = call(context, "context").value.await_end(limit) ? 1 : 0;
    });
}

void regroup_context_free(regroup_context* context) {
    delete context;
}

regroup_errc regroup_stop_requested(const regroup_context* context, uint64_t step,
                                    int32_t* requested) {
    return guarded(__func__, [&](const Call& call) {
        int32_t& result = call(requested, "requested");
        const bool stops = context == nullptr ? regroup::stop_requested(step)
                                              : regroup::stop_requested(step, context->value);
        result = stops ? 1 : 0;
    });
}

regroup_errc regroup_context_store(const regroup_context* context, regroup_store** store) {
    return give_store(__func__, store,
                      [&](const Call& call) { return call(context, "context").value.store(); });
}

regroup_errc regroup_context_use_store(regroup_context* context, const regroup_store* store) {
    return guarded(__func__, [&](const Call& call) {
        call(context, "context").value.use_store(call(store, "store").value);
    });
}

regroup_errc regroup_store_connect(const char* host, uint16_t port, int64_t timeout_ms,
                                   regroup_store** store) {
    return give_store(__func__, store, [&](const Call& call) {
        return regroup::connect_store(call.text(host, "host"), port,
                                      call.timeout(timeout_ms, kStoreTimeout));
    });
}

regroup_errc regroup_store_local(int64_t timeout_ms, regroup_store** store) {
    return give_store(__func__, store, [&](const Call& call) {
        return regroup::make_local_store(call.timeout(timeout_ms, kStoreTimeout));
    });
}

void regroup_store_free(regroup_store* store) {
    delete store;
}

regroup_errc regroup_store_set(regroup_store* store, const char* key, const void* value,
                               size_t bytes) {
    return guarded(__func__, [&](const Call& call) {
        open(call, store).set(call.text(key, "key"), call.bytes(value, bytes, "value"));
    });
}

regroup_errc regroup_store_get(regroup_store* store, const char* key, char** value, size_t* bytes) {
    return guarded(__func__, [&](const Call& call) {
        char*& result = call.result(value, "value");
        call.give(open(call, store).get(call.text(key, "key")), &result, bytes);
    });
}

regroup_errc regroup_store_add(regroup_store* store, const char* key, int64_t amount,
                               int64_t* sum) {
    return guarded(__func__, [&](const Call& call) {
        const std::int64_t result = open(call, store).add(call.text(key, "key"), amount);
        if (sum != nullptr) {
            *sum = result;
        }
    });
}

regroup_errc regroup_store_check(regroup_store* store, const char* const* keys, size_t count,
                                 int32_t* present) {
    return guarded(__func__, [&](const Call& call) {
        int32_t& result = call(present, "present");
        result = open(call, store).check(call.keys(keys, count)) ? 1 : 0;
    });
}

regroup_errc regroup_store_wait(regroup_store* store, const char* const* keys, size_t count,
                                int64_t timeout_ms) {
    return guarded(__func__, [&](const Call& call) {
        regroup::Store& opened = open(call, store);
        opened.wait(call.keys(keys, count), call.timeout(timeout_ms, opened.timeout()));
    });
}

regroup_errc regroup_store_compare_set(regroup_store* store, const char* key, const char* expected,
                                       const char* desired, char** value, size_t* bytes) {
    return guarded(__func__, [&](const Call& call) {
        char*& result = call.result(value, "value");
        call.give(open(call, store)
                      .compare_set(call.text(key, "key"), call.text(expected, "expected"),
                                   call.text(desired, "desired")),
                  &result, bytes);
    });
}

regroup_errc regroup_store_delete(regroup_store* store, const char* key, int32_t* existed) {
    return guarded(__func__, [&](const Call& call) {
        const bool result = open(call, store).delete_key(call.text(key, "key"));
        if (existed != nullptr) {
            *existed = result ? 1 : 0;
        }
    });
}
