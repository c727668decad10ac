// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/snapshot.h>
#include <regroup/tensor_view.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/snapshot/image.h"

namespace regroup::snapshot {

/// One thing that a rank has added: a tensor, or a state that becomes bytes when it is saved.
struct Entry {
    TensorEntry tensor{};  ///< Of bytes, only the name. Places and hashes are not used.
    void* data = nullptr;
    Device device{};
    std::function<std::string()> save{};           ///< Of bytes only.
    std::function<void(std::string_view)> load{};  ///< Of bytes only; may be empty.

    [[nodiscard]] bool is_bytes() const noexcept { return save != nullptr; }
};

/// The name of the type in safetensors.
[[nodiscard]] std::string_view dtype_name(DType dtype) noexcept;

/// The whole tensor that the view is, as one dimension, or the piece of another one.
[[nodiscard]] Entry entry_of(std::string name, const TensorView& view);
/// Throws Error `invalid_argument` if the piece has another number of elements than the view.
[[nodiscard]] Entry entry_of(std::string name, const TensorView& view, TensorPiece piece);

/// The tensor of which an entry is a piece. Further pieces of a tensor NAME in the same part are
/// called NAME#1, NAME#2, and so on.
[[nodiscard]] std::string_view tensor_name(std::string_view entry_name) noexcept;

/// The entries that a rank has added, in order.
class Entries {
   public:
    /// Throws Error `invalid_argument`, naming it, for a name that is there already, a piece that
    /// is not within its tensor, or a further piece without the first one.
    void add(Entry entry);
    void clear() noexcept;

    [[nodiscard]] const std::vector<Entry>& all() const noexcept { return all_; }
    /// Changes with each change.
    [[nodiscard]] std::uint64_t edition() const noexcept { return edition_; }

   private:
    [[nodiscard]] const Entry* find(std::string_view name) const noexcept;

    std::vector<Entry> all_;
    std::uint64_t edition_ = 0;
};

}  // namespace regroup::snapshot
