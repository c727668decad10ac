// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/peers.h"

#include <cstdio>

#include "tests/bench/timed_run.h"

namespace regroup::bench {

std::optional<std::vector<std::string>> find_torchrun() {
    // Debian's torch belongs to Debian's Python, which need not be the first on the path.
    for (const std::string python : {"/usr/bin/python3", "python3"}) {
        const auto path = find_program(python);
        if (path && run_timed({*path, "-c", "import torch.distributed.run"}, "/").success) {
            return std::vector<std::string>{*path, "-m", "torch.distributed.run"};
        }
    }
    std::printf("  no Python here has torch: torchrun is left out\n");
    return std::nullopt;
}

std::vector<std::string> torchrun_flags(int nodes, int workers, int restarts, std::uint16_t port,
                                        const std::string& log_dir) {
    return {"--nnodes=" + std::to_string(nodes), "--nproc_per_node=" + std::to_string(workers),
            "--max_restarts=" + std::to_string(restarts), "--monitor_interval=0.1",
            "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:" + std::to_string(port),
            "--rdzv_id=bench",
            // Without these three Debian's version ends with an exception under its own Python.
            "--redirects=1", "--tee=1", "--log_dir=" + log_dir, "--no_python"};
}

std::optional<std::vector<std::string>> find_mpirun() {
    const auto path = find_program("mpirun");
    if (!path) {
        std::printf("  no mpirun here: it is left out\n");
        return std::nullopt;
    }
    return std::vector<std::string>{*path, "--allow-run-as-root", "--oversubscribe"};
}

}  // namespace regroup::bench
