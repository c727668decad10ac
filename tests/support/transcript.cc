// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transcript.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "rendezvous/protocol/message_line.h"

namespace regroup::test {

namespace {

using namespace rendezvous;

// The first lines that differ, expected and actual.
std::string first_difference(const std::string& expected, const std::string& actual) {
    std::istringstream a(expected);
    std::istringstream b(actual);
    std::string x;
    std::string y;
    for (int number = 1;; ++number) {
        const bool more_a = static_cast<bool>(std::getline(a, x));
        const bool more_b = static_cast<bool>(std::getline(b, y));
        if (!more_a && !more_b) {
            return {};
        }
        if (!more_a || !more_b || x != y) {
            return "line " + std::to_string(number) + "\n  expected: " + (more_a ? x : "(end)") +
                   "\n  actual:   " + (more_b ? y : "(end)") +
                   "\nIf the new behaviour is intended, run again with "
                   "REGROUP_REWRITE=1 and review the changed transcript.\n";
        }
    }
}

std::string contents_of(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace

std::string_view kind_of(const FromAgent& message) {
    return protocol::kind_of(message);
}

std::string_view kind_of(const FromDaemon& message) {
    return protocol::kind_of(message);
}

std::string to_line(const FromAgent& message) {
    return protocol::to_line(message);
}
std::string to_line(const FromDaemon& message) {
    return protocol::to_line(message);
}

std::string play(const std::string& path, const Interpreter& interpreter) {
    std::istringstream source(contents_of(path));
    std::string result;
    std::string input;
    bool output_of_last_time = false;
    std::vector<std::string> happened;
    bool commands_pending = false;
    const auto finish_block = [&] {
        if (commands_pending) {
            result += "----\n";
            if (happened.empty()) {
                happened.emplace_back("(quiet)");
            }
            for (const std::string& happening : happened) {
                result += happening + "\n";
            }
        }
        happened.clear();
        commands_pending = false;
    };
    while (std::getline(source, input)) {
        if (input.empty()) {
            finish_block();
            output_of_last_time = false;
            result += "\n";
        } else if (output_of_last_time) {
            continue;
        } else if (input == "----") {
            output_of_last_time = true;
        } else {
            result += input + "\n";
            if (!input.starts_with('#')) {
                for (std::string& happening : interpreter(input)) {
                    happened.push_back(std::move(happening));
                }
                commands_pending = true;
            }
        }
    }
    finish_block();
    return result;
}

std::string check_transcript(const std::string& path, const Interpreter& interpreter) {
    const std::string actual = play(path, interpreter);
    if (actual.empty()) {
        return "cannot read the transcript " + path + "\n";
    }
    const char* rewrite = std::getenv("REGROUP_REWRITE");
    if (rewrite != nullptr && std::string_view(rewrite) == "1") {
        std::ofstream(path) << actual;
        return {};
    }
    return first_difference(contents_of(path), actual);
}

}  // namespace regroup::test
