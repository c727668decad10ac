// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/main_process.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace regroup {
namespace {

constexpr std::int64_t kDone = -1;  // Used in place of an Errc.

}  // namespace

void log_main(const Context& context, std::string_view line) {
    if (context.is_main_process()) {
        const std::string whole = std::string(line) + '\n';
        std::fwrite(whole.data(), 1, whole.size(), stdout);
        std::fflush(stdout);
    }
}

void run_on_main(ProcessGroup& group, const std::function<void()>& action) {
    std::array<std::int64_t, 2> outcome{kDone, 0};  // an Errc, and the bytes of the sentence
    std::string sentence;
    std::exception_ptr thrown;
    if (group.rank() == 0) {
        try {
            action();
        } catch (const Error& error) {
            outcome[0] = static_cast<std::int64_t>(error.code());
            sentence = error.what();
            thrown = std::current_exception();
        } catch (const std::exception& error) {
            outcome[0] = static_cast<std::int64_t>(Errc::system);
            sentence = error.what();
            thrown = std::current_exception();
        }
        outcome[1] = static_cast<std::int64_t>(sentence.size());
    }
    group.broadcast(std::span<std::int64_t>(outcome), 0).wait();
    if (outcome[0] == kDone) {
        return;
    }
    std::vector<std::uint8_t> bytes(sentence.begin(), sentence.end());
    bytes.resize(static_cast<std::size_t>(outcome[1]));
    group.broadcast(std::span(bytes), 0).wait();
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    throw Error(static_cast<Errc>(outcome[0]), std::string(bytes.begin(), bytes.end()));
}

}  // namespace regroup
