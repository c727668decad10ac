// SPDX-License-Identifier: Apache-2.0
//
// The hosts of a job as people write them: in a flag, or in the host file of another launcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// Larger host files are refused.
inline constexpr std::size_t kHostFileBytesMax = std::size_t{4} << 20;

/// One host of a job.
struct HostEntry {
    std::string host;                    ///< A name, an alias or an address, without brackets.
    std::string user;                    ///< Empty: ssh decides.
    std::optional<std::uint32_t> slots;  ///< Workers of this host, if the list says so.
    std::string switches;                ///< The path of switches to it: "s0.s4"; may be empty.

    /// "USER@HOST", or "HOST".
    [[nodiscard]] std::string destination() const;

    friend bool operator==(const HostEntry&, const HostEntry&) = default;
};

/// Reads the value of --hosts: "a:8,ann@b:8,node[1-4]:2,[fd00::7]:8". A number after the last colon
/// is the number of workers. Brackets in a name are those of expand_host_list().
/// Errors: invalid_argument, one line that names the item.
[[nodiscard]] Result<std::vector<HostEntry>> parse_host_list(std::string_view text);

/// Reads a host file of Open MPI and PRRTE ("user@a slots=8 max_slots=8"), of Hydra
/// ("a:8 user=ann") or of DeepSpeed ("a slots=8"). Comments are those of all three. A host that
/// stands on N lines without a number has N workers, as in the node file of PBS. Other hosts must
/// not stand there twice: the launchers disagree on the meaning.
/// `name` is what errors call the file. Errors: invalid_argument, one line with the line's number.
[[nodiscard]] Result<std::vector<HostEntry>> parse_host_file(std::string_view text,
                                                             const std::string& name);

}  // namespace regroup::launcher
