// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/image.h"
#include "worker_sdk/src/snapshot/boxes.h"
#include "worker_sdk/src/snapshot/copy_pool.h"
#include "worker_sdk/src/snapshot/entries.h"
#include "worker_sdk/src/snapshot/keeper.h"

namespace regroup::snapshot {

/// One version, from which this rank reads what it needs. It gets each part, or some tensors of it,
/// when they are first needed, from the first source that has them undamaged. One thread.
class OpenedVersion {
   public:
    struct Reader {
        std::string name;  ///< Of the state.
        std::uint32_t node = 0;
        std::uint32_t rank = 0;
        std::uint32_t world_size = 1;
        unsigned threads = 1;
    };
    /// `keeper` outlives this. `report` gets a sentence about each source that is damaged or has
    /// nothing.
    OpenedVersion(Keeper& keeper, Candidate candidate, std::vector<Announcement> announcements,
                  Reader reader, std::function<void(const std::string&)> report);

    [[nodiscard]] const Version& version() const noexcept { return candidate_.version; }
    [[nodiscard]] std::uint32_t parts() const noexcept { return candidate_.parts; }

    /// Gets and verifies the parts that fall to this rank: together, the ranks verify all parts.
    /// Errors: `overloaded`, naming the part that no source has undamaged; `disconnected` if one of
    /// the sources cannot be reached.
    [[nodiscard]] Result<void> verify_share();
    /// The image of a part, verified. Valid while this object lives. Errors likewise.
    [[nodiscard]] Result<std::span<const std::byte>> image(std::uint32_t part);
    /// Where that image came from, if it was fetched from the memory of another node.
    [[nodiscard]] std::optional<Keeper::Wanted> fetched(std::uint32_t part) const;
    /// Gets and verifies everything from which `entry` is read. Errors: the same, or
    /// `invalid_argument`: not all of it was saved, or it was saved with another type or shape.
    [[nodiscard]] Result<void> prepare(const Entry& entry);
    /// The bytes of a state that is no tensor: those of the first part that falls to this rank (its
    /// own, if the number of ranks is the same), if it has some, else those of the lowest part that
    /// has some. Valid while this object lives. Errors likewise.
    [[nodiscard]] Result<std::span<const std::byte>> bytes(const std::string& name);
    /// Copies the tensor of the entry to its place. Errors likewise; `system` if a GPU fails.
    [[nodiscard]] Result<void> read(const Entry& entry, CopyPool& pool);

   private:
    struct Part {
        std::optional<ImageHeader> header{};
        /// Of the header, the pieces of each tensor.
        std::map<std::string_view, std::vector<const TensorEntry*>> tensors{};
        std::size_t source = 0;            ///< Of the header.
        std::optional<HeldImage> image{};  ///< Verified.
        Keeper::Wanted wanted{};           ///< Of the image.
        /// Of tensors that were got alone, by their names in the header; verified.
        std::map<std::string, HeldImage, std::less<>> alone{};
        std::uint64_t cost = 0;  ///< Of getting them, in bytes.
        std::set<std::size_t> bad_sources{};
        std::set<std::size_t> unreachable{};  ///< Of these, those that may have it.
    };
    /// A piece of the wanted box, and the part that has it.
    struct Take {
        std::uint32_t part = 0;
        const TensorEntry* from = nullptr;
        Box box{};
    };
    /// The part of an image that is needed: all of it, or a tensor of that name in the header, or,
    /// with neither, the header.
    struct Need {
        bool image = false;
        std::string tensor{};
    };
    [[nodiscard]] static bool has(const Part& part, const Need& need);
    [[nodiscard]] Result<void> open(std::uint32_t part, const Need& need);
    [[nodiscard]] Result<Keeper::Wanted> question_to(const Source& source,
                                                     std::uint32_t part) const;
    [[nodiscard]] Result<void> open_from(std::size_t source, Keeper::Wanted wanted,
                                         const Need& need, Part& opened);
    [[nodiscard]] Result<HeldImage> image_from(const Keeper::Wanted& wanted);
    [[nodiscard]] Result<ImageHeader> header_from(Keeper::Wanted wanted);
    [[nodiscard]] Result<void> set_header(Part& opened, std::size_t source,
                                          Result<ImageHeader> read);
    /// Gets the tensor, alone or with the whole image. The header may then be another one.
    [[nodiscard]] Result<void> get(std::uint32_t part, const TensorEntry& entry);
    /// Of a tensor that is there.
    [[nodiscard]] std::span<const std::byte> data(std::uint32_t part,
                                                  const TensorEntry& entry) const;
    /// Takes what a part has of the missing boxes. `found`: about another tensor of that name.
    void take(std::uint32_t part, const TensorEntry& wanted, std::vector<Box>& missing,
              std::vector<Take>& takes, std::string& found);
    [[nodiscard]] Result<std::vector<Take>> plan(const TensorEntry& wanted);
    [[nodiscard]] Result<std::vector<Take>> plan_verified(const TensorEntry& wanted);
    /// The first part that falls to this rank.
    [[nodiscard]] std::uint32_t first_part() const noexcept;
    [[nodiscard]] std::string place_of(std::uint32_t part, const Source& source) const;

    Keeper& keeper_;
    const Candidate candidate_;
    const std::vector<Announcement> announcements_;
    const Reader reader_;
    const std::function<void(const std::string&)> report_;
    std::map<std::uint32_t, Part> parts_;
};

}  // namespace regroup::snapshot
