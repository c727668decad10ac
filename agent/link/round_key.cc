// SPDX-License-Identifier: Apache-2.0
#include "agent/link/round_key.h"

#include "rendezvous/security/key.h"

namespace regroup::agent {

std::string round_key(const rendezvous::Assignment& assignment) {
    const auto key = security::Key::from_secret(assignment.store_key);
    return key ? key->derive("regroup workers, round " + std::to_string(number(assignment.round)))
                     .hex()
               : "";
}

}  // namespace regroup::agent
