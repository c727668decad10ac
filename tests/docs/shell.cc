// SPDX-License-Identifier: Apache-2.0
#include "tests/docs/shell.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>
#include <set>
#include <string_view>
#include <utility>

namespace regroup::docs {
namespace {

class Lexer {
   public:
    Lexer(const std::string& script, std::size_t line) : script_(script), line_(line) {}

    std::vector<Command> run() {
        while (at_ < script_.size()) {
            take_character(script_[at_]);
        }
        end_command();
        return std::move(commands_);
    }

   private:
    void take_character(char c) {
        constexpr std::string_view kEnds = "|;&()";
        if (c == '\n') {
            end_command();
            next();
            skip_here_documents();
        } else if (c == '\\') {
            next();
            if (at_ < script_.size() && script_[at_] != '\n') {
                add(script_[at_]);
            }
            next();
        } else if (c == '#' && !in_word_) {
            at_ = std::min(script_.find('\n', at_), script_.size());
        } else if (c == ' ') {
            end_word();
            next();
        } else if (c == '\'') {
            take_single_quoted();
        } else if (c == '"') {
            take_double_quoted();
        } else if (c == '$' && script_.substr(at_, 2) == "$(") {
            take_substitution();
        } else if (c == '<' || c == '>') {
            take_redirection();
        } else if (kEnds.find(c) != kEnds.npos) {
            end_command();
            next();
        } else {
            add(c);
            next();
        }
    }

    void next() {
        if (at_ < script_.size()) {
            line_ += script_[at_] == '\n' ? 1 : 0;
            ++at_;
        }
    }
    void add(char c) {
        if (!in_word_ && words_.empty()) {
            begin_ = line_;
        }
        in_word_ = true;
        word_ += c;
    }
    void take_single_quoted() {
        in_word_ = true;
        for (next(); at_ < script_.size() && script_[at_] != '\''; next()) {
            add(script_[at_]);
        }
        next();
    }
    void take_double_quoted() {
        in_word_ = true;
        next();
        while (at_ < script_.size() && script_[at_] != '"') {
            if (script_.substr(at_, 2) == "$(") {
                take_substitution();
                continue;
            }
            if (script_[at_] == '\\') {
                next();
            }
            add(script_[at_]);
            next();
        }
        next();
    }
    void take_substitution() {
        const std::size_t begin = at_ + 2;
        std::size_t end = begin;
        for (int depth = 1; end < script_.size(); ++end) {
            depth += script_[end] == '(' ? 1 : script_[end] == ')' ? -1 : 0;
            if (depth == 0) {
                break;
            }
        }
        std::vector<Command> inner = Lexer(script_.substr(begin, end - begin), line_).run();
        std::move(inner.begin(), inner.end(), std::back_inserter(commands_));
        for (; at_ <= end && at_ < script_.size(); next()) {
            add(script_[at_]);
        }
    }
    void take_redirection() {
        if (std::ranges::all_of(word_, [](unsigned char c) { return std::isdigit(c) != 0; })) {
            word_.clear();
            in_word_ = false;
        }
        end_word();
        const std::size_t begin = at_;
        at_ = std::min(script_.find_first_not_of("<>&|-", at_), script_.size());
        const std::string sign = script_.substr(begin, at_ - begin);
        is_target_ = true;
        is_delimiter_ = sign.starts_with("<<") && !sign.starts_with("<<<");
    }

    void end_word() {
        if (!std::exchange(in_word_, false)) {
            return;
        }
        std::string word = std::exchange(word_, "");
        if (std::exchange(is_target_, false)) {
            if (is_delimiter_) {
                delimiters_.push_back(word);
            }
            return;
        }
        static const std::regex assignment("[A-Za-z_][A-Za-z0-9_]*=(.|\n)*");
        static const std::set<std::string> keywords = {"if", "then", "else",  "elif", "fi", "do",
                                                       "!",  "done", "while", "{",    "}"};
        const bool is_first = words_.empty();
        if (!(is_first && (keywords.contains(word) || std::regex_match(word, assignment)))) {
            words_.push_back(std::move(word));
        }
    }
    void end_command() {
        end_word();
        if (!words_.empty()) {
            commands_.push_back({begin_, std::exchange(words_, {})});
        }
    }
    void skip_here_documents() {
        for (const std::string& delimiter : std::exchange(delimiters_, {})) {
            const std::size_t begin_line = line_;
            std::string body;
            while (at_ < script_.size()) {
                const std::size_t end = std::min(script_.find('\n', at_), script_.size());
                const std::string text = script_.substr(at_, end - at_);
                at_ = std::min(end + 1, script_.size());
                ++line_;
                if (text == delimiter) {
                    break;
                }
                body += text + "\n";
            }
            if (body.starts_with("#!") && body.substr(0, body.find('\n')).ends_with("sh")) {
                std::vector<Command> inner = Lexer(body, begin_line).run();
                std::move(inner.begin(), inner.end(), std::back_inserter(commands_));
            }
        }
    }

    const std::string& script_;
    std::size_t at_ = 0;
    std::size_t line_;
    std::size_t begin_ = 0;
    bool in_word_ = false;
    bool is_target_ = false;     // The word behind a redirection.
    bool is_delimiter_ = false;  // The word that ends a here document.
    std::string word_;
    std::vector<std::string> words_;
    std::vector<std::string> delimiters_;
    std::vector<Command> commands_;
};

}  // namespace

std::vector<Command> commands_of_script(const std::string& script) {
    return Lexer(script, 0).run();
}

}  // namespace regroup::docs
