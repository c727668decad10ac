// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/torch_record.h"

#include <dlfcn.h>
#include <utility>

namespace regroup {
namespace {

/// The names have the types of the parameters, and [abi:cxx11] the type of the result.
constexpr const char* kDump = "_ZN4c10d18dump_fr_trace_jsonB5cxx11Ebb";
constexpr const char* kDumpOfBackend =
    "_ZN4c10d18dump_fr_trace_jsonEbbRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kDumpOfNccl = "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb";

using Dump = std::string (*)(bool collectives, bool only_active);
using DumpOfBackend = std::string (*)(bool collectives, bool only_active,
                                      const std::string& backend);

/// A library that is loaded already. It stays loaded.
void* loaded(const char* library) {
    return ::dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
}

template <class Function>
Function function(void* library, const char* name) {
    return library == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library, name));
}

void add(std::vector<TorchRecord>& records, const char* backend, std::string json) {
    if (json.find("\"entries\"") != json.npos) {
        records.push_back({backend, std::move(json)});
    }
}

}  // namespace

std::vector<TorchRecord> torch_records() {
    std::vector<TorchRecord> records;
    void* const torch = loaded("libtorch_cpu.so");
    if (const auto dump = function<DumpOfBackend>(torch, kDumpOfBackend)) {
        for (const char* backend : {"gloo", "nccl", "nccl2"}) {
            add(records, backend, dump(true, false, backend));
        }
    } else if (const auto dump_all = function<Dump>(torch, kDump)) {
        add(records, "gloo", dump_all(true, false));
    }
    if (const auto dump = function<Dump>(loaded("libtorch_cuda.so"), kDumpOfNccl)) {
        add(records, "nccl-legacy", dump(true, false));
    }
    return records;
}

}  // namespace regroup
