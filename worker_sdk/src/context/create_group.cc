// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/cpu/group_formation.h"
#include "worker_sdk/src/group/owned_group.h"
#include "worker_sdk/src/nccl/form_group.h"

namespace regroup {
namespace {

using Factory = std::unique_ptr<ProcessGroup> (*)(const Context&, const ProcessGroupOptions&);

struct Backend {
    std::string_view name;
    Factory create;
};

constexpr std::array kBackends = {
    Backend{"cpu", cpu::form_group},
    Backend{"gloo", cpu::form_group},
    Backend{"nccl", nccl::form_group},
};

[[noreturn]] void refuse_backend(std::string_view name) {
    const std::string quoted = "\"" + std::string(name) + "\"";
    if (name == "mpi") {
        throw Error(Errc::invalid_argument,
                    "there is no \"mpi\" back end, because none is needed: under mpirun, mpiexec "
                    "or srun, \"cpu\" and \"nccl\" find rank and size by themselves, and programs "
                    "that call MPI can be linked with regroup::mpi (docs/collectives.md)");
    }
    throw Error(Errc::invalid_argument,
                quoted +
                    " is no back end; there is \"cpu\" (also spelt \"gloo\") for buffers in "
                    "host memory, and \"nccl\" for buffers on GPUs");
}

/// A group that did not form because of another rank.
void note_fault(const Context& context, const Error& error) noexcept {
    const std::shared_ptr<RoundScope>& scope = ContextScope::of(context);
    if (error.code() == Errc::deadline_exceeded) {
        scope->note_peer_fault(RoundScope::PeerFault::awaited);
    } else if (error.code() == Errc::disconnected) {
        scope->note_peer_fault(RoundScope::PeerFault::lost);
    }
}

void check_rank(const Context& context) {
    if (context.rank >= context.world_size) {
        throw Error(Errc::invalid_argument, "rank " + std::to_string(context.rank) +
                                                " is not below the world size " +
                                                std::to_string(context.world_size));
    }
}

/// The error with the name of the group in front of it.
Error named(const ProcessGroupOptions& options, const Error& error) {
    const std::string group = "group \"" + options.name + "\"";
    const std::string detail = error.what();
    return Error(error.code(), detail.starts_with(group) ? detail : group + ": " + detail);
}

}  // namespace

std::unique_ptr<ProcessGroup> ProcessGroup::create(std::string_view backend, const Context& context,
                                                   const ProcessGroupOptions& options) {
    for (const Backend& candidate : kBackends) {
        if (candidate.name == backend) {
            try {
                check_rank(context);
                return std::make_unique<OwnedGroup>(candidate.create(context, options));
            } catch (const Error& error) {
                note_fault(context, error);
                throw named(options, error);
            }
        }
    }
    refuse_backend(backend);
}

}  // namespace regroup
