// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/snapshot.h>

#include <memory>
#include <utility>

#include "worker_sdk/src/snapshot/rank_snapshot.h"

namespace regroup {

struct Snapshot::Impl {
    std::shared_ptr<snapshot::RankSnapshot> rank;
};

Snapshot::Snapshot(const Context& context, SnapshotOptions options)
    : impl_(new Impl{snapshot::make_rank_snapshot(context, std::move(options))}) {}

Snapshot::~Snapshot() = default;

void Snapshot::add(std::string name, TensorView tensor) {
    impl_->rank->add(snapshot::entry_of(std::move(name), tensor));
}

void Snapshot::add(std::string name, TensorView tensor, TensorPiece piece) {
    impl_->rank->add(snapshot::entry_of(std::move(name), tensor, std::move(piece)));
}

void Snapshot::add(std::string name, std::function<std::string()> save,
                   std::function<void(std::string_view)> load) {
    if (!save || !load) {
        throw Error(Errc::invalid_argument,
                    "\"" + name + "\" needs a function that saves and one that loads");
    }
    snapshot::Entry entry;
    entry.tensor.name = std::move(name);
    entry.save = std::move(save);
    entry.load = std::move(load);
    impl_->rank->add(std::move(entry));
}

void Snapshot::clear() noexcept {
    impl_->rank->clear();
}

std::optional<std::uint64_t> Snapshot::load() {
    return impl_->rank->load();
}

bool Snapshot::save(std::uint64_t step) {
    return impl_->rank->save(step);
}

std::optional<std::uint64_t> Snapshot::whole_step() const {
    return impl_->rank->whole_step();
}

std::optional<std::uint64_t> Snapshot::kept_step() const {
    return impl_->rank->kept_step();
}

bool Snapshot::wait_until_whole(std::chrono::nanoseconds limit) const {
    return impl_->rank->wait(snapshot::RankSnapshot::Until::whole, limit);
}

bool Snapshot::wait_until_kept(std::chrono::nanoseconds limit) const {
    return impl_->rank->wait(snapshot::RankSnapshot::Until::kept, limit);
}

}  // namespace regroup
