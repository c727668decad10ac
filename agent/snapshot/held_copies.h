// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/snapshot/image_memory.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::agent {

/// The versions of a state that an agent has heard of.
struct KnownVersions {
    std::optional<snapshot::Version> whole{};  ///< The latest that every rank has saved.
    std::optional<snapshot::Version> kept{};   ///< The latest of which each part is copied, too.
    /// Workers of `told_in` have said that these are whole: nothing else of earlier rounds can
    /// ever be loaded again.
    std::set<snapshot::Version> loadable{};
    std::uint64_t told_in = 0;  ///< A round.
};

/// Memory that somebody else owns, as long as it does.
class LentImages {
   public:
    void add(const std::shared_ptr<ImageMemory>& image);
    void remove(const std::shared_ptr<ImageMemory>& image);
    [[nodiscard]] std::uint64_t bytes() const;

   private:
    std::vector<std::weak_ptr<ImageMemory>> images_;
};

/// The copies of other nodes' parts that this node holds: two versions of each at most. The memory
/// of one that was given up serves for the next copy of its part, since the kernel needs as long
/// for new memory as a fast network for the copy. One thread at a time.
class HeldCopies {
   public:
    struct Copy {
        snapshot::Version version;
        std::shared_ptr<ImageMemory> image;
        std::uint64_t round = 0;  ///< In which it came.
        bool is_lent = false;     ///< A worker may read it.
    };

    /// Gives up the memory that waits for its next use.
    void forget_spares() { spares_.clear(); }

    /// Makes place for a copy. False: it is here. Errors: overloaded, if both copies of the part
    /// are still needed.
    Result<bool> make_place(const snapshot::PartId& id, const snapshot::Version& version,
                            const KnownVersions& known);
    /// The memory for it, of a copy that was given up; null if there is none.
    std::shared_ptr<ImageMemory> take_spare(const snapshot::PartId& id, std::uint64_t bytes);
    /// Counts memory that a copy comes into.
    void begin(const std::shared_ptr<ImageMemory>& image) { incoming_.add(image); }
    void cancel(const std::shared_ptr<ImageMemory>& image) { incoming_.remove(image); }
    void keep(const snapshot::PartId& id, const snapshot::Version& version,
              std::shared_ptr<ImageMemory> image, std::uint64_t round, const KnownVersions& known);

    /// Gives up what `kept` replaces. `id` has the number of its parts.
    void drop(const snapshot::PartId& id, const snapshot::Version& kept, std::uint64_t round);

    /// Null if it is not here.
    [[nodiscard]] const Copy* find(const snapshot::PartId& id,
                                   const snapshot::Version& version) const;
    void lend(const snapshot::PartId& id, const snapshot::Version& version);
    [[nodiscard]] const std::map<snapshot::PartId, std::vector<Copy>>& all() const noexcept {
        return copies_;
    }
    /// Of copies that came in `round` or later, of those that are coming, and of spares.
    [[nodiscard]] std::uint64_t bytes(std::uint64_t round = 0) const;

   private:
    static constexpr std::size_t kCopiesOfPartMax = 2;

    void give_up(const snapshot::PartId& id, std::vector<Copy>& held,
                 const std::optional<snapshot::Version>& kept);

    std::map<snapshot::PartId, std::vector<Copy>> copies_;  ///< The latest last.
    std::map<snapshot::PartId, std::shared_ptr<ImageMemory>> spares_;
    LentImages incoming_;
};

}  // namespace regroup::agent
