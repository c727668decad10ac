// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace regroup {

/// The live sub-groups of a group, which are aborted with it. Shared by the group and its
/// sub-groups, which may be destroyed in any order. Any thread.
class Descendants {
   public:
    void abort_all(std::string_view reason) noexcept {
        const std::lock_guard lock(mutex_);
        if (!aborted_) {
            aborted_ = std::string(reason);
            for (ProcessGroup* const group : groups_) {
                group->abort(reason);
            }
        }
    }
    /// Aborts `group` at once if the parent is aborted already.
    void add(ProcessGroup& group) {
        const std::lock_guard lock(mutex_);
        groups_.insert(&group);
        if (aborted_) {
            group.abort(*aborted_);
        }
    }
    void remove(ProcessGroup& group) noexcept {
        const std::lock_guard lock(mutex_);
        groups_.erase(&group);
    }

   private:
    std::mutex mutex_;
    std::set<ProcessGroup*> groups_;      // guarded by mutex_
    std::optional<std::string> aborted_;  // guarded by mutex_; the reason
};

/// A sub-group's place among the descendants of its parent, left when this is destroyed: before
/// anything that abort() touches.
class SubgroupRegistration {
   public:
    SubgroupRegistration() = default;
    ~SubgroupRegistration() { leave(); }
    SubgroupRegistration(const SubgroupRegistration&) = delete;
    SubgroupRegistration& operator=(const SubgroupRegistration&) = delete;

    void join(std::shared_ptr<Descendants> siblings, ProcessGroup& group) {
        siblings_ = std::move(siblings);
        group_ = &group;
        siblings_->add(group);
    }
    void leave() noexcept {
        if (siblings_) {
            siblings_->remove(*group_);
            siblings_.reset();
        }
    }

   private:
    std::shared_ptr<Descendants> siblings_;
    ProcessGroup* group_ = nullptr;
};

}  // namespace regroup
