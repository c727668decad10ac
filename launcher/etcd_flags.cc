// SPDX-License-Identifier: Apache-2.0
#include "launcher/etcd_flags.h"

#include "launcher/flag_values.h"

namespace regroup::launcher {

void add_etcd_flags(FlagTable& flags, journal::EtcdAccess& out) {
    flags.value({"--etcd-cacert", "FILE", "the system's certificates",
                 "With etcds://: PEM file of the CA that signed etcd's certificate",
                 "--etcd-cacert=/etc/etcd/ca.crt", "REGROUP_ETCD_CACERT", true},
                text_into(out.ca_file));
    flags.value({"--etcd-cert", "FILE", "none",
                 "With etcds://: PEM file of the certificate to show, for an etcd with "
                 "--client-cert-auth",
                 "--etcd-cert=/etc/regroup/etcd.crt", "REGROUP_ETCD_CERT", true},
                text_into(out.cert_file));
    flags.value({"--etcd-key", "FILE", "the file of --etcd-cert",
                 "PEM file of the key of --etcd-cert, without a passphrase",
                 "--etcd-key=/etc/regroup/etcd.key", "REGROUP_ETCD_KEY", true},
                text_into(out.key_file));
    flags.value({"--etcd-user", "NAME", "none",
                 "With etcds://: user name in etcd. Its role needs the permission readwrite on the "
                 "prefix regroup/",
                 "--etcd-user=regroup", "REGROUP_ETCD_USER", true},
                text_into(out.user));
    flags.value(
        {"--etcd-password-file", "FILE", "none",
         "File whose first line is the password of --etcd-user. Only its owner may read it",
         "--etcd-password-file=/etc/regroup/etcd.password", "REGROUP_ETCD_PASSWORD_FILE", true},
        text_into(out.password_file));
}

}  // namespace regroup::launcher
