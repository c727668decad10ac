// SPDX-License-Identifier: Apache-2.0
//
// A worker with a plain loop that asks in each step whether to stop, until the file
// $PROBE_DIR/finish is there. Marks as those of elastic_probe.cc:
//
//     up         the step that was loaded, or "none"
//     trains     in the third step
//     stopped    the step at which the ranks stopped, and whether it could be saved
//     done       the last step
//
// Where $PROBE_DIR/slow is there, the ranks of local rank 1 save only when $PROBE_DIR/disk is
// there. With the argument "handle" the program has a handler for SIGTERM of its own.
#include <regroup/regroup.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace {

std::string folder() {
    const char* value = std::getenv("PROBE_DIR");
    return value != nullptr ? value : ".";
}

bool is_there(const std::string& name) {
    return std::filesystem::exists(folder() + "/" + name);
}

void mark(const std::string& name, const regroup::Context& context, const std::string& facts) {
    const std::string path = folder() + "/" + name + "." + std::to_string(context.round) + "." +
                             std::to_string(context.rank);
    const std::string part = path + ".part" + std::to_string(::getpid());
    std::ofstream file(part);
    file << "pid=" << ::getpid() << "\nworld=" << context.world_size << "\n" << facts;
    file.close();
    std::filesystem::rename(part, path);
}

void train() {
    const regroup::Context context = regroup::Context::from_environment();
    std::vector<std::uint64_t> state(1);
    regroup::Snapshot snapshot(context, {.replicated = true});
    snapshot.add("state", std::span(state));
    const std::optional<std::uint64_t> loaded = snapshot.load();
    mark("up", context, "loaded=" + (loaded ? std::to_string(*loaded) : "none") + "\n");
    const auto group = regroup::ProcessGroup::create("cpu", context);
    const std::uint64_t first = loaded.value_or(0);
    std::vector<std::int64_t> finish(1);
    for (std::uint64_t step = first;; ++step) {
        if (regroup::stop_requested(step)) {
            while (is_there("slow") && context.local_rank == 1 && !is_there("disk")) {
                ::usleep(1000);
            }
            const bool saved = snapshot.save(step);
            mark("stopped", context,
                 "step=" + std::to_string(step) + "\nstate=" + std::to_string(state[0]) +
                     "\nsaved=" + (saved ? "yes" : "no") + "\n");
            return;
        }
        state[0] = step + 1;
        finish[0] = is_there("finish") ? 1 : 0;
        group->all_reduce(std::span(finish), regroup::ReduceOp::max).wait();
        if (step == first + 2) {
            mark("trains", context, "");
        }
        if (finish[0] != 0) {
            mark("done", context, "step=" + std::to_string(step) + "\n");
            return;
        }
    }
}

}  // namespace

int main(int count, char** arguments) {
    try {
        if (count > 1 && std::string_view(arguments[1]) == "handle") {
            std::signal(SIGTERM, [](int /*number*/) {});
        }
        train();
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "stop_probe: " << error.what() << "\n";
        return 1;
    }
}
