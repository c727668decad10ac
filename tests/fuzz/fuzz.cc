// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"

#include <cstdio>
#include <cstdlib>

#include "rendezvous/base/random.h"

namespace regroup::fuzz {

void fail(const std::string& what) {
    std::fprintf(stderr, "broken property: %s\n", what.c_str());
    std::abort();
}

std::vector<std::string> random_seeds() {
    Random random(20261125);
    std::vector<std::string> seeds(16);
    for (std::string& seed : seeds) {
        seed.resize(random.below(600));
        for (char& byte : seed) {
            byte = static_cast<char>(random.next());
        }
    }
    return seeds;
}

std::uint64_t Input::number(std::uint64_t max) {
    const std::uint8_t kind = byte();
    if (kind < 160) {
        return std::min<std::uint64_t>(kind % 16, max);
    }
    if (kind < 176) {
        return max - std::min<std::uint64_t>(kind % 4, max);
    }
    std::uint64_t value = 0;
    for (int i = kind < 216 ? 1 : kind < 236 ? 3 : 7; i >= 0; --i) {
        value = value << 8U | byte();
    }
    return max == UINT64_MAX ? value : value % (max + 1);
}

}  // namespace regroup::fuzz
