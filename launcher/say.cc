// SPDX-License-Identifier: Apache-2.0
#include "launcher/say.h"

#include <cstdio>

#include "rendezvous/base/printable.h"

namespace regroup::launcher {

void complain(const std::string& who, const std::string& line) {
    std::fprintf(stderr, "%s: %s\n", who.c_str(), printable(line).c_str());
}

void print(const std::string& line) {
    std::puts(printable(line).c_str());
}

void print(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
        print(line);
    }
}

}  // namespace regroup::launcher
