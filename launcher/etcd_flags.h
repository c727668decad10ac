// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launcher/flag_table.h"
#include "rendezvous/journal/etcd_access.h"

namespace regroup::launcher {

/// Declares --etcd-cacert, --etcd-cert, --etcd-key, --etcd-user and --etcd-password-file, and their
/// variables REGROUP_ETCD_....
void add_etcd_flags(FlagTable& flags, journal::EtcdAccess& out);

}  // namespace regroup::launcher
