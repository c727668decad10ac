// SPDX-License-Identifier: Apache-2.0
//
// A worker that saves a snapshot in each step, until the file $PROBE_DIR/finish is there. Each rank
// has some rows of a matrix whose elements tell the step. Marks as those of elastic_probe.cc:
//
//     up         the step that was loaded, or "none", and whether the matrix is that of the step
//     kept       when three steps more than at the start are kept: the newest of them
//     done       the last step
//
// Where $PROBE_DIR/crash.RANK is there, that rank dies in the middle of its next save, once.
#include <regroup/regroup.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::uint64_t kRows = 12;
constexpr std::uint64_t kColumns = 1U << 18U;

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

/// The rows of this rank, in memory of whole pages.
class Rows {
   public:
    explicit Rows(const regroup::Context& context)
        : first_(context.rank * kRows / context.world_size),
          count_((context.rank + 1) * kRows / context.world_size - first_),
          bytes_(count_ * kColumns * sizeof(float)),
          memory_(static_cast<float*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}

    [[nodiscard]] std::span<float> values() const { return {memory_, count_ * kColumns}; }
    [[nodiscard]] regroup::TensorPiece piece() const {
        return {{count_, kColumns}, {first_, 0}, {kRows, kColumns}};
    }
    void set(std::uint64_t step) const {
        for (std::uint64_t row = 0; row < count_; ++row) {
            std::ranges::fill(values().subspan(row * kColumns, kColumns), value(step, row));
        }
    }
    [[nodiscard]] bool are_of(std::uint64_t step) const {
        for (std::uint64_t row = 0; row < count_; ++row) {
            const auto expected = value(step, row);
            if (!std::ranges::all_of(values().subspan(row * kColumns, kColumns),
                                     [&](float each) { return each == expected; })) {
                return false;
            }
        }
        return true;
    }
    /// A process that reads all of it dies in the middle.
    void tear() const {
        static_cast<void>(
            ::mprotect(reinterpret_cast<std::byte*>(memory_) + bytes_ / 2, bytes_ / 2, PROT_NONE));
    }

   private:
    [[nodiscard]] float value(std::uint64_t step, std::uint64_t row) const {
        return static_cast<float>(step * 100 + first_ + row);
    }

    const std::uint64_t first_;
    const std::uint64_t count_;
    const std::size_t bytes_;
    float* const memory_;
};

void train() {
    const regroup::Context context = regroup::Context::from_environment();
    const Rows rows(context);
    regroup::Snapshot snapshot(context);
    snapshot.add("matrix", rows.values(), rows.piece());
    const std::optional<std::uint64_t> loaded = snapshot.load();
    mark("up", context,
         "loaded=" + (loaded ? std::to_string(*loaded) : "none") +
             "\nintact=" + (!loaded || rows.are_of(*loaded) ? "yes" : "no") + "\n");
    const std::uint64_t first = loaded.value_or(0) + 1;
    std::uint64_t step = first;
    const auto group = regroup::ProcessGroup::create("cpu", context);
    for (bool is_kept = false;; ++step) {
        std::vector<std::int64_t> finish{is_there("finish") ? 1 : 0};
        group->all_reduce(std::span(finish), regroup::ReduceOp::max).wait();
        if (finish[0] != 0) {
            break;
        }
        rows.set(step);
        const std::string crash = "crash." + std::to_string(context.rank);
        if (is_there(crash)) {
            std::filesystem::remove(folder() + "/" + crash);
            rows.tear();
        }
        if (!snapshot.save(step)) {
            std::cerr << "step " << step << " is not kept\n";
        }
        const auto kept = snapshot.kept_step();
        if (!is_kept && kept && *kept >= first + 3) {
            is_kept = true;
            mark("kept", context, "step=" + std::to_string(*kept) + "\n");
        }
    }
    static_cast<void>(snapshot.wait_until_whole(std::chrono::seconds(20)));
    mark("done", context, "step=" + std::to_string(step - 1) + "\n");
}

}  // namespace

int main() {
    try {
        train();
        return 0;
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
}
