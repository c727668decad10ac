// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup::journal {

/// How a client of etcd finds out who answers, and says who it is itself. The files are read again
/// for each connection and each login, so that they can be replaced while the daemon runs.
struct EtcdAccess {
    bool tls = false;       ///< The endpoints speak TLS, 1.2 or newer.
    std::string ca_file;    ///< PEM: who may sign etcd's certificate. Empty: the system's.
    std::string cert_file;  ///< PEM: this client's certificate, with intermediate ones. Or empty.
    std::string key_file;   ///< PEM, without a passphrase. Empty: the key is in `cert_file`.
    std::string user;       ///< The user name in etcd. Empty: none.
    std::string password_file;  ///< Its first line is the password. With `user` only.
};

}  // namespace regroup::journal
