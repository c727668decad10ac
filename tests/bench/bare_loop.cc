// SPDX-License-Identifier: Apache-2.0
//
// The smallest possible launcher, for comparison:
//
//     bare_loop PROGRAM COUNT
#include <cstdlib>

#include "tests/bench/timed_run.h"

int main(int argc, char** argv) {
    return argc == 3 && regroup::bench::run_bare_loop(argv[1], std::atoi(argv[2])).success ? 0 : 1;
}
