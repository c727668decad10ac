// SPDX-License-Identifier: Apache-2.0
//
// A real sshd for the user who runs the tests, with keys of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/program.h"

namespace regroup::testing {

/// One sshd on some addresses, and the configuration of a client that knows them by other names.
/// The destructor ends it; its sessions end with their clients.
class SshServer {
   public:
    using Words = std::vector<std::string>;
    /// The names of hosts and their addresses.
    using Hosts = std::vector<std::pair<std::string, std::string>>;

    /// `program`: the path of sshd; may be empty. It may only serve the addresses in `served`; the
    /// client knows all `hosts`.
    SshServer(std::string program, Hosts hosts, std::vector<std::string> served);

    ~SshServer();
    SshServer(const SshServer&) = delete;
    SshServer& operator=(const SshServer&) = delete;

    /// Returns a sentence that says what is missing on this machine, if anything is.
    std::optional<std::string> prepare();
    /// Starts an sshd for the address `served`[`index`] by the words that `wrap` makes of its
    /// command. The test fails if it does not listen.
    void start(std::size_t index, const std::function<Words(const Words&)>& wrap);
    /// Starts one sshd for all addresses.
    void start();

    /// The value of --ssh.
    [[nodiscard]] std::string client() const;
    /// The output of sshd.
    [[nodiscard]] std::string log() const;

   private:
    [[nodiscard]] Words command(const Words& addresses) const;
    void launch(const Words& addresses, const std::function<Words(const Words&)>& wrap);
    void write(const std::string& name, const std::string& text) const;
    [[nodiscard]] std::string file(const std::string& name) const;

    std::string program_;
    Hosts hosts_;
    std::vector<std::string> served_;
    std::string port_;
    TemporaryDirectory folder_;
    std::vector<std::unique_ptr<Program>> servers_;
};

}  // namespace regroup::testing
