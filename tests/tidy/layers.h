// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace regroup::tidy {

/// A part of the tree, and the includes that its files may have besides their own part. Every part
/// except the public headers may also include the standard library and `rendezvous/base`.
struct Layer {
    std::vector<std::string> places;  ///< Folders, or files without their suffix.
    std::string content{};
    /// Other places, or names of libraries.
    std::vector<std::string> uses{};
    /// The standard library without threads, locks, random numbers, unordered containers, streams
    /// and files.
    bool pure = false;
    std::string never{};  ///< A prohibition that includes cannot show.
};

/// All layers. The first one that matches a file is its layer.
[[nodiscard]] const std::vector<Layer>& layers();
/// The layer of a file; null if there is none.
[[nodiscard]] const Layer* layer_of(const std::string& path);
/// Whether a file of `layer` may include `include`, given with its brackets or quotation marks.
[[nodiscard]] bool may_include(const Layer& layer, const std::string& include);
/// The layers as a table in Markdown, as docs/design.md shows it.
[[nodiscard]] std::string layer_table();

}  // namespace regroup::tidy
