// SPDX-License-Identifier: Apache-2.0
#include <regroup/c_api_training.h>
#include <regroup/checkpoint.h>
#include <regroup/distributed_sampler.h>

#include <algorithm>

#include "worker_sdk/src/c_api/call.h"

using regroup::c_api::Call;
using regroup::c_api::guarded;

struct regroup_sampler {
    regroup::DistributedSampler value;
};

struct regroup_checkpoint {
    regroup::Checkpoint value;
};

namespace {

/// Hands over as many indices as there is room for, and the number of all.
void give_indices(const Call& call, const std::vector<std::uint64_t>& all, uint64_t* indices,
                  size_t capacity, size_t* count) {
    std::size_t& result = call(count, "count");
    const std::size_t written = std::min(all.size(), capacity);
    if (written != 0) {
        std::copy_n(all.data(), written, &call(indices, "indices"));
    }
    result = all.size();
}

regroup_errc save(const char* function, const regroup_checkpoint* checkpoint, const char* path,
                  const regroup::CheckpointOptions& options) {
    return guarded(function, [&](const Call& call) {
        call(checkpoint, "checkpoint").value.save(call.text(path, "path"), options);
    });
}

/// Sets one entry of a checkpoint.
regroup_errc set_entry(const char* function, regroup_checkpoint* checkpoint, const char* name,
                       const auto& set) {
    return guarded(function, [&](const Call& call) {
        set(call, call(checkpoint, "checkpoint").value, call.text(name, "name"));
    });
}

/// Reads one entry of a checkpoint.
regroup_errc get_entry(const char* function, const regroup_checkpoint* checkpoint, const char* name,
                       const auto& get) {
    return guarded(function, [&](const Call& call) {
        get(call, call(checkpoint, "checkpoint").value, call.text(name, "name"));
    });
}

}  // namespace

regroup_errc regroup_sampler_create(uint64_t dataset_count, uint32_t rank, uint32_t world_size,
                                    int32_t shuffle, uint64_t seed, int32_t drop_last,
                                    regroup_sampler** sampler) {
    return guarded(__func__, [&](const Call& call) {
        regroup_sampler*& result = call.result(sampler, "sampler");
        regroup::SamplerOptions options;
        options.dataset_count = dataset_count;
        options.rank = rank;
        options.world_size = world_size;
        options.shuffle = shuffle != 0;
        options.seed = seed;
        options.drop_last = drop_last != 0;
        result = new regroup_sampler{regroup::DistributedSampler(options)};
    });
}

regroup_errc regroup_sampler_set_epoch(regroup_sampler* sampler, uint64_t epoch) {
    return guarded(__func__,
                   [&](const Call& call) { call(sampler, "sampler").value.set_epoch(epoch); });
}

regroup_errc regroup_sampler_count(const regroup_sampler* sampler, uint64_t* count) {
    return guarded(__func__, [&](const Call& call) {
        std::uint64_t& result = call(count, "count");
        result = call(sampler, "sampler").value.count();
    });
}

regroup_errc regroup_sampler_indices(const regroup_sampler* sampler, uint64_t global_start,
                                     uint64_t* indices, size_t capacity, size_t* count) {
    return guarded(__func__, [&](const Call& call) {
        give_indices(call, call(sampler, "sampler").value.indices_from(global_start), indices,
                     capacity, count);
    });
}

regroup_errc regroup_sampler_shard(const regroup_sampler* sampler, uint64_t first, uint64_t last,
                                   uint64_t* indices, size_t capacity, size_t* count) {
    return guarded(__func__, [&](const Call& call) {
        const regroup::SampleRange range{.first = first, .last = last};
        give_indices(call, call(sampler, "sampler").value.shard(range), indices, capacity, count);
    });
}

void regroup_sampler_free(regroup_sampler* sampler) {
    delete sampler;
}

regroup_errc regroup_checkpoint_create(regroup_checkpoint** checkpoint) {
    return guarded(__func__, [&](const Call& call) {
        regroup_checkpoint*& result = call.result(checkpoint, "checkpoint");
        result = new regroup_checkpoint;
    });
}

