// SPDX-License-Identifier: Apache-2.0
#include "tests/tidy/rules.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/tidy/layers.h"

namespace regroup::tidy {
namespace {

constexpr std::size_t kMembersMax = 40;  // Data and functions of a class.

/// Words that are banned in some files. Patterns match whole paths.
struct Ban {
    std::string word;
    std::string files;
    std::string except;
    std::string instead;
};

const std::vector<Ban>& banned_code() {
    const std::string all = ".*";
    const std::string none;
    const std::string cores =
        "(rendezvous|agent)/core/.*|.*_core\\..*|rendezvous/store/store_wire.*";
    const std::string results = "(rendezvous|agent|launcher)/.*";
    const std::string copiers = "worker_sdk/src/(cpu|ddp|checkpoint)/.*";
    const std::string sleepers = "tests/(e2e|bench|chaos|support)/.*|examples/.*";
    static const std::vector<Ban> table = {
        {"::now(", cores, none, "a core is told the time"},
        {"steady_clock::now", all, "rendezvous/base/base.cc|agent/process/.*|examples/.*|tests/.*",
         "ask the regroup::Clock that the owner was given"},
        {"system_clock", cores, none, "a core is told the time"},
        {"waitpid", all, "agent/process/.*|worker_sdk/src/spawn/spawned_process.cc|tests/.*",
         "agent/process reaps, and only there"},
        {"waitid", all, "agent/process/.*|tests/.*", "agent/process reaps, and only there"},
        {"boost/process", all, "agent/process/.*", "start processes through agent/process"},
        {"sleep_for", all, sleepers, "wait for a condition, with a deadline"},
        {"sleep", all, sleepers, "wait for a condition, with a deadline"},
        {"usleep", all, sleepers, "wait for a condition, with a deadline"},
        {"getenv", all,
         "launcher/.*|worker_sdk/src/(context/context|cuda/environment).cc|tests/.*|"
         "rendezvous/worker_link/collectives_writer.cc|worker_sdk/nccl_profiler/plugin.cc",
         "the environment is read in the launcher, in Context, in cuda::Environment and inside of "
         "NCCL, and handed on as values"},
        {"memcpy", copiers, none, "copy_bytes, which is fast on every processor"},
        {"memmove", copiers, "worker_sdk/src/cpu/collective_lane.cc",
         "copy_bytes, which is fast on every processor"},
        {"throw", results, none, "return a Failure: only the SDK throws, to its users"},
        {"catch (...)", all, none, "catch what is expected, by name"},
        {"shared_from_this", all, none, "one owner each; the owner outlives the coroutine"},
        {"using namespace", ".*\\.h", none, "write the namespace: a header is included by others"},
        {"co_await", "worker_sdk/.*", none, "the SDK has plain threads: users' compilers vary"},
    };
    return table;
}

/// These are banned in comments and documents, too.
const std::vector<Ban>& banned_text() {
    const std::string all = ".*";
    const std::string none;
    const std::string rules = "tests/tidy/.*";
    static const std::vector<Ban> table = {
        {"TODO", all, rules, "do it, or write an issue"},
        {"FIXME", all, rules, "do it, or write an issue"},
        {"XXX", all, rules, "do it, or write an issue"},
        {"HACK", all, rules, "say what it is and why it must be"},
        {"/root/", all, rules, "no path of one machine"},
        {"/home/", all, rules, "no path of one machine"},
        {"\t", all, "(.*/)?Makefile|.*\\.mk", "indent with spaces"},
        {" \n", all, none, "no trailing blank"},
        {"\r", all, none, "lines end with a line feed alone"},
    };
    return table;
}

class Report {
   public:
    explicit Report(const SourceFile& file) : file_(file) {}

    void add(std::size_t at, const std::string& what) {
        lines_.push_back(file_.path + ":" + std::to_string(line_of(file_.text, at)) + ": " + what);
    }
    std::vector<std::string> take() { return std::move(lines_); }

