// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <functional>
#include <string>

namespace regroup::gpu {

/// Runs `body` and prints a line of the table: "pass", or "FAIL" with the error if it throws.
/// Returns whether it passed. Rank 0 prints passes, every rank its failures.
bool report(const Context& context, const std::string& name, const std::function<void()>& body);

/// Throws an Error saying `what` if `holds` is false.
void require(bool holds, const std::string& what);

// The sessions of two ranks. Each returns true if all checks of this rank passed.
bool check_collectives(const Context& context);
bool check_operations(const Context& context);
bool check_graph(const Context& context);
bool check_data_parallel(const Context& context);
bool check_abort(const Context& context);
bool check_kill(const Context& context);
bool check_deadline(const Context& context);

}  // namespace regroup::gpu
