// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "rendezvous/base/clock.h"

namespace regroup::rendezvous {

/// How long a text serves others that took `cost` to render. One that takes long to render is
/// rendered less often.
[[nodiscard]] Duration freshness(Duration cost) noexcept;

/// Texts that are rendered once for all who ask within a short time, and are in memory once however
/// many clients still read them. Rendering takes about a twentieth of the time at most. Pure, apart
/// from the clock; one owner, one thread.
class SharedTexts {
   public:
    using Text = std::shared_ptr<const std::string>;
    using Render = std::function<std::string()>;

    /// Texts of at most `bytes_max` are kept for others. `clock` outlives it.
    SharedTexts(const Clock& clock, std::size_t bytes_max) : clock_(clock), bytes_max_(bytes_max) {}

    /// The text that `render` makes, or the one it made less than 250 ms ago for the same `key`; a
    /// text that takes long to render is kept for longer, up to 5 s.
    Text get(const std::string& key, const Render& render);
    /// The text that `render` makes now, which others may get from get(); that of get() when
    /// renewals have taken more than a twentieth of the time of late.
    Text renew(const std::string& key, const Render& render);

   private:
    struct Entry {
        Text text;
        Instant until{};  ///< It is rendered again after this.
    };

    Text make(const std::string& key, const Render& render);
    void forget(Instant now);

    const Clock& clock_;
    const std::size_t bytes_max_;
    std::map<std::string, Entry> entries_;
    std::size_t bytes_ = 0;               ///< Of the entries.
    Instant renewable_ = Instant::min();  ///< A text may be renewed from then on.
};

}  // namespace regroup::rendezvous