   private:
    const SourceFile& file_;
    std::vector<std::string> lines_;
};

void check_layer(const SourceFile& file, Report& report) {
    const Layer* const layer = layer_of(file.path);
    if (layer == nullptr) {
        report.add(0,
                   "no layer knows this place; tests/tidy/layers.cc lists the places of sources");
        return;
    }
    for (const Include& include : find_includes(file)) {
        if (!may_include(*layer, include.name)) {
            report.add(include.at,
                       "the layer '" + layer->places.front() + "' may not include " + include.name);
        }
    }
}

void check_bans(const SourceFile& file, const std::string& text, const std::vector<Ban>& bans,
                Report& report) {
    for (const Ban& ban : bans) {
        const auto places = find_word(text, ban.word);
        if (!places.empty() && matches(file.path, ban.files) && !matches(file.path, ban.except)) {
            const std::string shown =
                std::isspace(static_cast<unsigned char>(ban.word.front())) != 0
                    ? ""
                    : "'" + ban.word + "'; instead: ";
            report.add(places.front(), shown + ban.instead);
        }
    }
}

void check_ends(const SourceFile& file, Report& report) {
    if (!file.text.empty() && !file.text.ends_with('\n')) {
        report.add(file.text.size(), "no line feed at the end of the file");
    }
    const std::string_view head = std::string_view(file.text).substr(0, 120);
    const bool needs_licence = matches(file.path, ".*\\.(h|cc|cmake|sh)|(.*/)?CMakeLists.txt");
    if (needs_licence && head.find("SPDX-License-Identifier: Apache-2.0\n") == head.npos) {
        report.add(0, "the file does not begin with its SPDX-License-Identifier");
    }
}

void check_links(const SourceFile& file, const std::set<std::string>& known, Report& report) {
    for (const std::size_t at : find_word(file.text, "](")) {
        const std::size_t begin = at + 2;
        std::string target = file.text.substr(begin, file.text.find_first_of(")\n", begin) - begin);
        if (target.starts_with('#') || target.find(':') != target.npos) {
            continue;
        }
        target.erase(std::min(target.find('#'), target.size()));
        auto path = (std::filesystem::path(file.path).parent_path() / target).lexically_normal();
        const std::string name = path.has_filename() ? path.string() : path.parent_path().string();
        if (!known.contains(name)) {
            report.add(at, "the link leads nowhere: " + target);
        }
    }
}

}  // namespace

std::vector<std::string> check_file(const SourceFile& file) {
    Report report(file);
    check_bans(file, file.text, banned_text(), report);
    check_ends(file, report);
    if (file.is_cpp()) {
        check_layer(file, report);
        check_bans(file, file.code, banned_code(), report);
        for (const auto& findings :
             {find_unsafe_awaits(file.code), find_capturing_coroutines(file.code)}) {
            for (const Finding& finding : findings) {
                report.add(finding.at, finding.what +
                                           ": g++ 12 destroys such things twice or too "
                                           "early; name it on a line of its own first");
            }
        }
        for (const Finding& finding : find_wide_classes(file.code, kMembersMax)) {
            report.add(finding.at, finding.what + "; divide it into what it is made of");
        }
    }
    return report.take();
}

std::vector<std::string> check_tree(const std::vector<SourceFile>& files,
                                    const std::string& compiled) {
    std::set<std::string> known;
    for (const SourceFile& file : files) {
        for (std::filesystem::path path = file.path; !path.empty(); path = path.parent_path()) {
            known.insert(path.string());
        }
    }
    const auto is_compiled = [&](const std::string& path) {
        return compiled.find("/" + path + "\"") != std::string::npos;
    };
    // Sources for the CUDA toolkit, cuDNN, cuBLAS or libtorch are built only where these are
    // installed.
    std::string optional =
        "examples/[a-z_]+/cuda_[a-z]+\\.cc|tests/conformance/"
        "etcd_(access|journal)_test\\.cc";
    if (!is_compiled("worker_sdk/src/nccl/nccl_api.cc")) {
        optional +=
            "|worker_sdk/src/(cuda|nccl)/.*|worker_sdk/src/ddp/cuda_.*|tests/(gpu|support/"
            "stand_in_nccl)/.*|"
            "tests/conformance/(nccl_.*|examples_gpu_test\\.cc)";
    }
    if (!is_compiled("examples/torch_ddp/torch_ddp.cc")) {
        optional += "|examples/torch_ddp/.*|tests/conformance/torch_.*";
    }
    std::vector<std::string> all;
    for (const SourceFile& file : files) {
        Report report(file);
        const bool built = is_compiled(file.path) || matches(file.path, optional);
        if (file.path.ends_with(".cc") && !built) {
            report.add(0, "no target compiles this source");
        }
        if (file.path.ends_with(".md")) {
            check_links(file, known, report);
        }
        for (std::string& line : report.take()) {
            all.push_back(std::move(line));
        }
    }
    return all;
}

std::vector<std::string> note_outliers(const SourceFile& file) {
    constexpr std::size_t kFileLinesMax = 400;
    constexpr std::size_t kFunctionLinesMax = 70;
    Report report(file);
    const std::size_t lines = line_of(file.text, file.text.size()) - 1;
    if (file.is_cpp() && lines > kFileLinesMax) {
        report.add(0, "a file of " + std::to_string(lines) + " lines");
    }
    if (file.is_cpp()) {
        for (const Finding& finding : find_long_functions(file.code, kFunctionLinesMax)) {
            report.add(finding.at, finding.what);
        }
    }
    return report.take();
}

}  // namespace regroup::tidy
