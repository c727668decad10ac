// SPDX-License-Identifier: Apache-2.0
//
// The whole state in a checkpoint.
#include <regroup/error.h>

#include <string>
#include <utility>

#include "worker_sdk/src/optim/sharded_optimizer_impl.h"
#include "worker_sdk/src/optim/tensor_checks.h"

namespace regroup {

using optim::entry;
using optim::Loaded;
using optim::Piece;
using optim::Range;
using optim::require;

void ShardedOptimizer::save(Checkpoint& checkpoint, std::string_view prefix,
                            std::uint32_t root) const {
    ProcessGroup& group = optim::joined(*impl_);
    optim::confirm_last_step(*impl_, true);
    require(!impl_->changed && !impl_->lost,
            "save() while a step is prepared or has failed: call apply() first");
    const bool is_root = group.rank() == root;
    const Piece mine = impl_->shards.front().piece();
    for (std::size_t m = 0; m < impl_->moment_count; ++m) {
        std::vector<float> whole(is_root ? impl_->layout.total() : 0);
        Buffer memory;
        for (std::uint32_t rank = 0; rank < impl_->own.size(); ++rank) {
            const Range& range = impl_->own[rank];
            TensorView part = mine.moments[m];
            if (range.count() == 0) {
                continue;
            }
            if (is_root && rank != root) {
                part = impl_->allocate(range.count(), DType::float32, memory);
                group.recv(part, rank).wait();
            } else if (rank != root && rank == group.rank()) {
                group.send(part, root).wait();
            }
            if (is_root) {
                const TensorView host{std::span<float>(whole)};
                cuda::copy(host.part(range.first, range.count()), part);
            }
        }
        if (is_root) {
            checkpoint.set_tensor(entry(prefix, "moment" + std::to_string(m + 1)),
                                  std::span<const float>(whole));
        }
    }
    if (is_root) {
        checkpoint.set_integer(entry(prefix, "step_count"), step_count());
        checkpoint.set_number(entry(prefix, "learning_rate"), impl_->learning_rate);
        checkpoint.set_integer(entry(prefix, "version"), impl_->version);
    }
    group.barrier().wait();
}

void ShardedOptimizer::load(const Checkpoint& checkpoint, std::string_view prefix) {
    Loaded loaded;
    loaded.step_count = checkpoint.integer(entry(prefix, "step_count"));
    const double learning_rate = checkpoint.number(entry(prefix, "learning_rate"));
    const std::string version = entry(prefix, "version");
    loaded.version = checkpoint.contains(version) ? checkpoint.integer(version) : loaded.step_count;
    loaded.moments.resize(impl_->moment_count);
    for (std::size_t m = 0; m < loaded.moments.size(); ++m) {
        loaded.moments[m].resize(impl_->layout.total());
        checkpoint.read_tensor(entry(prefix, "moment" + std::to_string(m + 1)),
                               std::span<float>(loaded.moments[m]));
    }
    impl_->shards.clear();
    impl_->former.clear();
    impl_->group = nullptr;
    impl_->changed = impl_->staged = impl_->lost = false;
    impl_->last_gather = {};
    impl_->version = loaded.version;
    impl_->learning_rate = learning_rate;
    impl_->loaded = std::move(loaded);
    impl_->holds = true;
}

}  // namespace regroup
