// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::tidy {

/// One text file of the tree.
struct SourceFile {
    SourceFile(std::string path_in, std::string text_in);

    /// True for .h and .cc files.
    [[nodiscard]] bool is_cpp() const;

    /// From the root of the tree, with forward slashes.
    std::string path;
    std::string text;
    /// For C++, `text` with comments and the contents of literals blanked; same length, same lines.
    /// For other files, `text`.
    std::string code;
};

/// A position in a file and the problem there.
struct Finding {
    std::size_t at;
    std::string what;
};

/// One `#include` line; `name` with its quotes or angle brackets.
struct Include {
    std::size_t at;
    std::string name;
};

/// Whether the regular expression `pattern` matches all of `text`.
[[nodiscard]] bool matches(const std::string& text, const std::string& pattern);

/// The number of the line that holds `at`, from 1.
[[nodiscard]] std::size_t line_of(std::string_view text, std::size_t at);

/// Positions of `word` in `text`, except as a part of a longer identifier.
[[nodiscard]] std::vector<std::size_t> find_word(std::string_view text, std::string_view word);

[[nodiscard]] std::vector<Include> find_includes(const SourceFile& file);

/// Statements that g++ 12 compiles wrongly: those with a `co_await` and, in the same statement, a
/// brace (an aggregate or a lambda) or a `?` before it. Reads `SourceFile::code`.
[[nodiscard]] std::vector<Finding> find_unsafe_awaits(std::string_view code);

/// Coroutine lambdas with captures: a capture ends with the lambda, and the coroutine may outlive
/// it. Reads `SourceFile::code`.
[[nodiscard]] std::vector<Finding> find_capturing_coroutines(std::string_view code);

/// Functions of more than `lines_max` lines, as far as indentation shows them.
[[nodiscard]] std::vector<Finding> find_long_functions(std::string_view code,
                                                       std::size_t lines_max);

/// Classes with more than `members_max` functions and data, as far as indentation shows them.
[[nodiscard]] std::vector<Finding> find_wide_classes(std::string_view code,
                                                     std::size_t members_max);

}  // namespace regroup::tidy
