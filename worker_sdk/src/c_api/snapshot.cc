// SPDX-License-Identifier: Apache-2.0
#include <regroup/c_api_snapshot.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "worker_sdk/src/c_api/call.h"
#include "worker_sdk/src/snapshot/rank_snapshot.h"

using regroup::c_api::Call;
using regroup::c_api::guarded;

struct regroup_snapshot {
    std::shared_ptr<regroup::snapshot::RankSnapshot> value;
    std::map<std::string, std::string> bytes{};  // The present states that are no tensors.
};

namespace {

regroup::snapshot::Entry entry_of(const Call& call, const regroup_snapshot_tensor& tensor) {
    call.require_size(tensor, "tensor");
    if (tensor.device_kind != REGROUP_CPU && tensor.device_kind != REGROUP_CUDA) {
        call.refuse("tensor has device_kind " + std::to_string(tensor.device_kind) +
                    ", which is neither REGROUP_CPU (0) nor REGROUP_CUDA (1)");
    }
    regroup::snapshot::Entry entry;
    entry.tensor.name = call.text(tensor.name, "tensor's name");
    entry.tensor.dtype = call.text(tensor.dtype, "tensor's dtype");
    entry.tensor.shape = call.copy(tensor.shape, tensor.dimensions, "tensor's shape");
    if (tensor.offset != nullptr) {
        entry.tensor.offset = call.copy(tensor.offset, tensor.dimensions, "tensor's offset");
    }
    if (tensor.global_shape != nullptr) {
        entry.tensor.global_shape =
            call.copy(tensor.global_shape, tensor.dimensions, "tensor's global_shape");
    }
    entry.data = tensor.data;
    entry.device = {.kind = static_cast<regroup::DeviceKind>(tensor.device_kind),
                    .index = tensor.device_index};
    return entry;
}

/// Hands over a step, if there is one.
regroup_errc find_step(const char* function, auto* snapshot, int32_t* found, uint64_t* step,
                       const auto& find) {
    return guarded(function, [&](const Call& call) {
        int32_t& is_found = call(found, "found");
        uint64_t& number = call(step, "step");
        const auto result = find(*call(snapshot, "snapshot").value);
        is_found = result ? 1 : 0;
        number = result.value_or(0);
    });
}

using Until = regroup::snapshot::RankSnapshot::Until;

regroup_errc wait_until(const char* function, const regroup_snapshot* snapshot, Until until,
                        int64_t timeout_ms, int32_t* in_time) {
    return guarded(function, [&](const Call& call) {
        int32_t& result = call(in_time, until == Until::whole ? "whole" : "kept");
        const auto limit = call.timeout(timeout_ms, std::chrono::nanoseconds(0));
        result = call(snapshot, "snapshot").value->wait(until, limit) ? 1 : 0;
    });
}

}  // namespace

regroup_errc regroup_snapshot_create(const regroup_context* context,
                                     const regroup_snapshot_options* options,
                                     regroup_snapshot** snapshot) {
    return guarded(__func__, [&](const Call& call) {
        regroup_snapshot*& result = call.result(snapshot, "snapshot");
        regroup::SnapshotOptions chosen;
        if (options != nullptr) {
            call.require_size(*options, "options");
            chosen.name = options->name == nullptr ? chosen.name : options->name;
            chosen.replicated = options->replicated != 0;
            chosen.folder = options->folder == nullptr ? "" : options->folder;
            chosen.threads = options->threads;
        }
        result = new regroup_snapshot{regroup::snapshot::make_rank_snapshot(
            call(context, "context").value, std::move(chosen))};
    });
}

void regroup_snapshot_free(regroup_snapshot* snapshot) {
    delete snapshot;
}

regroup_errc regroup_snapshot_add(regroup_snapshot* snapshot,
                                  const regroup_snapshot_tensor* tensor) {
    return guarded(__func__, [&](const Call& call) {
        call(snapshot, "snapshot").value->add(entry_of(call, call(tensor, "tensor")));
    });
}

regroup_errc regroup_snapshot_set_bytes(regroup_snapshot* snapshot, const char* name,
                                        const void* data, size_t bytes) {
    return guarded(__func__, [&](const Call& call) {
        regroup_snapshot& target = call(snapshot, "snapshot");
        const std::string key = call.text(name, "name");
        const std::string_view value = call.bytes(data, bytes, "data");
        if (!target.bytes.contains(key)) {
            regroup::snapshot::Entry entry;
            entry.tensor.name = key;
            entry.save = [&target, key] { return target.bytes.at(key); };
            target.value->add(std::move(entry));
        }
        target.bytes[key] = value;
    });
}

regroup_errc regroup_snapshot_clear(regroup_snapshot* snapshot) {
    return guarded(__func__, [&](const Call& call) {
        call(snapshot, "snapshot").value->clear();
        snapshot->bytes.clear();
    });
}

regroup_errc regroup_snapshot_load(regroup_snapshot* snapshot, int32_t* found, uint64_t* step) {
    return find_step(__func__, snapshot, found, step, [](auto& rank) { return rank.load(); });
}

regroup_errc regroup_snapshot_open(regroup_snapshot* snapshot, int32_t* found, uint64_t* step) {
    return find_step(__func__, snapshot, found, step, [](auto& rank) { return rank.open(); });
}

regroup_errc regroup_snapshot_get_bytes(regroup_snapshot* snapshot, const char* name,
                                        const void** data, size_t* bytes) {
    return guarded(__func__, [&](const Call& call) {
        const void*& result = call.result(data, "data");
        size_t& count = call(bytes, "bytes");
        const auto found = call(snapshot, "snapshot").value->bytes(call.text(name, "name"));
        result = found.data();
        count = found.size();
    });
}

regroup_errc regroup_snapshot_read(regroup_snapshot* snapshot,
                                   const regroup_snapshot_tensor* tensor) {
    return guarded(__func__, [&](const Call& call) {
        regroup_snapshot& source = call(snapshot, "snapshot");
        regroup::snapshot::Entries one;  // Checks it, and completes its box.
        one.add(entry_of(call, call(tensor, "tensor")));
        source.value->read(one.all().front());
    });
}

regroup_errc regroup_snapshot_save(regroup_snapshot* snapshot, uint64_t step, int32_t* kept) {
    return guarded(__func__, [&](const Call& call) {
        int32_t& result = call(kept, "kept");
        result = call(snapshot, "snapshot").value->save(step) ? 1 : 0;
    });
}

regroup_errc regroup_snapshot_whole_step(const regroup_snapshot* snapshot, int32_t* known,
                                         uint64_t* step) {
    return find_step(__func__, snapshot, known, step,
                     [](const auto& rank) { return rank.whole_step(); });
}

regroup_errc regroup_snapshot_kept_step(const regroup_snapshot* snapshot, int32_t* known,
                                        uint64_t* step) {
    return find_step(__func__, snapshot, known, step,
                     [](const auto& rank) { return rank.kept_step(); });
}

regroup_errc regroup_snapshot_wait_until_whole(const regroup_snapshot* snapshot, int64_t timeout_ms,
                                               int32_t* whole) {
    return wait_until(__func__, snapshot, Until::whole, timeout_ms, whole);
}

regroup_errc regroup_snapshot_wait_until_kept(const regroup_snapshot* snapshot, int64_t timeout_ms,
                                              int32_t* kept) {
    return wait_until(__func__, snapshot, Until::kept, timeout_ms, kept);
}
