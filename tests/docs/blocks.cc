// SPDX-License-Identifier: Apache-2.0
#include "tests/docs/blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

namespace regroup::docs {
namespace {

constexpr std::size_t kCodeIndent = 4;

/// Languages with the words that may follow them.
const std::map<std::string, std::set<std::string>>& languages() {
    static const std::map<std::string, std::set<std::string>> table = {
        {"cpp", {"callbacks"}},  // Members of ElasticCallbacks, not statements.
        {"c", {}},
        {"cmake", {}},
        {"sh", {"elsewhere"}},  // Not in the root of this tree: another project's make.
        {"console", {"elsewhere"}},
        {"text", {}},
        {"python", {}},
        {"json", {}},
        {"yaml", {}},
        {"ini", {}},
    };
    return table;
}

/// Returns the text after a prompt such as "$ " or "node0$ ".
std::optional<std::string> behind_prompt(const std::string& line) {
    static const std::regex prompt("[A-Za-z0-9_.@:~-]*\\$ (.*)");
    std::smatch match;
    return std::regex_match(line, match, prompt) ? std::optional(match[1].str()) : std::nullopt;
}

std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

std::size_t indentation(const std::string& line) {
    return std::min(line.find_first_not_of(' '), line.size());
}

}  // namespace

std::string Block::where(std::size_t offset) const {
    return page + ":" + std::to_string(line + offset) + ": ";
}

bool Block::has(std::string_view word) const {
    return std::ranges::find(words, word) != words.end();
}

std::string Block::padded() const {
    return std::string(line - 1, '\n') + text;
}

Blocks blocks_of_page(const std::string& page, const std::string& text) {
    Blocks result;
    std::optional<Block> open;
    std::size_t fence_indent = 0;
    bool after_blank = true;
    bool in_list = false;
    std::size_t number = 0;
    for (const std::string& line : split_lines(text)) {
        ++number;
        const std::size_t indent = indentation(line);
        const std::string rest = line.substr(indent);
        if (open) {
            if (rest == "```") {
                result.blocks.push_back(std::move(*open));
                open.reset();
            } else {
                open->text += line.substr(std::min(indent, fence_indent)) + "\n";
            }
            continue;
        }
        const std::string place = page + ":" + std::to_string(number) + ": ";
        if (rest.starts_with("```")) {
            open = Block{page, number + 1, "", {}, ""};
            fence_indent = indent;
            std::istringstream info(rest.substr(3));
            info >> open->language;
            for (std::string word; info >> word;) {
                open->words.push_back(word);
            }
        } else if (rest.starts_with("~~~") || rest.starts_with("<pre")) {
            result.findings.push_back(place + "write a code block between lines of ```");
        } else if (!rest.empty()) {
            static const std::regex item("([-*+]|[0-9]+[.)]) .*");
            const bool is_item = std::regex_match(rest, item);
            in_list = is_item || (in_list && indent > 0) || (in_list && !after_blank);
            if (indent >= kCodeIndent && after_blank && !in_list) {
                result.findings.push_back(place +
                                          "an indented code block: write it between lines of ```");
            }
        }
        after_blank = rest.empty();
    }
    if (open) {
        result.findings.push_back(open->where() + "the code block has no end");
    }
    return result;
}

Blocks blocks_of_header(const std::string& page, const std::string& text) {
    const bool is_c = page.find("/c_api") != page.npos;
    const std::regex comment(" *///?(.*)");
    const std::string code_start(kCodeIndent + 1, ' ');
    Blocks result;
    std::optional<Block> open;
    std::string blanks;
    const auto close = [&] {
        if (open) {
            result.blocks.push_back(std::move(*open));
        }
        open.reset();
        blanks.clear();
    };
    std::size_t number = 0;
    for (const std::string& line : split_lines(text)) {
        ++number;
        std::smatch match;
        if (!std::regex_match(line, match, comment)) {
            close();
            continue;
        }
        const std::string body = match[1];
        if (body.starts_with(code_start)) {
            if (!open) {
                open = Block{page, number, is_c ? "c" : "cpp", {}, ""};
            }
            open->text += blanks + body.substr(code_start.size()) + "\n";
            blanks.clear();
        } else if (body.empty() && open) {
            blanks += "\n";
        } else {
            close();
        }
    }
    close();
    return result;
}

std::vector<std::string> check_fences(const std::vector<Block>& blocks) {
    std::vector<std::string> findings;
    for (const Block& block : blocks) {
        const auto known = languages().find(block.language);
        if (known == languages().end()) {
            std::string names;
            for (const auto& [name, words] : languages()) {
                names += (names.empty() ? "" : ", ") + name;
            }
            findings.push_back(block.where() +
                               (block.language.empty()
                                    ? std::string("the code block has no language")
                                    : "no check knows the language '" + block.language + "'") +
                               "; those known: " + names);
            continue;
        }
        for (const std::string& word : block.words) {
            if (!known->second.contains(word)) {
                findings.push_back(block.where() + "no check knows the word '" + word +
                                   "' behind " + block.language);
            }
        }
        const std::vector<std::string> lines = split_lines(block.text);
        const auto is_command = [](const std::string& line) { return behind_prompt(line); };
        const auto command = std::ranges::find_if(
            lines, [&](const std::string& line) { return is_command(line).has_value(); });
        const auto offset = static_cast<std::size_t>(command - lines.begin());
        if (block.language == "console" && command == lines.end()) {
            findings.push_back(block.where() +
                               "a console block has commands behind '$ '; mere output is text");
        }
        if ((block.language == "text" || block.language == "sh") && command != lines.end()) {
            findings.push_back(block.where(offset) + "a block with a prompt is console, not " +
                               block.language);
        }
    }
    return findings;
}

std::string commands_of_console(const std::string& text) {
    std::string script;
    bool goes_on = false;
    for (const std::string& line : split_lines(text)) {
        const std::optional<std::string> command =
            goes_on ? std::optional(line) : behind_prompt(line);
        goes_on = command && command->ends_with('\\');
        script += command.value_or("") + "\n";
    }
    return script;
}

}  // namespace regroup::docs