regroup_errc regroup_checkpoint_load(const char* path, regroup_checkpoint** checkpoint) {
    return guarded(__func__, [&](const Call& call) {
        regroup_checkpoint*& result = call.result(checkpoint, "checkpoint");
        auto loaded = regroup::Checkpoint::load_if_present(call.text(path, "path"));
        if (loaded) {
            result = new regroup_checkpoint{std::move(*loaded)};
        }
    });
}

regroup_errc regroup_checkpoint_save(const regroup_checkpoint* checkpoint, const char* path,
                                     size_t previous_count) {
    return save(__func__, checkpoint, path, {.previous_count = previous_count, .round = 0});
}

regroup_errc regroup_checkpoint_save_fenced(const regroup_checkpoint* checkpoint, const char* path,
                                            size_t previous_count, uint64_t round) {
    return save(__func__, checkpoint, path, {.previous_count = previous_count, .round = round});
}

void regroup_checkpoint_free(regroup_checkpoint* checkpoint) {
    delete checkpoint;
}

regroup_errc regroup_checkpoint_set_text(regroup_checkpoint* checkpoint, const char* name,
                                         const void* text, size_t bytes) {
    return set_entry(__func__, checkpoint, name, [&](auto& call, auto& opened, auto&& key) {
        opened.set_text(key, call.bytes(text, bytes, "text"));
    });
}

regroup_errc regroup_checkpoint_set_integer(regroup_checkpoint* checkpoint, const char* name,
                                            int64_t value) {
    return set_entry(__func__, checkpoint, name,
                     [&](auto&, auto& opened, auto&& key) { opened.set_integer(key, value); });
}

regroup_errc regroup_checkpoint_set_number(regroup_checkpoint* checkpoint, const char* name,
                                           double value) {
    return set_entry(__func__, checkpoint, name,
                     [&](auto&, auto& opened, auto&& key) { opened.set_number(key, value); });
}

regroup_errc regroup_checkpoint_set_tensor(regroup_checkpoint* checkpoint, const char* name,
                                           regroup_tensor tensor) {
    return set_entry(__func__, checkpoint, name, [&](auto& call, auto& opened, auto&& key) {
        opened.set_tensor(key, call.tensor(tensor, "tensor"));
    });
}

regroup_errc regroup_checkpoint_contains(const regroup_checkpoint* checkpoint, const char* name,
                                         int32_t* present) {
    return get_entry(__func__, checkpoint, name, [&](auto& call, auto& opened, auto&& key) {
        int32_t& result = call(present, "present");
        result = opened.contains(key) ? 1 : 0;
    });
}

regroup_errc regroup_checkpoint_get_text(const regroup_checkpoint* checkpoint, const char* name,
                                         char** text, size_t* bytes) {
    return get_entry(__func__, checkpoint, name, [&](auto& call, auto& opened, auto&& key) {
        char*& result = call.result(text, "text");
        call.give(opened.text(key), &result, bytes);
    });
}

regroup_errc regroup_checkpoint_get_integer(const regroup_checkpoint* checkpoint, const char* name,
                                            int64_t* value) {
    return get_entry(__func__, checkpoint, name, [&](auto& call, auto& opened, auto&& key) {
        int64_t& result = call(value, "value");
        result = opened.integer(key);
    });
}

regroup_errc regroup_checkpoint_get_number(const regroup_checkpoint* checkpoint, const char* name,
                                           double* value) {
    return get_entry(__func__, checkpoint, name, [&](auto& call, auto& opened, auto&& key) {
        double& result = call(value, "value");
        result = opened.number(key);
    });
}

regroup_errc regroup_checkpoint_get_tensor(const regroup_checkpoint* checkpoint, const char* name,
                                           regroup_tensor destination) {
    return get_entry(__func__, checkpoint, name, [&](auto& call, auto& opened, auto&& key) {
        opened.read_tensor(key, call.tensor(destination, "destination"));
    });
}
