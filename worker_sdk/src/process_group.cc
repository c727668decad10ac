// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <array>

#include "worker_sdk/src/cpu/group_formation.h"

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
};

[[noreturn]] void refuse(std::string_view name) {
    const std::string quoted = "\"" + std::string(name) + "\"";
    if (name == "nccl" || name == "mpi") {
        throw Error(Errc::invalid_argument,
                    "this build of regroup has no " + quoted +
                        " back end; use \"cpu\" for buffers in host memory");
    }
    throw Error(Errc::invalid_argument,
                quoted + " is no back end; there is \"cpu\" (also spelt \"gloo\")");
}

}  // namespace

std::string_view to_string(ReduceOp op) noexcept {
    switch (op) {
        case ReduceOp::sum:
            return "sum";
        case ReduceOp::product:
            return "product";
        case ReduceOp::min:
            return "min";
        case ReduceOp::max:
            return "max";
        case ReduceOp::avg:
            return "avg";
    }
    return "unknown";
}

std::unique_ptr<ProcessGroup> ProcessGroup::create(std::string_view backend, const Context& context,
                                                   const ProcessGroupOptions& options) {
    for (const Backend& candidate : kBackends) {
        if (candidate.name == backend) {
            return candidate.create(context, options);
        }
    }
    refuse(backend);
}

}  // namespace regroup
