// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <functional>
#include <string>

namespace regroup::gpu {

/// Prints a line of the table when `body` is through: "pass", or "FAIL" with why if it throws.
/// Returns whether it passed. Rank 0 prints passes, every rank its failures.
bool report(const Context& context, const std::string& name, const std::function<void()>& body);

/// Throws an Error saying `what` if `holds` is false.
void require(bool holds, const std::string& what);

// The sessions: what two ranks do together. Each returns whether this rank saw only passes.
bool check_collectives(const Context& context);
bool check_operations(const Context& context);
bool check_graph(const Context& context);
bool check_data_parallel(const Context& context);
bool check_abort(const Context& context);
bool check_kill(const Context& context);
bool check_deadline(const Context& context);

}  // namespace regroup::gpu
