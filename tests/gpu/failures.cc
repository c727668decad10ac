// SPDX-License-Identifier: Apache-2.0
// Time until the survivors notice a failure.
#include <csignal>
#include <cstdio>
#include <vector>

#include "tests/gpu/checks.h"
#include "tests/gpu/device_values.h"
#include "tests/gpu/ranks.h"

namespace regroup::gpu {
namespace {

constexpr std::size_t kFailingElements = 1'000'000;
/// The documented limit is below one second. A machine that shares its GPU gets more time.
constexpr double kAtOnceMs = 5000;

std::unique_ptr<ProcessGroup> form(const Context& context, std::chrono::seconds timeout) {
    auto group = ProcessGroup::create("nccl", context, {.timeout = timeout});
    cuda::set_device(group->device());
    group->barrier().wait();
    return group;
}

/// The error that `body` throws.
Error error_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& error) {
        return error;
    }
    throw Error(Errc::system, "no error came");
}

void require_text(const Error& error, const std::string& text) {
    require(std::string(error.what()).find(text) != std::string::npos,
            "\"" + text + "\" is not in: " + error.what());
}

}  // namespace

bool check_abort(const Context& context) {
    const auto group = form(context, std::chrono::seconds(60));
    DeviceValues<float> values(kFailingElements, group->device());
    if (context.rank == 1) {
        // Never takes part in the collective.
        return report(context, "abort", [&] {
            context.store()->wait({"blocked"}, std::chrono::seconds(60));
            group->abort("enough of it");
            require(error_of([&] { group->barrier().wait(); }).code() == Errc::fenced, "fenced");
            context.store()->wait({"released"}, std::chrono::seconds(60));
        });
    }
    return report(context, "abort by the peer reaches a blocked rank", [&] {
        const Work blocked = group->all_reduce(values.view(), ReduceOp::sum);
        const double start = now_ms();
        context.store()->set("blocked", "1");
        const Error error = error_of([&] { blocked.wait(); });
        const double took = now_ms() - start;
        std::printf("note released %.1f ms after abort: %s\n", took, error.what());
        context.store()->set("released", "1");
        require_text(error, "rank 1");
        require(took < kAtOnceMs, "it took too long");
    });
}

bool check_kill(const Context& context) {
    const auto group = form(context, std::chrono::seconds(60));
    DeviceValues<float> values(kFailingElements, group->device());
    if (context.rank == 1) {
        for (int i = 0; i < 10; ++i) {
            group->all_reduce(values.view(), ReduceOp::max).wait();
        }
        context.store()->set("killed_at", std::to_string(now_ms()));
        (void)::raise(SIGKILL);
    }
    return report(context, "kill -9 of the peer", [&] {
        const Error error = error_of([&] {
            while (true) {
                group->all_reduce(values.view(), ReduceOp::max).wait();
            }
        });
        // Both processes are on one machine and share the clock.
        const double took = now_ms() - std::stod(context.store()->get("killed_at"));
        std::printf("note error %.1f ms after kill -9: %s\n", took, error.what());
        require_text(error, "rank 1");
        require(took < kAtOnceMs, "it took too long");
    });
}

bool check_deadline(const Context& context) {
    if (context.rank == 1) {
        context.store()->wait({"over"}, std::chrono::seconds(60));
        return true;
    }
    return report(context, "deadline of a group that never forms", [&] {
        const Error error = error_of([&] { (void)form(context, std::chrono::seconds(2)); });
        context.store()->set("over", "1");
        require(error.code() == Errc::deadline_exceeded, error.what());
        require_text(error, "these have not come within 2.0 s: 1");
    });
}

}  // namespace regroup::gpu
