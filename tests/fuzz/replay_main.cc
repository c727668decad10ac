// SPDX-License-Identifier: Apache-2.0
//
// Drives a fuzz target where libFuzzer does not: the seeds, the files of the corpus, and then
// mutations of them. The order follows from the seed, and the time says how far it gets.
//
//     fuzz_replay TARGET [--seconds=1] [--seed=1] [--runs=N] [FILE or FOLDER]...
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <unistd.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/random.h"
#include "tests/fuzz/targets.h"

namespace regroup::fuzz {
namespace {

constexpr std::size_t kBytesMax = 4096;
constexpr const char* kCrashFile = "fuzz-crash.bin";

const std::map<std::string_view, Target>& targets() {
    static const std::map<std::string_view, Target> all{
        {"agent_core", fuzz_agent_core::target()},
        {"checkpoint", fuzz_checkpoint::target()},
        {"control_protocol", fuzz_control_protocol::target()},
        {"daemon", fuzz_daemon::target()},
        {"etcd_replies", fuzz_etcd_replies::target()},
        {"explain", fuzz_explain::target()},
        {"first_bytes", fuzz_first_bytes::target()},
        {"flag_values", fuzz_flag_values::target()},
        {"hello", fuzz_hello::target()},
        {"host_list", fuzz_host_list::target()},
        {"http", fuzz_http::target()},
        {"job_table", fuzz_job_table::target()},
        {"journal", fuzz_journal::target()},
        {"relay_frames", fuzz_relay_frames::target()},
        {"rendezvous_core", fuzz_rendezvous_core::target()},
        {"snapshot", fuzz_snapshot::target()},
        {"ssh_launch", fuzz_ssh_launch::target()},
        {"store", fuzz_store::target()},
        {"worker_link", fuzz_worker_link::target()},
        {"worker_wire", fuzz_worker_wire::target()},
    };
    return all;
}

/// The input that runs, for the handler of the crash.
std::string_view current;

void save_current(int signal) {
    const int file = ::open(kCrashFile, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0 && ::write(file, current.data(), current.size()) >= 0) {
        constexpr std::string_view kSaid = "the input is in fuzz-crash.bin\n";
        (void)!::write(STDERR_FILENO, kSaid.data(), kSaid.size());
    }
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

void run(const Target& target, const std::string& input) {
    current = input;
    target.test(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string mutated(Random& random, const std::vector<std::string>& inputs) {
    std::string bytes = inputs[random.below(inputs.size())];
    for (std::uint64_t changes = random.below(6); changes < 6; ++changes) {
        const std::size_t at = random.below(bytes.size() + 1);
        const std::size_t length = random.below(std::min<std::size_t>(bytes.size() - at, 16) + 1);
        const std::string& other = inputs[random.below(inputs.size())];
        const std::size_t from = random.below(other.size() + 1);
        switch (random.below(6)) {
            case 0:
                bytes.insert(at, 1, static_cast<char>(random.next()));
                break;
            case 1:
                bytes.erase(at, length);
                break;
            case 2:
                bytes.insert(at, other, from, random.below(64));
                break;
            case 3:
                bytes.insert(at, bytes, random.below(bytes.size() + 1), random.below(64));
                break;
            default:
                if (at < bytes.size()) {
                    bytes[at] = random.chance(0.5)
                                    ? static_cast<char>(random.next())
                                    : static_cast<char>(bytes[at] ^ 1 << random.below(8));
                }
        }
    }
    bytes.resize(std::min(bytes.size(), kBytesMax));
    return bytes;
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        std::exit(2);
    }
    return bytes;
}

bool take_number(std::string_view argument, std::string_view flag, std::uint64_t& out) {
    if (!argument.starts_with(flag)) {
        return false;
    }
    argument.remove_prefix(flag.size());
    const auto [end, error] =
        std::from_chars(argument.data(), argument.data() + argument.size(), out);
    if (error != std::errc() || end != argument.data() + argument.size()) {
        std::fprintf(stderr, "%.*s needs a number\n", static_cast<int>(flag.size()), flag.data());
        std::exit(2);
    }
    return true;
}

const Target& chosen(int argc, char** argv) {
    const auto found = argc < 2 ? targets().end() : targets().find(argv[1]);
    if (found == targets().end()) {
        std::fprintf(stderr,
                     "usage: fuzz_replay TARGET [--seconds=1] [--seed=1] [--runs=N] "
                     "[FILE or FOLDER]...\nTARGET is one of:");
        for (const auto& [name, target] : targets()) {
            std::fprintf(stderr, " %.*s", static_cast<int>(name.size()), name.data());
        }
        std::fprintf(stderr, "\n");
        std::exit(2);
    }
    return found->second;
}

int drive(int argc, char** argv) {
    const Target& target = chosen(argc, argv);
    std::uint64_t limit_s = 1;
    std::uint64_t seed = 1;
    std::uint64_t runs_max = UINT64_MAX;
    std::vector<std::filesystem::path> files;
    for (int i = 2; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (take_number(argument, "--seconds=", limit_s) ||
            take_number(argument, "--seed=", seed) || take_number(argument, "--runs=", runs_max)) {
            continue;
        }
        if (!std::filesystem::is_directory(argument)) {
            files.emplace_back(argument);
            continue;
        }
        for (const auto& entry : std::filesystem::directory_iterator(argument)) {
            files.push_back(entry.path());
        }
    }
    std::sort(files.begin(), files.end());
    std::vector<std::string> inputs = target.seeds();
    for (const std::filesystem::path& file : files) {
        inputs.push_back(read_file(file));
    }
    inputs.emplace_back();
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        std::signal(signal, save_current);
    }
    for (const std::string& input : inputs) {
        run(target, input);
    }
    Random random(seed);
    const SteadyClock clock;
    const Instant end = after(clock.now(), std::chrono::seconds(limit_s));
    std::uint64_t runs = 0;
    for (; runs < runs_max && clock.now() < end; ++runs) {
        run(target, mutated(random, inputs));
    }
    std::printf("%zu inputs and %llu mutations of them\n", inputs.size(),
                static_cast<unsigned long long>(runs));
    return 0;
}

}  // namespace
}  // namespace regroup::fuzz

int main(int argc, char** argv) {
    return regroup::fuzz::drive(argc, argv);
}
