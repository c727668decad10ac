// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace byte_lm {

/// The flags; the values here are the defaults.
struct Options {
    std::vector<std::string> data;
    std::int64_t steps = 600;
    std::int64_t global_batch = 128;
    double learning_rate = 0.1;
    std::string checkpoint;
    std::int64_t checkpoint_every = 50;
    std::int64_t seed = 1;
    std::string backend = "cpu";
    std::int64_t context = 8;
    std::int64_t embedding = 16;
    std::int64_t hidden = 128;
    std::int64_t log_every = 20;
    std::int64_t step_delay_ms = 0;
    std::string save_parameters;
    bool help = false;
};

/// A wrong command line. what() describes the mistake in one line.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Reads the command line. Throws UsageError.
[[nodiscard]] Options parse_options(int argc, char** argv);

/// The text of --help.
[[nodiscard]] std::string usage();

}  // namespace byte_lm
