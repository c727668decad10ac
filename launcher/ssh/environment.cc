// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <string_view>

namespace regroup::launcher::ssh {
namespace {

constexpr std::array<std::string_view, 9> kPrefixes{"NCCL_",  "GLOO_",  "CUDA_", "OMP_",    "UCX_",
                                                    "TORCH_", "PYTHON", "PET_",  "REGROUP_"};
constexpr std::array<std::string_view, 2> kNames{"PATH", "LD_LIBRARY_PATH"};
// The launcher reads the token itself. The others belong to a worker, in which it may run.
constexpr std::array<std::string_view, 4> kKept{"REGROUP_TOKEN_FILE", "REGROUP_GROUP_SECRET_FILE",
                                                "REGROUP_AGENT_SOCKET", "REGROUP_WORKER_ID"};

bool passes(std::string_view name) {
    return std::ranges::find(kKept, name) == kKept.end() &&
           (std::ranges::find(kNames, name) != kNames.end() ||
            std::ranges::any_of(kPrefixes,
                                [&](std::string_view prefix) { return name.starts_with(prefix); }));
}

bool is_name(std::string_view text) {
    const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
           std::ranges::all_of(text, fits);
}

}  // namespace

Result<std::vector<std::string>> environment_for_hosts(const std::vector<std::string>& own,
                                                       const std::vector<std::string>& exports) {
    std::map<std::string, std::string> all;
    std::map<std::string, std::string> passed;
    for (const std::string& variable : own) {
        const std::size_t equals = variable.find('=');
        const std::string name = variable.substr(0, equals);
        // Functions of bash have other characters in their names.
        if (equals != variable.npos && is_name(name)) {
            all[name] = variable.substr(equals + 1);
        }
    }
    std::ranges::copy_if(all, std::inserter(passed, passed.end()),
                         [](const auto& variable) { return passes(variable.first); });
    for (const std::string& variable : exports) {
        const std::size_t equals = variable.find('=');
        const std::string name = variable.substr(0, equals);
        if (!is_name(name)) {
            return Failure(Errc::invalid_argument,
                           "must be NAME or NAME=VALUE, not '" + name + "'");
        }
        if (equals == variable.npos && !all.contains(name)) {
            return Failure(Errc::invalid_argument,
                           name + ": the variable is not set here; write " + name + "=VALUE");
        }
        passed[name] = equals == variable.npos ? all[name] : variable.substr(equals + 1);
    }
    std::vector<std::string> result;
    for (const auto& [name, value] : passed) {
        result.push_back(name + "=" + value);
    }
    return result;
}

}  // namespace regroup::launcher::ssh
