// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/security/key.h"

namespace regroup::security {

/// The rights of the holder of a token or of a certificate. Each may do all that the ones before it
/// may, except that only `node` and `full` may join a job.
enum class Role : std::uint8_t {
    observer,       ///< Read the status.
    node,           ///< Join as a node; read the status.
    operator_role,  ///< Act on nodes and jobs; read the status and logs.
    full,           ///< All of these, and serve a daemon.
};
/// "observer", "node", "operator", "full".
[[nodiscard]] std::string_view to_string(Role role) noexcept;

[[nodiscard]] bool may_join(Role role) noexcept;
[[nodiscard]] bool may_operate(Role role) noexcept;

/// The scope of a token: a role, and the job to which it is limited, if it is.
struct Scope {
    Role role = Role::full;
    std::string job{};  ///< Empty: all jobs.

    friend bool operator==(const Scope&, const Scope&) = default;
};

/// A shared secret. A daemon holds the full token. It derives the token of any other scope from it,
/// so that it need not keep a list. As text:
///
///     regroup1.ROLE.ID.KEY[.JOB]      KEY has 64 hexadecimal digits
class Token {
   public:
    [[nodiscard]] static Token generate();
    /// Errors: invalid_argument; the sentence does not repeat the text.
    [[nodiscard]] static Result<Token> parse(std::string_view text);
    [[nodiscard]] std::string text() const;

    [[nodiscard]] const Scope& scope() const noexcept { return scope_; }
    /// Names the full token from which this one is derived: 8 hexadecimal digits, not secret.
    [[nodiscard]] const std::string& id() const noexcept { return id_; }
    [[nodiscard]] const Key& key() const noexcept { return key_; }

    /// Requires a full token.
    [[nodiscard]] Token limited_to(const Scope& scope) const;
    /// The token to prove oneself with as `scope`: the one limited to it where this is a full one,
    /// else this one.
    [[nodiscard]] Token for_use_as(const Scope& scope) const;

    /// Names id and scope on the wire: "regroup1.ROLE.ID[.JOB]".
    [[nodiscard]] std::string identity() const;
    /// The token that `identity` names: this one, or one derived from it. Nothing if it cannot be.
    [[nodiscard]] std::optional<Token> named(std::string_view identity) const;

   private:
    Token(Scope scope, std::string id, const Key& key)
        : scope_(std::move(scope)), id_(std::move(id)), key_(key) {}

    Scope scope_;
    std::string id_;
    Key key_;
};

/// Reads a token from the first line of `path`. Errors: invalid_argument for a file that another
/// user owns or may read, and for one without a token; system. Each names the file and the remedy.
[[nodiscard]] Result<Token> read_token(const std::string& path);
/// Writes the token to a new file that only this user may read. Creates its folder, with a umask of
/// its own: no other thread may create files meanwhile. Errors: system;
/// invalid_argument if the file exists.
[[nodiscard]] Result<void> write_token(const std::string& path, const Token& token);

}  // namespace regroup::security
