// SPDX-License-Identifier: Apache-2.0
#include "agent/process/affinity.h"

#include <cerrno>
#include <cstddef>
#include <sched.h>

namespace regroup::agent {

Result<std::vector<int>> allowed_cpus() {
    // The kernel refuses a mask shorter than its own, whose length is not known.
    for (std::size_t count = 1024; count <= std::size_t{1} << 20; count *= 2) {
        std::vector<cpu_set_t> mask(count / CPU_SETSIZE);
        const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
        if (::sched_getaffinity(0, bytes, mask.data()) == 0) {
            std::vector<int> cpus;
            for (std::size_t cpu = 0; cpu < count; ++cpu) {
                if (CPU_ISSET_S(cpu, bytes, mask.data())) {
                    cpus.push_back(static_cast<int>(cpu));
                }
            }
            return cpus;
        }
        if (errno != EINVAL) {
            break;
        }
    }
    return system_failure("sched_getaffinity", errno);
}

}  // namespace regroup::agent
