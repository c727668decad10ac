// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::docs {

/// One code block of a page, or one code example of a header's comments.
struct Block {
    /// "docs/start.md:12: ", the beginning of a finding. `offset`: lines behind the first one.
    [[nodiscard]] std::string where(std::size_t offset = 0) const;
    /// True if the fence has this word after its language.
    [[nodiscard]] bool has(std::string_view word) const;
    /// `text` behind so many empty lines that tools number its lines as the page does.
    [[nodiscard]] std::string padded() const;

    std::string page;                ///< From the root of the tree.
    std::size_t line = 0;            ///< Number of the first line of `text`.
    std::string language;            ///< The first word of the fence; empty if there is none.
    std::vector<std::string> words;  ///< The other words of the fence.
    std::string text;                ///< Without the indentation of the fence.
};

/// Blocks of one file, and sentences about what cannot be read as a block.
struct Blocks {
    std::vector<Block> blocks;
    std::vector<std::string> findings;
};

/// The fenced blocks of a Markdown page. Findings: an open fence, a block without a fence.
[[nodiscard]] Blocks blocks_of_page(const std::string& page, const std::string& text);

/// The examples in the comments of a header: lines with five blanks or more after the slashes.
[[nodiscard]] Blocks blocks_of_header(const std::string& page, const std::string& text);

/// Findings about the fences: languages and words that no check knows, commands in a block of
/// output, a console without a command.
[[nodiscard]] std::vector<std::string> check_fences(const std::vector<Block>& blocks);

/// The commands of a `console` block, behind their prompts. Lines of output become empty lines, so
/// that line numbers stay.
[[nodiscard]] std::string commands_of_console(const std::string& text);

}  // namespace regroup::docs
