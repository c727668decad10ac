// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <memory>

namespace regroup::cpu {

/// ProcessGroup::create for this back end. Ranks find each other through the context's store, under
///
///     pg/<name>/<round>.<restart>/incarnation/<rank>          how often the rank has come
///     pg/<name>/<round>.<restart>/<incarnation>/addr/<rank>   "<address>:<port> <token>"
///
/// The incarnation keeps groups apart that are formed one after the other under one name.
[[nodiscard]] std::unique_ptr<ProcessGroup> form_group(const Context& context,
                                                       const ProcessGroupOptions& options);

}  // namespace regroup::cpu
