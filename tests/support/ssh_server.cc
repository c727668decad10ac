// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ssh_server.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <pwd.h>
#include <sstream>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/network_namespace.h"

namespace regroup::testing {
namespace {

std::string own_name() {
    const passwd* entry = ::getpwuid(::getuid());
    return entry != nullptr ? entry->pw_name : "";
}

// As root, the test gives the account a shell.
bool has_shell() {
    const passwd* entry = ::getpwuid(::getuid());
    const std::string shell = entry != nullptr ? entry->pw_shell : "";
    return ::getuid() == 0 || !(shell.ends_with("nologin") || shell.ends_with("false"));
}

}  // namespace

SshServer::SshServer(std::string program, Hosts hosts, std::vector<std::string> served)
    : program_(std::move(program)),
      hosts_(std::move(hosts)),
      served_(std::move(served)),
      port_(std::to_string(unused_port())) {}

// sshd writes its title over the variable by which a Program finds it.
SshServer::~SshServer() {
    for (const auto& server : servers_) {
        server->signal(SIGKILL);
    }
}

std::optional<std::string> SshServer::prepare() {
    if (program_.empty() || find_tool("ssh").empty() || find_tool("ssh-keygen").empty()) {
        return "OpenSSH is not installed; `sh cmake/setup.sh test` gets it";
    }
    if (own_name().empty() || !has_shell()) {
        return "the user of this test has no account with a shell, and sshd needs one";
    }
    for (const char* key : {"host", "user"}) {
        const auto made =
            run_tool({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file(key)});
        if (!made) {
            return "ssh-keygen: " + made.error().detail;
        }
    }
    std::filesystem::create_directory(file("home"));
    std::istringstream host_key(read_file(file("host.pub")));
    std::string kind;
    std::string key;
    host_key >> kind >> key;
    std::string known;
    std::string aliases = "Host *\n  Port " + port_ + "\n  User " + own_name() +
                          "\n  IdentityFile " + file("user") +
                          "\n  IdentitiesOnly yes\n  UserKnownHostsFile " + file("known") +
                          "\n  GlobalKnownHostsFile /dev/null\n";
    for (const auto& [name, address] : hosts_) {
        known.append("[").append(address).append("]:").append(port_);
        known.append(" ").append(kind).append(" ").append(key).append("\n");
        aliases.append("Host ").append(name).append("\n  HostName ").append(address).append("\n");
    }
    write("known", known);
    write("client", aliases);
    // As root, sshd wants an account and a folder for its part without rights. It sees them in
    // files of its own, and root gets another home.
    std::string accounts;
    for (const std::string& line : lines_of(read_file("/etc/passwd"))) {
        if (!line.starts_with("root:") && !line.starts_with("sshd:")) {
            accounts += line + "\n";
        }
    }
    write("passwd", accounts + "root:*:0:0:root:" + file("home") +
                        ":/bin/sh\nsshd:*:65533:65534::/run/sshd:/usr/sbin/nologin\n");
    write("start.sh",
          "set -e\n"
          "mount --bind " +
              file("passwd") +
              " /etc/passwd\n"
              "mount -t tmpfs none /run\n"
              "mkdir -p /run/sshd\n"
              "exec \"$0\" \"$@\"\n");
    if (::getuid() == 0 &&
        !run_tool({"unshare", "-m", "mount", "--bind", file("passwd"), "/etc/passwd"})) {
        return "this root may not mount anything, and sshd needs an account";
    }
    return std::nullopt;
}

SshServer::Words SshServer::command(const Words& addresses) const {
    Words words;
    if (::getuid() == 0) {
        words = {find_tool("unshare"), "-m", "/bin/sh", "-c", ". " + file("start.sh")};
    }
    words.insert(words.end(), {program_, "-D", "-e", "-f", "/dev/null"});
    Words settings{"Port=" + port_,
                   "HostKey=" + file("host"),
                   "PidFile=none",
                   "UsePAM=no",
                   "StrictModes=no",
                   "PasswordAuthentication=no",
                   "KbdInteractiveAuthentication=no",
                   "MaxStartups=100",
                   "AuthorizedKeysFile=" + file("user.pub")};
    for (const std::string& address : addresses) {
        settings.push_back("ListenAddress=" + address);
    }
    for (const std::string& setting : settings) {
        words.insert(words.end(), {"-o", setting});
    }
    return words;
}

void SshServer::launch(const Words& addresses, const std::function<Words(const Words&)>& wrap) {
    servers_.push_back(std::make_unique<Program>(ProgramSpec{wrap(command(addresses)), {}, {}}));
    for (const std::string& address : addresses) {
        EXPECT_TRUE(servers_.back()->prints("Server listening on " + address + " port"))
            << servers_.back()->output();
    }
}

void SshServer::start() {
    launch(served_, std::identity());
}

void SshServer::start(std::size_t index, const std::function<Words(const Words&)>& wrap) {
    launch({served_.at(index)}, wrap);
}

std::string SshServer::client() const {
    return find_tool("ssh") + " -F " + file("client");
}

std::string SshServer::log() const {
    std::string text;
    for (const auto& server : servers_) {
        text += server->output();
    }
    return text;
}

void SshServer::write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
}

std::string SshServer::file(const std::string& name) const {
    return folder_.path() + "/" + name;
}

}  // namespace regroup::testing
