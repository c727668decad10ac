// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <optional>
#include <variant>
#include <vector>

#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/flag_values.h"
#include "launcher/say.h"
#include "launcher/trust.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/base/names.h"
#include "rendezvous/security/token.h"

namespace regroup::launcher {

namespace {

using security::Role;
using security::Scope;
using security::Token;

struct TokenOptions {
    std::string file;
    bool generate = false;
    std::string role;
    std::string job;
    std::string out;
};

void describe(FlagTable& flags, TokenOptions& options) {
    flags.usage = "regroup token [--generate] [FLAGS]";
    flags.introduction =
        "Make the token by which daemon, nodes and operators of different hosts prove who they\n"
        "are, or derive a token that may do less. Without a flag: show which token is used.";
    flags.footer =
        "Examples:\n"
        "  regroup token --generate                      once; a shared home needs nothing else\n"
        "  regroup token --role=observer --out=watch     a token that may only read the status\n"
        "  regroup token --role=node --job=nightly       one that may only join that job, printed\n"
        "Exit code: 0; 2 for a mistake on the command line or a file that cannot be used.";
    flags.group("Flags");
    flags.toggle({"--generate", "", "",
                  "Write a new token to the file, which must not exist, for its owner only"},
                 options.generate);
    flags.value({"--token-file", "FILE", "~/.local/state/regroup/token", "The token file",
                 "--token-file=/run/secrets/regroup", "REGROUP_TOKEN_FILE", true},
                text_into(options.file));
    flags.value({"--role", "node|operator|observer", "",
                 "Derive a token from the one in the file. node: join jobs. operator: drain, "
                 "release and stop, and read logs. observer: only read the status",
                 "--role=observer"},
                word_into(options.role, {"node", "operator", "observer"}));
    flags.value({"--job", "ID", "", "With --role: a token for that job only", "--job=nightly"},
                name_into(options.job));
    flags.value({"--out", "FILE", "", "With --role: write the token there instead of printing it",
                 "--out=observer.token"},
                text_into(options.out));
}

std::string text_of(const Token& token) {
    const Scope& scope = token.scope();
    return "token " + token.id() + ", role " + std::string(to_string(scope.role)) +
           (scope.job.empty() ? "" : ", of job " + scope.job + " only");
}

Result<std::string> run(const TokenOptions& options) {
    if (options.file.empty()) {
        return Failure(Errc::invalid_argument,
                       "neither HOME nor XDG_STATE_HOME is set; name the file: --token-file=FILE");
    }
    if (options.generate) {
        const Token token = Token::generate();
        const Result<void> written = security::write_token(options.file, token);
        return written ? Result<std::string>("wrote " + text_of(token) + ", to " + options.file)
                       : written.error();
    }
    const Result<Token> token = security::read_token(options.file);
    if (!token) {
        return Failure(token.error().code,
                       token.error().detail + "; `regroup token --generate` makes a new one");
    }
    if (options.role.empty()) {
        return text_of(*token) + ", in " + options.file;
    }
    if (token->scope().role != Role::full) {
        return Failure(Errc::invalid_argument,
                       options.file + " has a " + text_of(*token) +
                           "; others can be derived only from the one that --generate made");
    }
    const Token derived =
        token->limited_to({*value_named<security::Role>(options.role), options.job});
    if (options.out.empty()) {
        return derived.text();
    }
    const Result<void> written = security::write_token(options.out, derived);
    return written ? Result<std::string>("wrote " + text_of(derived) + ", to " + options.out)
                   : written.error();
}

}  // namespace

CommandEnd token_command(std::span<const std::string> arguments) {
    TokenOptions options;
    FlagTable flags("regroup token");
    describe(flags, options);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        if (const Result<void> none = expect_no_words(words); !none) {
            return none.error();
        }
        if (options.generate && !options.role.empty()) {
            return invalid_argument(
                "--generate makes a full token; derive others from it by a second command");
        }
        if (options.role.empty() && (!options.job.empty() || !options.out.empty())) {
            return invalid_argument("--job and --out go with --role");
        }
        if (options.file.empty()) {
            options.file = usual_token_file();
        }
        const Result<std::string> done = run(options);
        if (!done) {
            return done.error();
        }
        std::printf("%s\n", done->c_str());
        return CommandEnd{};
    });
}

}  // namespace regroup::launcher
