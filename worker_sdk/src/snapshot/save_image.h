// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/snapshot/image.h"
#include "rendezvous/snapshot/version.h"
#include "worker_sdk/src/snapshot/copy_pool.h"
#include "worker_sdk/src/snapshot/entries.h"

namespace regroup::snapshot {

/// The source of an image's tensors: the entries, and the bytes of those that are no tensor, by
/// their place among the entries.
struct ImageContent {
    const std::vector<Entry>& entries;
    const std::vector<std::string>& bytes;
};

/// The layout of an image of that content. Throws Error `invalid_argument`.
[[nodiscard]] ImageLayout layout_of(const PartId& id, const ImageContent& content);

/// Writes the image: copies and hashes the tensors in one pass, on the threads of the pool, and
/// then writes the header. Throws Error if a GPU fails.
void save_image(const ImageLayout& layout, const Version& version, const ImageContent& content,
                std::span<std::byte> slot, CopyPool& pool);

}  // namespace regroup::snapshot
