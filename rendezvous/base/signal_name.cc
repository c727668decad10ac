// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/signal_name.h"

#include <cstring>

namespace regroup {

std::string signal_name(int signal) {
    const char* const name = ::sigabbrev_np(signal);
    return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace regroup
