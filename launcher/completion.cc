// SPDX-License-Identifier: Apache-2.0
#include "launcher/completion.h"

namespace regroup::launcher {

std::string completion(const std::string& command, const std::vector<std::string>& flags,
                       const std::string& shell) {
    const std::string program = command.substr(0, command.find(' '));
    std::string words;
    for (const std::string& flag : flags) {
        words += (words.empty() ? "" : " ") + flag;
    }
    if (shell == "tcsh") {
        return "complete " + program + " 'c/--/(" + [&] {
            std::string bare;
            for (const std::string& flag : flags) {
                bare += (bare.empty() ? "" : " ") + flag.substr(2);
            }
            return bare;
        }() + ")/' 'p/*/f/'\n";
    }
    const std::string function = "_" + program + "_flags";
    const std::string bash = function +
                             "() {\n"
                             "    local word=${COMP_WORDS[COMP_CWORD]}\n"
                             "    case $word in\n"
                             "        -*) COMPREPLY=($(compgen -W '" +
                             words +
                             "' -- \"$word\")) ;;\n"
                             "        *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
                             "    esac\n"
                             "}\n"
                             "complete -o filenames -F " +
                             function + " " + program + "\n";
    // bashcompinit lets zsh use the completion of bash.
    return shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" + bash : bash;
}

}  // namespace regroup::launcher
