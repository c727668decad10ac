// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/nccl_api.h"

#include <regroup/error.h>

#include <dlfcn.h>
#include <vector>

#include "worker_sdk/src/cuda/environment.h"

namespace regroup::nccl {
namespace {

/// ncclCommSplit and the rules of non-blocking communicators as they are today.
constexpr int kOldest = 21800;
/// Its ncclCommAbort can wait forever.
constexpr int kAbortHangs = 22501;

std::string loader_error() {
    const char* const text = ::dlerror();
    return text == nullptr ? "unknown error of dlopen" : text;
}

std::string tried(const std::vector<std::string>& problems) {
    std::string text;
    for (const std::string& problem : problems) {
        text += (text.empty() ? "" : "; ") + problem;
    }
    return text;
}

/// Opens the first library of `paths` that the loader accepts and stores its path in `found`.
void* open_library(const std::vector<std::string>& paths, std::string& found) {
    std::vector<std::string> problems;
    for (const std::string& path : paths) {
        if (void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
            found = path;
            return library;
        }
        problems.push_back(loader_error());
    }
    throw Error(Errc::invalid_argument,
                "NCCL's library cannot be opened (" + tried(problems) +
                    "); install NCCL 2.18 or newer, or name the file in REGROUP_NCCL_LIBRARY (in "
                    "a Python environment it is nvidia/nccl/lib/libnccl.so.2 in site-packages)");
}

NcclApi load(const std::vector<std::string>& paths) {
    NcclApi api;
    void* const library = open_library(paths, api.path);
    std::string missing;
    const auto find = [&](const char* name, bool required) {
        void* const symbol = ::dlsym(library, name);
        if (symbol == nullptr && required) {
            missing += (missing.empty() ? "" : ", ") + std::string(name);
        }
        return symbol;
    };
#define REGROUP_NCCL_FIND(member, function, required) \
    api.member = reinterpret_cast<decltype(api.member)>(find(#function, required));
#define REGROUP_NCCL_FIND_REQUIRED(member, function) REGROUP_NCCL_FIND(member, function, true)
#define REGROUP_NCCL_FIND_OPTIONAL(member, function) REGROUP_NCCL_FIND(member, function, false)
    REGROUP_NCCL_REQUIRED(REGROUP_NCCL_FIND_REQUIRED)
    REGROUP_NCCL_OPTIONAL(REGROUP_NCCL_FIND_OPTIONAL)
#undef REGROUP_NCCL_FIND_OPTIONAL
#undef REGROUP_NCCL_FIND_REQUIRED
#undef REGROUP_NCCL_FIND
    if (api.get_version != nullptr) {
        (void)api.get_version(&api.version);
    }
    if (!missing.empty() || api.version < kOldest) {
        throw Error(Errc::invalid_argument,
                    api.path + " is NCCL " + version_text(api.version) + ", and 2.18 or newer is " +
                        "needed" + (missing.empty() ? "" : " (it has no " + missing + ")"));
    }
    if (api.version == kAbortHangs) {
        throw Error(Errc::invalid_argument,
                    api.path + " is NCCL " + version_text(api.version) +
                        ", which can hang when a group is ended after a failure; install 2.26 or "
                        "newer");
    }
    return api;
}

std::vector<std::string> usual_paths() {
    if (const auto named = cuda::Environment::read().nccl_library) {
        return {*named};
    }
    return {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
            "/usr/local/cuda/lib/libnccl.so.2"};
}

}  // namespace

NcclApi open_api(const std::string& path) {
    return load({path});
}

const NcclApi& installed_api() {
    // Never destroyed: threads of the Reaper may outlive the program's statics.
    static const NcclApi& api = *new NcclApi(load(usual_paths()));
    return api;
}

std::string version_text(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
           std::to_string(version % 100);
}

}  // namespace regroup::nccl
