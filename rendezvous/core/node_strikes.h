// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Which nodes are set aside because rounds ended of them again and again, or because one was said
/// to be bad. By name, since a node that starts again has a new id. Pure; bounded.
class NodeStrikes {
   public:
    /// Names beyond this are not counted; the oldest are forgotten.
    static constexpr std::size_t kNamesLimit = 16384;

    struct Aside {
        std::string reason;  ///< "3 rounds ended because of it within 10 min".
        Instant until{};
        bool firm = false;  ///< Not to be taken back when nodes are few.

        friend bool operator==(const Aside&, const Aside&) = default;
    };

    /// `strikes_max` 0: strikes alone set no node aside.
    NodeStrikes(std::uint32_t strikes_max, Duration window)
        : strikes_max_(strikes_max), window_(window) {}

    /// The end of a round is charged to the node. True if that was one too many; then the caller
    /// decides whether it is set aside.
    [[nodiscard]] bool strike(const std::string& name, Instant now);
    /// Sets the node aside for `window`; its strikes begin anew after that.
    void set_aside(const std::string& name, std::string reason, Instant now, bool firm);
    /// Takes back all that is not firm. Returns the names.
    std::vector<std::string> pardon();
    /// Forgets whose time is over at `now`. Returns the names.
    std::vector<std::string> expire(Instant now);

    [[nodiscard]] bool is_aside(const std::string& name) const { return aside_.contains(name); }
    /// It is set aside, and not only as long as there are others.
    [[nodiscard]] bool is_firmly_aside(const std::string& name) const {
        const auto found = aside_.find(name);
        return found != aside_.end() && found->second.firm;
    }
    [[nodiscard]] const std::map<std::string, Aside>& aside() const noexcept { return aside_; }
    [[nodiscard]] std::string too_many() const;
    /// When `expire` is next due; Instant::max() if never.
    [[nodiscard]] Instant next_deadline() const;

   private:
    std::uint32_t strikes_max_;
    Duration window_;
    std::map<std::string, std::vector<Instant>> strikes_;  // Each at most `strikes_max_` long.
    std::map<std::string, Aside> aside_;
};

}  // namespace regroup::rendezvous
