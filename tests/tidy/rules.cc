// SPDX-License-Identifier: Apache-2.0
#include "tests/tidy/rules.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

namespace regroup::tidy {
namespace {

/// What the files of one place may include. Patterns match whole paths and whole include names.
struct Layer {
    std::string files;
    std::string may_include;
};

/// Words that may not stand in some files. Patterns match whole paths.
struct Ban {
    std::string word;
    std::string files;
    std::string except;
    std::string instead;
};

/// Of the layers whose `files` match, the first speaks. Dependencies run one way:
/// launcher -> agent -> rendezvous <- worker_sdk <- examples; cores see values only.
const std::vector<Layer>& layers() {
    const std::string standard = "<[a-z_0-9]+>";
    const std::string pure =
        "<(?!thread|mutex|shared_mutex|condition_variable|future|random|unordered_|ctime|"
        "iostream|fstream|filesystem)[a-z_0-9]+>";
    const std::string posix = "|<((sys|net|netinet|arpa|linux)/)?[a-z_]+\\.h>";
    const std::string asio = posix + "|<boost/asio.*>";
    const std::string json = "|<nlohmann/.*>";
    const std::string base = "|<regroup/errc.h>|\"rendezvous/base/.*\"";
    const std::string messages = "|\"rendezvous/core/messages.h\"";
    const std::string link = "|\"rendezvous/worker_link/.*\"";
    const std::string store_values = "rendezvous/store/store_(core|dispatch|limits|wire)";
    const std::string store = "|\"rendezvous/store/(?!store_server).*\"";
    static const std::vector<Layer> table = {
        {"rendezvous/base/.*", standard + base},
        {"rendezvous/core/.*", pure + base + "|\"rendezvous/core/.*\""},
        {store_values + "\\..*", pure + "|<unordered_map>" + base + "|\"" + store_values + ".h\""},
        {"rendezvous/store/(?!store_server).*", standard + posix + base + store},
        {"rendezvous/protocol/.*",
         standard + json + base + messages + "|\"rendezvous/(protocol|text)/.*\""},
        {"rendezvous/text/.*", pure + base + "|\"rendezvous/(core|text)/.*\""},
        {"rendezvous/worker_link/packet\\..*", standard + posix + link},
        {"rendezvous/worker_link/.*", standard + base + link},
        {"rendezvous/journal/.*", standard + posix + "|<boost/.*>|<sqlite3.h>" + json + base +
                                      "|\"rendezvous/(core|text|protocol|client|net|journal)/.*\""},
        {"rendezvous/net/.*", standard + asio + base + "|\"rendezvous/net/.*\""},
        {"rendezvous/client/.*",
         standard + asio + base + messages + "|\"rendezvous/(protocol|net|client)/.*\""},
        {"rendezvous/(server|store)/.*", standard + asio + json + base + "|\"rendezvous/.*\""},
        {"agent/core/.*", pure + base + "|\"(rendezvous|agent)/core/.*\""},
        {"agent/cause_text\\..*",
         pure + base + "|\"rendezvous/(core|text)/.*\"|\"agent/(core/.*|cause_text.h)\""},
        {"agent/process/.*",
         standard + posix + "|<boost/.*>" + base + "|\"(rendezvous/net|agent/process)/.*\""},
        {"agent/placement/.*", standard + posix + base + "|\"agent/placement/.*\""},
        {"agent/.*", standard + asio + json + base + "|\"(rendezvous|agent)/.*\""},
        {"launcher/.*", standard + asio + json + "" + base + "|\"(rendezvous|agent|launcher)/.*\""},
        {"worker_sdk/include/regroup/c_api.*", "<std(def|int)\\.h>|<regroup/(c_api|version)\\.h>"},
        {"worker_sdk/include/regroup/torch.h", standard + "|<regroup/.*>|<torch/.*>"},
        {"worker_sdk/include/.*", standard + "|<regroup/.*>"},
        {"worker_sdk/mpi/.*", standard + posix + "|<regroup/.*>|\"worker_sdk/mpi/.*\""},
        {"worker_sdk/.*",
         standard + posix + "|<regroup/.*>" + base + store + link + "|\"worker_sdk/src/.*\""},
        {"examples/torch_.*", standard + "|<regroup/.*>|<torch/.*>|\"[a-z_]+.h\""},
        {"examples/.*", standard + posix + "|<cublas_v2.h>|<Eigen/.*>|<regroup/.*>|\"[a-z_]+.h\""},
        {"tests/.*", ".*"},
    };
    return table;
}

const std::vector<Ban>& banned_code() {
    const std::string all = ".*";
    const std::string none;
    const std::string cores =
        "(rendezvous|agent)/core/.*|.*_core\\..*|rendezvous/store/store_wire.*";
    const std::string results = "(rendezvous|agent|launcher)/.*";
    const std::string sleepers = "tests/(e2e|bench|chaos|support)/.*|examples/.*";
    static const std::vector<Ban> table = {
        {"::now(", cores, none, "a core is told the time"},
        {"steady_clock::now", all, "rendezvous/base/base.cc|agent/process/.*|examples/.*|tests/.*",
         "ask the regroup::Clock that the owner was given"},
        {"system_clock", cores, none, "a core is told the time"},
        {"waitpid", all, "agent/process/.*|worker_sdk/src/training/spawned_process.cc|tests/.*",
         "agent/process reaps, and only there"},
        {"waitid", all, "agent/process/.*|tests/.*", "agent/process reaps, and only there"},
        {"boost/process", all, "agent/process/.*", "start processes through agent/process"},
        {"sleep_for", all, sleepers, "wait for a condition, with a deadline"},
        {"sleep", all, sleepers, "wait for a condition, with a deadline"},
        {"usleep", all, sleepers, "wait for a condition, with a deadline"},
        {"getenv", all, "launcher/.*|worker_sdk/src/(context|cuda/environment).cc|tests/.*",
         "the environment is read in the launcher, in Context and in cuda::Environment, and handed "
         "on as values"},
        {"throw", results, none, "return a Failure: only the SDK throws, to its users"},
        {"catch (...)", all, none, "catch what is expected, by name"},
        {"shared_from_this", all, none, "one owner each; the owner outlives the coroutine"},
        {"using namespace", ".*\\.h", none, "write the namespace: a header is included by others"},
        {"co_await", "worker_sdk/.*", none, "the SDK has plain threads: users' compilers vary"},
    };
    return table;
}

/// Looked for in comments and documents too.
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

bool matches(const std::string& text, const std::string& pattern) {
    return std::regex_match(text, std::regex(pattern));
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
    const auto layer = std::find_if(layers().begin(), layers().end(), [&](const Layer& candidate) {
        return matches(file.path, candidate.files);
    });
    if (layer == layers().end()) {
        report.add(0, "no layer knows this place; sources live in the folders of tests/tidy");
        return;
    }
    for (const Include& include : find_includes(file)) {
        if (!matches(include.name, layer->may_include)) {
            report.add(include.at,
                       "the layer '" + layer->files + "' may not include " + include.name);
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
    }
    return report.take();
}

std::vector<std::string> check_tree(const std::vector<SourceFile>& files,
                                    const std::string& compile_commands) {
    std::set<std::string> known;
    for (const SourceFile& file : files) {
        for (std::filesystem::path path = file.path; !path.empty(); path = path.parent_path()) {
            known.insert(path.string());
        }
    }
    const auto is_compiled = [&](const std::string& path) {
        return compile_commands.find("/" + path + "\"") != std::string::npos;
    };
    // What needs the CUDA toolkit, cuDNN and cuBLAS, or libtorch is built where there is such a
    // thing.
    std::string optional = "examples/[a-z_]+/cuda_[a-z]+\\.cc";
    if (!is_compiled("worker_sdk/src/nccl/nccl_api.cc")) {
        optional +=
            "|worker_sdk/src/(cuda|nccl)/.*|tests/(gpu|support/stand_in_nccl)/.*|"
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
