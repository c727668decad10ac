// SPDX-License-Identifier: Apache-2.0
#include <regroup/flight_recorder.h>
#include <regroup/process_group.h>

#include "worker_sdk/src/c_api/call.h"

using regroup::c_api::Call;
using regroup::c_api::guarded;

struct regroup_memory {
    regroup::Buffer value;
};

struct regroup_batch {
    explicit regroup_batch(std::shared_ptr<regroup::ProcessGroup> group_in)
        : group(std::move(group_in)), value(*group) {}

    const std::shared_ptr<regroup::ProcessGroup> group;
    regroup::OperationBatch value;
    bool started = false;
};

namespace {

regroup_group* make_handle(std::unique_ptr<regroup::ProcessGroup> group,
                           std::shared_ptr<regroup::ProcessGroup> parent) {
    std::string backend(group->backend());
    return new regroup_group{std::move(parent), std::move(group), std::move(backend)};
}

}  // namespace

regroup_errc regroup_group_create(const regroup_context* context, const char* backend,
                                  const char* name, int64_t timeout_ms, int32_t device,
                                  regroup_group** group) {
    return guarded(__func__, [&](const Call& call) {
        regroup_group*& result = call.result(group, "group");
        regroup::ProcessGroupOptions options;
        options.timeout = call.timeout(timeout_ms, options.timeout);
        if (name != nullptr) {
            options.name = name;
        }
        if (device < REGROUP_ANY_DEVICE) {
            call.refuse("device is " + std::to_string(device) +
                        ", which is neither a GPU's ordinal nor REGROUP_ANY_DEVICE (-1)");
        }
        if (device != REGROUP_ANY_DEVICE) {
            options.device = device;
        }
        result = make_handle(regroup::ProcessGroup::create(call.text(backend, "backend"),
                                                           call(context, "context").value, options),
                             nullptr);
    });
}

regroup_errc regroup_group_new_group(regroup_group* parent, const uint32_t* ranks, size_t count,
                                     const char* name, regroup_group** group) {
    return guarded(__func__, [&](const Call& call) {
        regroup_group*& result = call.result(group, "group");
        const std::shared_ptr<regroup::ProcessGroup>& opened = call(parent, "parent").value;
        result = make_handle(
            opened->new_group(call.copy(ranks, count, "ranks"), name == nullptr ? "" : name),
            opened);
    });
}

regroup_errc regroup_group_get(const regroup_group* group, regroup_group_info* info) {
    return guarded(__func__, [&](const Call& call) {
        const regroup_group& handle = call(group, "group");
        regroup_group_info& result = call(info, "info");
        const regroup::Device device = handle.value->device();
        result.backend = handle.backend.c_str();
        result.rank = handle.value->rank();
        result.world_size = handle.value->world_size();
        result.device_kind = static_cast<regroup_device_kind>(device.kind);
        result.device_index = device.index;
    });
}

regroup_errc regroup_group_abort(regroup_group* group, const char* reason) {
    return guarded(__func__, [&](const Call& call) {
        call(group, "group").value->abort(reason == nullptr ? "the program gave it up" : reason);
    });
}

regroup_errc regroup_group_use_stream(regroup_group* group, void* stream) {
    return guarded(__func__, [&](const Call& call) {
        call(group, "group").value->use_stream({.handle = stream});
    });
}

void regroup_group_free(regroup_group* group) {
    delete group;
}

regroup_errc regroup_group_allocate(regroup_group* group, size_t bytes, regroup_memory** memory,
                                    void** data) {
    return guarded(__func__, [&](const Call& call) {
        regroup_memory*& result = call.result(memory, "memory");
        void*& address = call.result(data, "data");
        auto handle = std::make_unique<regroup_memory>();
        handle->value = call(group, "group").value->allocate(bytes);
        address = handle->value.data;
        result = handle.release();
    });
}

void regroup_memory_free(regroup_memory* memory) {
    delete memory;
}

regroup_errc regroup_work_wait(const regroup_work* work) {
    return guarded(__func__, [&](const Call& call) { call(work, "work").value.wait(); });
}

regroup_errc regroup_work_test(const regroup_work* work, int32_t* done) {
    return guarded(__func__, [&](const Call& call) {
        int32_t& result = call(done, "done");
        result = call(work, "work").value.done() ? 1 : 0;
    });
}

void regroup_work_free(regroup_work* work) {
    delete work;
}

regroup_errc regroup_batch_begin(regroup_group* group, regroup_batch** batch) {
    return guarded(__func__, [&](const Call& call) {
        regroup_batch*& result = call.result(batch, "batch");
        result = new regroup_batch(call(group, "group").value);
    });
}

regroup_errc regroup_batch_start(regroup_batch* batch) {
    return guarded(__func__, [&](const Call& call) {
        if (std::exchange(call(batch, "batch").started, true)) {
            call.refuse("the batch was started before");
        }
        batch->value.start();
    });
}

void regroup_batch_free(regroup_batch* batch) {
    delete batch;
}

regroup_errc regroup_flight_record(char** json, size_t* bytes) {
    return guarded(__func__, [&](const Call& call) {
        call.result(json, "json");
        call.give(regroup::flight_record(), json, bytes);
    });
}

regroup_errc regroup_save_flight_record(const char* path) {
    return guarded(__func__,
                   [&](const Call& call) { regroup::save_flight_record(call.text(path, "path")); });
}
