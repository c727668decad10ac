// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/group/owned_group.h"

#include <utility>

#include "worker_sdk/src/base/learned_orders.h"
#include "worker_sdk/src/group/request.h"

namespace regroup {

std::unique_ptr<ProcessGroup> OwnedGroup::new_group(const std::vector<std::uint32_t>& ranks,
                                                    std::string_view name) {
    mark_.require("new_group");
    auto part = std::make_unique<OwnedGroup>(group_->new_group(ranks, name));
    GroupOrders::attach(*part, GroupOrders::of(*this));
    return part;
}

Buffer OwnedGroup::allocate(std::size_t bytes) {
    mark_.require("allocate");
    Buffer buffer = group_->allocate(bytes);
    if (buffer.owner) {
        buffer.owner = std::shared_ptr<void>(new std::shared_ptr<void>(std::move(buffer.owner)),
                                             OwnerDeleter());
    }
    return buffer;
}

void OwnedGroup::use_stream(Stream stream) {
    mark_.require("use_stream");
    group_->use_stream(stream);
}

std::optional<Stream> OwnedGroup::current_stream() const {
    mark_.require("current_stream");
    return group_->current_stream();
}

void OwnedGroup::use_own_stream() {
    mark_.require("use_own_stream");
    group_->use_own_stream();
}

void OwnedGroup::abort(std::string_view reason) noexcept {
    if (mark_.is_here()) {
        group_->abort(reason);
    }
}

const ProcessGroup& OwnedGroup::within(const ProcessGroup& group) noexcept {
    const auto* const owned = dynamic_cast<const OwnedGroup*>(&group);
    return owned != nullptr ? *owned->group_ : group;
}

Work OwnedGroup::issue(const OperationRequest& request) {
    mark_.require(name_of(request.kind));
    return group_->issue(request);
}

void OwnedGroup::begin_batch() {
    mark_.require("a batch of operations");
    group_->begin_batch();
}

void OwnedGroup::end_batch() {
    mark_.require("a batch of operations");
    group_->end_batch();
}

}  // namespace regroup
