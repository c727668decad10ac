// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/token.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/names.h"
#include "rendezvous/base/text.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/security/secret_file.h"

namespace regroup::security {
namespace {

constexpr std::string_view kFormat = "regroup1";
constexpr std::size_t kIdDigits = 8;
constexpr std::size_t kJobBytesMax = 255;
constexpr std::size_t kTextBytesMax = 512;

/// `text` up to each of the first `count - 1` dots, and the rest, which may contain dots.
std::vector<std::string_view> split(std::string_view text, std::size_t count) {
    std::vector<std::string_view> parts;
    while (parts.size() + 1 < count && text.find('.') != text.npos) {
        const std::size_t dot = text.find('.');
        parts.push_back(text.substr(0, dot));
        text.remove_prefix(dot + 1);
    }
    parts.push_back(text);
    return parts;
}

bool is_id(std::string_view text) {
    return text.size() == kIdDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string id_of(const Key& key) {
    return key.derive("regroup token id").hex().substr(0, kIdDigits);
}

}  // namespace

std::string_view to_string(Role role) noexcept {
    return name_in({"observer", "node", "operator", "full"}, role);
}

bool may_join(Role role) noexcept {
    return role == Role::node || role == Role::full;
}

bool may_operate(Role role) noexcept {
    return role == Role::operator_role || role == Role::full;
}

Token Token::generate() {
    Key key = Key::random();
    std::string id = id_of(key);
    return {Scope(), std::move(id), key};
}

Result<Token> Token::parse(std::string_view text) {
    const auto wrong = [](const std::string& what) {
        return Failure(Errc::invalid_argument,
                       what +
                           "; a token reads regroup1.ROLE.ID.KEY, and `regroup token "
                           "--generate` makes one");
    };
    const std::vector<std::string_view> parts = split(text, 5);
    if (parts.size() < 4 || parts[0] != kFormat) {
        return wrong("it is no token");
    }
    const std::optional<Role> role = value_named<Role>(parts[1]);
    const std::optional<Key> key = Key::from_hex(parts[3]);
    const std::string job(parts.size() > 4 ? parts[4] : "");
    if (!role || !is_id(parts[2]) || !key || job.size() > kJobBytesMax ||
        (*role == Role::full && (!job.empty() || id_of(*key) != parts[2]))) {
        return wrong("the token is damaged");
    }
    return Token({*role, job}, std::string(parts[2]), *key);
}

std::string Token::text() const {
    return std::string(kFormat) + "." + std::string(to_string(scope_.role)) + "." + id_ + "." +
           key_.hex() + (scope_.job.empty() ? "" : "." + scope_.job);
}

Token Token::limited_to(const Scope& scope) const {
    ENSURE(scope_.role == Role::full);
    if (scope == scope_) {
        return *this;
    }
    return {
        scope, id_,
        key_.derive("regroup token for " + std::string(to_string(scope.role)) + "." + scope.job)};
}

Token Token::for_use_as(const Scope& scope) const {
    return scope_.role == Role::full ? limited_to(scope) : *this;
}

std::string Token::identity() const {
    return std::string(kFormat) + "." + std::string(to_string(scope_.role)) + "." + id_ +
           (scope_.job.empty() ? "" : "." + scope_.job);
}

std::optional<Token> Token::named(std::string_view identity) const {
    if (scope_.role != Role::full) {
        return identity == this->identity() ? std::optional(*this) : std::nullopt;
    }
    const std::vector<std::string_view> parts = split(identity, 4);
    const std::optional<Role> role =
        parts.size() < 3 || parts[0] != kFormat ? std::nullopt : value_named<Role>(parts[1]);
    if (!role || parts[2] != id_) {
        return std::nullopt;
    }
    return limited_to({*role, std::string(parts.size() > 3 ? parts[3] : "")});
}

Result<Token> read_token(const std::string& path) {
    const Result<std::string> line = read_secret_line(path, "the token file", kTextBytesMax);
    if (!line) {
        return line.error();
    }
    Result<Token> token = Token::parse(std::string(trimmed(*line)));
    return token ? token
                 : Failure(Errc::invalid_argument,
                           "the token file " + path + " cannot be used: " + token.error().detail);
}

Result<void> write_token(const std::string& path, const Token& token) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    std::error_code none;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, none))) {
        return Failure(Errc::invalid_argument,
                       path +
                           " exists already; all who use its token lose their access when "
                           "another one replaces it, so remove it first if you want that");
    }
    if (!folder.empty()) {
        // Others who may write in a folder could put another token there.
        const mode_t before = ::umask(S_IRWXG | S_IRWXO);
        const Result<void> made = files::make_own_folder(folder);
        ::umask(before);
        if (!made) {
            return Failure(Errc::system, "cannot create " + path + ": " + made.error().detail);
        }
    }
    const Result<UniqueFd> file =
        files::open_own(path, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    if (!file) {
        return Failure(Errc::system, "cannot create " + path + ": " + file.error().detail);
    }
    const std::string line = token.text() + "\n";
    if (::write(file->get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
        ::fsync(file->get()) != 0) {
        const int reason = errno;
        ::unlink(path.c_str());
        return system_failure("cannot write " + path, reason);
    }
    return {};
}

}  // namespace regroup::security
