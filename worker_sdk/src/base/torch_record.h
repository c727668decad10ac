// SPDX-License-Identifier: Apache-2.0
// The flight recorders of PyTorch, if the program uses it.
#pragma once

#include <string>
#include <vector>

namespace regroup {

struct TorchRecord {
    std::string backend;  ///< "gloo", "nccl"
    std::string json;
};

/// The records of this process's PyTorch that have entries. PyTorch must be loaded already, in
/// release 2.14 or 2.15: the functions of other releases have other names, and give nothing here.
///
/// Calls PyTorch's functions for C++, since they need no interpreter. The program may hang with the
/// lock of the interpreter held. Any thread; waits for no operation.
[[nodiscard]] std::vector<TorchRecord> torch_records();

}  // namespace regroup
