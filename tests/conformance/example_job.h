// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace regroup::testing {

/// The ranks of one example program, started by hand: the variables of torchrun, no launcher.
class ExampleJob {
   public:
    ExampleJob(const std::string& program, std::uint32_t world_size,
               const std::vector<std::string>& arguments) {
        const std::string port = std::to_string(unused_port());
        for (std::uint32_t rank = 0; rank < world_size; ++rank) {
            ProgramSpec spec;
            spec.command = {program};
            spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
            if (world_size > 1) {
                spec.environment = {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
                                    "RANK=" + std::to_string(rank),
                                    "WORLD_SIZE=" + std::to_string(world_size)};
            }
            ranks_.push_back(std::make_unique<Program>(spec));
        }
    }

    [[nodiscard]] Program& rank(std::size_t index) { return *ranks_[index]; }

    /// Waits for all ranks, which must end with code 0.
    void expect_success() {
        for (const auto& rank : ranks_) {
            EXPECT_EQ(rank->wait(), 0) << rank->output();
        }
    }

   private:
    std::vector<std::unique_ptr<Program>> ranks_;
};

/// The number that follows `label` in `text`; -1 if there is none.
inline double number_after(const std::string& text, const std::string& label) {
    const std::size_t at = text.find(label);
    EXPECT_NE(at, std::string::npos) << label << " is not in: " << text;
    return at == std::string::npos ? -1.0 : std::atof(text.c_str() + at + label.size());
}

}  // namespace regroup::testing
