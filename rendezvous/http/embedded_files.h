// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace regroup::http {

/// A file that is part of this program. The build makes their definitions: see assets.cmake.
struct EmbeddedFile {
    const char* path;  ///< "/index.html".
    const unsigned char* bytes;
    std::size_t size;
};
[[nodiscard]] std::span<const EmbeddedFile> embedded_files();

}  // namespace regroup::http
