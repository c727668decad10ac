// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/end_to_end.h"

namespace regroup::testing {

/// Two network namespaces with a cable between them: 10.77.0.1 and 10.77.0.2, or fd77::1 and
/// fd77::2 and no IPv4 at all. Removed with the object.
class Cable {
   public:
    explicit Cable(bool ipv6 = false);
    ~Cable();
    Cable(const Cable&) = delete;
    Cable& operator=(const Cable&) = delete;

    /// Returns a sentence that says what is missing on this machine, if anything is.
    std::optional<std::string> lay();
    void pull();
    void plug();

    /// The command line that runs `command` in namespace `index`, with host name `host`.
    [[nodiscard]] Words inside(std::size_t index, const std::string& host,
                               const Words& command) const;

   private:
    bool ip(const Words& words);

    bool ipv6_;
    std::string base_;
    std::vector<std::string> names_;
    std::string said_;
};

}  // namespace regroup::testing
