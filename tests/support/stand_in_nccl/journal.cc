// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stand_in_nccl/journal.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "tests/support/stand_in_nccl/stand_in_nccl.h"

namespace stand_in_nccl {
namespace {

Faults parse(const std::string& text) {
    Faults faults;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const int value = equals == std::string::npos ? 1 : std::atoi(word.c_str() + equals + 1);
        if (name == "init_never") {
            faults.init_never = true;
        } else if (name == "async_error_at") {
            faults.async_error_at = value;
        } else if (name == "system_error_at") {
            faults.system_error_at = value;
        } else if (name == "split_error") {
            faults.split_error = true;
        } else if (name == "split_wrong") {
            faults.split_wrong = true;
        } else if (name == "graph_alive") {
            faults.graph_alive = true;
        } else if (name == "launch_never_at") {
            faults.launch_never_at = value;
        } else if (name == "op_never_at") {
            faults.op_never_at = value;
        } else if (name == "version") {
            faults.version = value;
        } else if (name == "rank") {
            faults.rank = value;
        } else {
            note_violation("unknown fault " + word);
        }
    }
    return faults;
}

struct Shared {
    std::mutex mutex;
    std::string journal;  // guarded by mutex
    Faults faults;        // guarded by mutex
};

Shared& shared() {
    // Never destroyed: detached hubs may outlive static objects.
    static Shared& instance = *new Shared;
    static const bool from_environment = [] {
        if (const char* const text = std::getenv("STAND_IN_NCCL_FAULTS")) {
            instance.faults = parse(text);
        }
        return true;
    }();
    (void)from_environment;
    return instance;
}

}  // namespace

Faults faults() {
    Shared& state = shared();
    const std::lock_guard lock(state.mutex);
    return state.faults;
}

void note(const std::string& event) {
    Shared& state = shared();
    const std::lock_guard lock(state.mutex);
    state.journal += event + "\n";
}

void note_violation(const std::string& what) {
    note("VIOLATION " + what);
}

}  // namespace stand_in_nccl

using stand_in_nccl::shared;

std::size_t stand_in_nccl_journal(char* into, std::size_t bytes) {
    auto& state = shared();
    const std::lock_guard lock(state.mutex);
    std::copy_n(state.journal.data(), std::min(bytes, state.journal.size()), into);
    return state.journal.size();
}

void stand_in_nccl_reset() {
    auto& state = shared();
    const std::lock_guard lock(state.mutex);
    state.journal.clear();
    state.faults = {};
}

void stand_in_nccl_faults(const char* text) {
    const stand_in_nccl::Faults faults = stand_in_nccl::parse(text);
    auto& state = shared();
    const std::lock_guard lock(state.mutex);
    state.faults = faults;
}
