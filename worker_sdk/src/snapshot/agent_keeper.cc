// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/keeper.h"

namespace regroup::snapshot {

std::unique_ptr<Keeper> make_keeper(const std::string& folder) {
    return make_own_keeper(folder);
}

}  // namespace regroup::snapshot
