// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/name_hold.h"

#include <regroup/error.h>

#include <mutex>
#include <set>

namespace regroup::snapshot {
namespace {

struct Names {
    std::mutex mutex{};
    std::set<NameHold::Key> taken{};  // Guarded by mutex.
};

/// Never destroyed: objects may outlive the destruction of statics.
Names& names() {
    static Names* const only = new Names();
    return *only;
}

}  // namespace

NameHold::NameHold(const Context& context, const std::string& name)
    : key_(context.round, context.rank, name) {
    const std::lock_guard lock(names().mutex);
    if (!names().taken.insert(key_).second) {
        throw Error(Errc::invalid_argument,
                    "another Snapshot \"" + name +
                        "\" of this process saves in this round; give one of them another name, or "
                        "end the other one first");
    }
}

NameHold::~NameHold() {
    const std::lock_guard lock(names().mutex);
    names().taken.erase(key_);
}

}  // namespace regroup::snapshot
