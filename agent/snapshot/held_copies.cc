// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/held_copies.h"

#include <algorithm>
#include <utility>

#include "rendezvous/snapshot/holdings.h"

namespace regroup::agent {

using snapshot::PartId;
using snapshot::Version;

// ---- LentImages.

void LentImages::add(const std::shared_ptr<ImageMemory>& image) {
    std::erase_if(images_, [](const auto& each) { return each.expired(); });
    images_.push_back(image);
}

void LentImages::remove(const std::shared_ptr<ImageMemory>& image) {
    std::erase_if(images_, [&](const auto& each) { return each.lock() == image; });
}

std::uint64_t LentImages::bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& each : images_) {
        if (const auto image = each.lock()) {
            bytes += image->size();
        }
    }
    return bytes;
}

// ---- HeldCopies.

Result<bool> HeldCopies::make_place(const PartId& id, const Version& version,
                                    const KnownVersions& known) {
    const auto found = copies_.find(id);
    if (found == copies_.end()) {
        return true;
    }
    if (find(id, version) != nullptr) {
        return false;
    }
    std::vector<Copy>& held = found->second;
    give_up(id, held, known.kept);
    if (held.size() >= kCopiesOfPartMax) {
        std::erase_if(held, [&](const Copy& copy) {
            return copy.version.round < known.told_in && !known.loadable.contains(copy.version);
        });
    }
    if (held.size() >= kCopiesOfPartMax) {
        return Failure(Errc::overloaded, "both copies of part " + std::to_string(id.part) +
                                             " are needed until a later version is kept");
    }
    return true;
}

std::shared_ptr<ImageMemory> HeldCopies::take_spare(const PartId& id, std::uint64_t bytes) {
    auto spare = spares_.extract(id);
    return !spare.empty() && spare.mapped()->size() == bytes ? std::move(spare.mapped()) : nullptr;
}

void HeldCopies::keep(const PartId& id, const Version& version, std::shared_ptr<ImageMemory> image,
                      std::uint64_t round, const KnownVersions& known) {
    incoming_.remove(image);
    std::vector<Copy>& held = copies_[id];
    const auto place = std::find_if(held.begin(), held.end(),
                                    [&](const Copy& copy) { return copy.version >= version; });
    if (place == held.end() || place->version != version) {
        held.insert(place, {version, std::move(image), round});
    }
    give_up(id, held, known.kept);
}

void HeldCopies::give_up(const PartId& id, std::vector<Copy>& held,
                         const std::optional<Version>& kept) {
    std::vector<Version> versions;
    for (const Copy& copy : held) {
        versions.push_back(copy.version);
    }
    std::erase_if(held, [&](Copy& copy) {
        if (!snapshot::may_give_up(copy.version, versions, kept)) {
            return false;
        }
        if (!copy.is_lent && copy.image.use_count() == 1) {
            spares_[id] = std::move(copy.image);
        }
        return true;
    });
}

void HeldCopies::drop(const PartId& kept_id, const Version& kept, std::uint64_t round) {
    for (auto& [id, held] : copies_) {
        if (id.name != kept_id.name) {
            continue;
        }
        give_up(id, held, kept);
        std::erase_if(held, [&, parts = id.parts](const Copy& copy) {
            // Of another number of ranks, or this node holds the copies of other parts now.
            return copy.version < kept && (parts != kept_id.parts || copy.round < round);
        });
    }
    std::erase_if(copies_, [](const auto& each) { return each.second.empty(); });
}

const HeldCopies::Copy* HeldCopies::find(const PartId& id, const Version& version) const {
    const auto found = copies_.find(id);
    if (found == copies_.end()) {
        return nullptr;
    }
    const auto copy = std::find_if(found->second.begin(), found->second.end(),
                                   [&](const Copy& each) { return each.version == version; });
    return copy != found->second.end() ? &*copy : nullptr;
}

void HeldCopies::lend(const PartId& id, const Version& version) {
    if (const auto found = copies_.find(id); found != copies_.end()) {
        for (Copy& copy : found->second) {
            copy.is_lent = copy.is_lent || copy.version == version;
        }
    }
}

std::uint64_t HeldCopies::bytes(std::uint64_t round) const {
    std::uint64_t bytes = incoming_.bytes();
    for (const auto& [id, held] : copies_) {
        for (const Copy& copy : held) {
            bytes += copy.round >= round ? copy.image->size() : 0;
        }
    }
    for (const auto& [id, spare] : spares_) {
        bytes += spare->size();
    }
    return bytes;
}

}  // namespace regroup::agent
