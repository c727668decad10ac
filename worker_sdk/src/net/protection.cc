// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/protection.h"

#include <regroup/error.h>

#include <string>

namespace regroup::net {

std::optional<security::Key> group_key(const Context& context, std::string_view purpose) {
    if (context.group_secret.empty()) {
        return std::nullopt;
    }
    if (context.group_secret.size() < Context::kGroupSecretBytesMin) {
        throw Error(Errc::invalid_argument,
                    "the group's secret has " + std::to_string(context.group_secret.size()) +
                        " bytes; it needs " + std::to_string(Context::kGroupSecretBytesMin) +
                        " at least, from a random generator (openssl rand -hex 32)");
    }
    // Extract, then expand, as HKDF does with no salt.
    const auto no_salt = security::Key::from_hex(std::string(2 * security::Key::kBytes, '0'));
    return no_salt->derive(context.group_secret).derive(purpose);
}

Protection protection_of(const Context& context, std::string_view purpose) {
    Protection protection{.key = group_key(context, purpose), .encrypts = context.group_encryption};
    if (protection.encrypts && !protection.key) {
        throw Error(Errc::invalid_argument,
                    "REGROUP_GROUP_ENCRYPTION=1, but the ranks have no secret for it; start them "
                    "with regroup, or give all of them the same REGROUP_GROUP_SECRET_FILE");
    }
    return protection;
}

}  // namespace regroup::net
