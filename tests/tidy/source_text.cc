// SPDX-License-Identifier: Apache-2.0
#include "tests/tidy/source_text.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <utility>

namespace regroup::tidy {
namespace {

constexpr auto kNowhere = std::string_view::npos;

bool is_identifier(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_blank(char c) {
    return c == ' ' || c == '\n';
}

/// The last position before `end` that is not blank, or npos.
std::size_t last_mark(std::string_view code, std::size_t end) {
    while (end > 0 && is_blank(code[end - 1])) {
        --end;
    }
    return end == 0 ? kNowhere : end - 1;
}

/// The position of the closing quote of the literal that opens at `at`.
std::size_t closing_quote(std::string_view text, std::size_t at) {
    const bool raw = text[at] == '"' && at > 0 && text[at - 1] == 'R';
    if (raw) {
        const std::size_t open = text.find('(', at);
        const std::string end = ")" + std::string(text.substr(at + 1, open - at - 1)) + "\"";
        const std::size_t found = text.find(end, open);
        return found == kNowhere ? text.size() : found + end.size() - 1;
    }
    std::size_t end = at + 1;
    while (end < text.size() && text[end] != text[at] && text[end] != '\n') {
        end += text[end] == '\\' ? 2 : 1;
    }
    return end;
}

void blank(std::string& code, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < std::min(end, code.size()); ++at) {
        if (code[at] != '\n') {
            code[at] = ' ';
        }
    }
}

std::string blank_comments_and_literals(std::string_view text) {
    std::string code(text);
    std::size_t at = 0;
    while (at < text.size()) {
        std::size_t end = at + 1;
        const std::string_view rest = text.substr(at);
        const bool digit_separator = rest[0] == '\'' && at > 0 && is_identifier(text[at - 1]);
        const bool include = rest[0] == '"' && text.substr(0, at).ends_with("#include ");
        if (rest.starts_with("//")) {
            end = std::min(text.find('\n', at), text.size());
            blank(code, at, end);
        } else if (rest.starts_with("/*")) {
            end = std::min(text.find("*/", at), text.size() - 2) + 2;
            blank(code, at, end);
        } else if ((rest[0] == '"' || rest[0] == '\'') && !digit_separator) {
            const std::size_t close = closing_quote(text, at);
            if (!include) {
                blank(code, at + 1, close);
            }
            end = close + 1;
        }
        at = end;
    }
    return code;
}

/// Whether the brace at `at` opens a block, rather than the members of an aggregate.
bool opens_block(std::string_view code, std::size_t at) {
    const std::size_t before = last_mark(code, at);
    if (before == kNowhere) {
        return true;
    }
    const std::string_view head = code.substr(0, before + 1);
    const bool is_value = head.ends_with('=') || head.ends_with(',') || head.ends_with('(') ||
                          head.ends_with("return");
    return before + 1 != at && !is_value;
}

/// The position of the opening brace for the one at `close`, or 0.
std::size_t opening_brace(std::string_view code, std::size_t close) {
    int depth = 0;
    for (std::size_t at = close + 1; at-- > 0;) {
        depth += code[at] == '}' ? 1 : code[at] == '{' ? -1 : 0;
        if (depth == 0) {
            return at;
        }
    }
    return 0;
}

/// The fault between the beginning of the statement and its `co_await` at `await`; empty if none.
std::string_view fault_before(std::string_view code, std::size_t await) {
    for (std::size_t at = await; at-- > 0;) {
        switch (code[at]) {
            case '?':
                return "a ?: around a co_await";
            case ';':
                return {};
            case '{':
                return opens_block(code, at) ? "" : "an aggregate around a co_await";
            case '}': {
                const std::size_t open = opening_brace(code, at);
                if (opens_block(code, open)) {
                    return {};
                }
                at = open;
                break;
            }
            default:
                break;
        }
    }
    return {};
}

/// The fault between the `co_await` at `await` and the end of its statement; empty if none.
std::string_view fault_after(std::string_view code, std::size_t await) {
    int depth = 0;
    for (std::size_t at = await; at < code.size() && code[at] != ';'; ++at) {
        depth += code[at] == '(' ? 1 : code[at] == ')' ? -1 : 0;
        if (code[at] == '{') {
            const std::size_t before = last_mark(code, at);
            const bool body_of_condition = depth < 0 && code[before] == ')';
            return body_of_condition ? "" : "a brace in the statement of a co_await";
        }
    }
    return {};
}

}  // namespace

bool matches(const std::string& text, const std::string& pattern) {
    return std::regex_match(text, std::regex(pattern));
}

SourceFile::SourceFile(std::string path_in, std::string text_in)
    : path(std::move(path_in)), text(std::move(text_in)), code(text) {
    if (is_cpp()) {
        code = blank_comments_and_literals(text);
    }
}

bool SourceFile::is_cpp() const {
    return path.ends_with(".h") || path.ends_with(".cc");
}

std::size_t line_of(std::string_view text, std::size_t at) {
    const std::string_view before = text.substr(0, at);
    return 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
}

std::vector<std::size_t> find_word(std::string_view text, std::string_view word) {
    std::vector<std::size_t> places;
    for (std::size_t at = text.find(word); at != kNowhere; at = text.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        const bool longer_left =
            is_identifier(word.front()) && at > 0 && is_identifier(text[at - 1]);
        const bool longer_right =
            is_identifier(word.back()) && end < text.size() && is_identifier(text[end]);
        if (!longer_left && !longer_right) {
            places.push_back(at);
        }
    }
    return places;
}

std::vector<Include> find_includes(const SourceFile& file) {
    std::vector<Include> includes;
    const std::string_view directive = "#include ";
    for (const std::size_t at : find_word(file.code, directive)) {
        const std::size_t name = at + directive.size();
        includes.push_back({at, file.code.substr(name, file.code.find('\n', name) - name)});
        std::string& text = includes.back().name;
        text.erase(text.find_last_not_of(' ') + 1);
    }
    return includes;
}

std::vector<Finding> find_unsafe_awaits(std::string_view code) {
    std::vector<Finding> findings;
    for (const std::size_t await : find_word(code, "co_await")) {
        for (const std::string_view fault : {fault_before(code, await), fault_after(code, await)}) {
            if (!fault.empty()) {
                findings.push_back({await, std::string(fault)});
            }
        }
    }
    return findings;
}

std::vector<Finding> find_capturing_coroutines(std::string_view code) {
    std::vector<Finding> findings;
    for (std::size_t at = code.find('['); at != kNowhere; at = code.find('[', at + 1)) {
        const std::size_t before = last_mark(code, at);
        const bool subscript = before != kNowhere && before + 1 == at &&
                               (is_identifier(code[before]) || code[before] == ')' ||
                                code[before] == ']' || code[before] == '[');
        const std::size_t close = code.find(']', at);
        if (subscript || close == kNowhere || code.substr(at + 1, close - at - 1).empty()) {
            continue;
        }
        const std::string_view signature =
            code.substr(close, code.find_first_of("{;", close) - close);
        const std::size_t arrow = signature.rfind("->");
        if (arrow != kNowhere && signature.find("awaitable<", arrow) != kNowhere) {
            findings.push_back({at, "a coroutine lambda with captures"});
        }
    }
    return findings;
}

std::vector<Finding> find_long_functions(std::string_view code, std::size_t lines_max) {
    std::vector<Finding> findings;
    for (std::size_t brace = code.find(") {\n"); brace != kNowhere;
         brace = code.find(") {\n", brace + 1)) {
        const std::size_t line = code.rfind('\n', brace) + 1;
        const std::size_t indent = code.find_first_not_of(' ', line) - line;
        if (indent > 4) {
            continue;  // a block inside a function
        }
        const std::string end = "\n" + std::string(indent, ' ') + "}";
        const std::size_t close = std::min(code.find(end, brace), code.size());
        const std::size_t lines = line_of(code.substr(line), close - line) + 1;
        if (lines > lines_max) {
            findings.push_back({line, "a function of " + std::to_string(lines) + " lines"});
        }
    }
    return findings;
}

std::vector<Finding> find_wide_classes(std::string_view code, std::size_t members_max) {
    static constexpr std::string_view kNoMembers[] = {"using ", "friend ",   "class ", "struct ",
                                                      "enum ",  "template ", "}",      "#"};
    std::vector<Finding> findings;
    std::size_t end = 0;
    for (std::size_t line = 0; line < code.size(); line = end + 1) {
        end = std::min(code.find('\n', line), code.size());
        const std::string_view head = code.substr(line, end - line);
        const std::size_t indent = std::min(head.find_first_not_of(' '), head.size());
        const std::string_view text = head.substr(indent);
        if ((!text.starts_with("class ") && !text.starts_with("struct ")) || !text.ends_with("{")) {
            continue;
        }
        const std::string close = "\n" + std::string(indent, ' ') + "}";
        const std::string member = "\n" + std::string(indent + 4, ' ');
        const std::string_view body = code.substr(end, code.find(close, end) - end);
        std::size_t members = 0;
        for (std::size_t at = body.find(member); at != kNowhere; at = body.find(member, at + 1)) {
            const std::string_view rest = body.substr(at + member.size());
            members += rest.empty() || rest.front() == ' ' || rest.front() == '\n' ||
                               std::ranges::any_of(kNoMembers,
                                                   [rest](auto no) { return rest.starts_with(no); })
                           ? 0
                           : 1;
        }
        if (members > members_max) {
            findings.push_back({line, "a class of " + std::to_string(members) + " members"});
        }
    }
    return findings;
}

}  // namespace regroup::tidy
