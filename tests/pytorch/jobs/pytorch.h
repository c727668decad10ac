// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/e2e/end_to_end.h"

namespace regroup::testing {

/// A Python that has PyTorch, and how the launcher starts it.
struct Interpreter {
    std::string name;  ///< As part of a test's name: "Debian".
    std::string path;
    Words flags{};  ///< For the launcher.

    friend void PrintTo(const Interpreter& interpreter, std::ostream* stream) {
        *stream << interpreter.path;
    }
};

/// The Pythons of this machine that have PyTorch: Debian's, the current one and the newest one. The
/// first call prints a line for each that is missing, with the way to install it.
[[nodiscard]] const std::vector<Interpreter>& interpreters();
/// Each of them twice: once with --preload=torch.
[[nodiscard]] std::vector<Interpreter> interpreters_and_preloaded();
/// The interpreter of that name, or null.
[[nodiscard]] const Interpreter* find_interpreter(const std::string& name);

/// The path of one of tests/pytorch/scripts.
[[nodiscard]] std::string script(const std::string& name);

/// Longer than any job here takes, on a busy machine too: each process spends seconds on importing.
constexpr std::chrono::seconds kPyTorchLimit(150);

/// The lines that each rank wrote, in order, without the launcher's prefix.
[[nodiscard]] std::map<std::uint32_t, Words> worker_lines(const Program& program);

/// The number of occurrences of `text` in the output of `program`.
[[nodiscard]] std::size_t count_of(const Program& program, const std::string& text);

/// A test that runs PyTorch scripts.
class PyTorch : public EndToEnd {
   protected:
    /// `regroup run` of a script under `python`, with `flags` before it and `arguments` after it.
    [[nodiscard]] ProgramSpec job(const Interpreter& python, const Words& flags,
                                  const std::string& name, const Words& arguments = {}) const;
    /// The script without a launcher.
    [[nodiscard]] ProgramSpec by_hand(const Interpreter& python, const std::string& name,
                                      const Words& arguments, const Words& environment) const;
};

/// The same with each interpreter.
class PyTorchOfEach : public PyTorch, public ::testing::WithParamInterface<Interpreter> {
   protected:
    using PyTorch::job;
    [[nodiscard]] ProgramSpec job(const Words& flags, const std::string& name,
                                  const Words& arguments = {}) const {
        return PyTorch::job(GetParam(), flags, name, arguments);
    }
};

/// For INSTANTIATE_TEST_SUITE_P.
[[nodiscard]] std::string name_of(const ::testing::TestParamInfo<Interpreter>& info);

}  // namespace regroup::testing
