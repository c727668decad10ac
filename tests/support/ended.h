// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::testing {

/// The end of a program, as a shell shows it; no code if it still runs after the usual limit.
struct Ended {
    std::optional<int> code;
    std::string output;

    friend std::ostream& operator<<(std::ostream& out, const Ended& end) {
        return out << "exit code " << end.code.value_or(-1) << ", output:\n" << end.output;
    }
};

inline Ended ended(Program& program) {
    const std::optional<int> code = program.wait();
    return {code, program.output()};
}

MATCHER_P2(Exits, code, sentence, "ends with that code and output") {
    return arg.code == code && ::testing::ExplainMatchResult(sentence, arg.output, result_listener);
}

/// Matches an Ended by its exit code and parts of its output; see saying().
template <class... Words>
auto exits(int code, const Words&... words) {
    return Exits(code, saying(words...));
}

}  // namespace regroup::testing
