// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ended.h"
#include "tests/support/program.h"

namespace regroup::testing {

using Words = std::vector<std::string>;

/// The exit code for a wrong command line.
inline constexpr int kUsage = 2;

/// `first` followed by `more`.
[[nodiscard]] Words operator+(Words first, const Words& more);

/// The command under test: the one of this build, or the one that REGROUP_BINARY names.
[[nodiscard]] std::string regroup_program();
[[nodiscard]] std::string probe_program();
/// The probe for elastic jobs; see elastic_probe.cc.
[[nodiscard]] std::string elastic_probe_program();
/// The probe for hangs; see collective_probe.cc.
[[nodiscard]] std::string collective_probe_program();
[[nodiscard]] std::string byte_lm_program();

/// The content of a mark, written by a rank at a step `mark=NAME` of the probe: its pid as "pid",
/// its arguments as "argument0", ... and its environment.
using Mark = std::map<std::string, std::string>;

[[nodiscard]] pid_t pid_of(const Mark& mark);

/// A socket of this process that listens on a port of 127.0.0.1 and never accepts.
class Listener {
   public:
    Listener();
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] std::string port() const { return std::to_string(port_); }

   private:
    int fd_ = -1;
    std::uint16_t port_ = 0;
};

/// `regroup serve` on a free port of the loopback.
class Rendezvous {
   public:
    /// Waits until the daemon listens; fails the test otherwise.
    explicit Rendezvous(const Words& flags = {"--listen=127.0.0.1:0"});

    [[nodiscard]] Program& program() { return program_; }
    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// "127.0.0.1:PORT".
    [[nodiscard]] std::string endpoint() const;

   private:
    Program program_;
    std::uint16_t port_ = 0;
};

/// A test with a folder in which all its programs run, and the marks of their probes.
class EndToEnd : public ::testing::Test {
   protected:
    [[nodiscard]] const std::string& folder() const { return folder_.path(); }

    /// `regroup run`, with `arguments` after it.
    [[nodiscard]] Program run(const Words& arguments, const Words& environment = {}) const;

    [[nodiscard]] std::unique_ptr<Program> start_run(const Words& arguments,
                                                     const Words& environment = {}) const;

    /// `regroup run` of the probe, with `flags` before it and `steps` after it.
    [[nodiscard]] Program run_probe(const Words& flags, const Words& steps,
                                    const Words& environment = {}) const;

    /// Flags of one of several nodes on this machine: its address is 127.0.0.(`number` + 1), and
    /// the daemon is at `endpoint`.
    [[nodiscard]] static Words node(unsigned number, const std::string& nodes,
                                    const std::string& endpoint);

    /// Marks of that name, by round and rank.
    [[nodiscard]] std::map<std::uint64_t, std::map<std::uint32_t, Mark>> marks(
        const std::string& name) const;
    /// Marks of that name in the latest round that has any.
    [[nodiscard]] std::map<std::uint32_t, Mark> last_marks(const std::string& name) const;
    /// One mark; empty if there is none.
    [[nodiscard]] Mark mark(const std::string& name, std::uint64_t round,
                            std::uint32_t rank = 0) const;
    /// Waits until `count` ranks have written that mark in one round. Returns these marks, or none
    /// at a time-out.
    [[nodiscard]] std::map<std::uint32_t, Mark> await_marks(const std::string& name,
                                                            std::size_t count,
                                                            std::uint64_t round_min = 1) const;
    /// The last step that rank 0 of an elastic probe with "beat" has begun.
    [[nodiscard]] std::uint64_t step() const;
    [[nodiscard]] bool goes_on() const;
    /// Releases ranks that wait at a step `await=NAME`.
    void release(const std::string& name) const;

   private:
    TemporaryDirectory folder_;
};

}  // namespace regroup::testing
