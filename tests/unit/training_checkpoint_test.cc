// SPDX-License-Identifier: Apache-2.0
#include <regroup/checkpoint.h>
#include <regroup/error.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"
#include "worker_sdk/src/checkpoint/atomic_file.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
   protected:
    [[nodiscard]] std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(directory_)) {
            names.push_back(entry.path().filename().string());
        }
        return names;
    }

    [[nodiscard]] const fs::path& directory() const { return directory_; }
    [[nodiscard]] const fs::path& path() const { return path_; }

   private:
    testing::TemporaryDirectory folder_;
    fs::path directory_ = folder_.path();
    fs::path path_ = directory_ / "model.ckpt";
};

// A checkpoint whose every part follows from `step`.
Checkpoint state_at(std::int64_t step, std::size_t count = 100) {
    Checkpoint checkpoint;
    checkpoint.set_integer("step", step);
    const std::vector<float> weights(count, static_cast<float>(step));
    checkpoint.set_tensor("weights", std::span(weights));
    return checkpoint;
}

// The step of the checkpoint at `path`, after checking that its other parts belong to it.
std::int64_t step_at(const fs::path& path, std::size_t count = 100) {
    const Checkpoint checkpoint = Checkpoint::load(path);
    std::vector<float> weights(count);
    checkpoint.read_tensor("weights", std::span(weights));
    for (const float weight : weights) {
        EXPECT_EQ(weight, static_cast<float>(checkpoint.integer("step")));
    }
    return checkpoint.integer("step");
}

std::string read_all(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_all(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
}

std::string load_error(const fs::path& path) {
    return error_text([&path] { (void)Checkpoint::load(path); });
}

// Runs `body` in a child process and returns its wait status.
int in_child(const std::function<void()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        body();
        ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
}

TEST_F(CheckpointTest, SavedEntriesAreLoaded) {
    const std::vector<float> floats{1.5F, -2.0F};
    const std::vector<double> doubles{1e300};
    const std::vector<std::int32_t> ints{-1, 2, 3};
    const std::vector<std::int64_t> longs{INT64_MIN};
    const std::vector<std::uint8_t> bytes{0, 255};
    Checkpoint saved;
    saved.set_text("note", std::string("two\nlines\0and a zero", 20));
    saved.set_text("empty", "");
    saved.set_integer("step", -7);
    saved.set_number("rate", 0.1);
    saved.set_tensor("floats", std::span(floats));
    saved.set_tensor("doubles", std::span(doubles));
    saved.set_tensor("ints", std::span(ints));
    saved.set_tensor("longs", std::span(longs));
    saved.set_tensor("bytes", std::span(bytes));
    saved.set_tensor("nothing", ConstTensorView(nullptr, 0, DType::float32));
    saved.save(path());

    const Checkpoint loaded = Checkpoint::load(path());
    EXPECT_EQ(loaded.text("note"), std::string("two\nlines\0and a zero", 20));
    EXPECT_EQ(loaded.text("empty"), "");
    EXPECT_EQ(loaded.integer("step"), -7);
    EXPECT_EQ(loaded.number("rate"), 0.1);
    const auto check = [&loaded](const char* name, const auto& expected) {
        std::remove_cvref_t<decltype(expected)> values(expected.size());
        loaded.read_tensor(name, std::span(values));
        EXPECT_EQ(values, expected) << name;
    };
    check("floats", floats);
    check("doubles", doubles);
    check("ints", ints);
    check("longs", longs);
    check("bytes", bytes);
    check("nothing", std::vector<float>());
    EXPECT_TRUE(loaded.contains("step"));
    EXPECT_FALSE(loaded.contains("stop"));
    EXPECT_THAT(files(), UnorderedElementsAre("model.ckpt"));
}

TEST_F(CheckpointTest, ErrorNamesTheEntryAndTheFile) {
    state_at(3).save(path());
    const Checkpoint checkpoint = Checkpoint::load(path());
    std::vector<float> three(3);
    std::vector<double> hundred(100);
    EXPECT_THAT(error_text([&] { (void)checkpoint.integer("epoch"); }),
                saying(path().string(), "has no entry 'epoch'"));
    EXPECT_THAT(error_text([&] { (void)checkpoint.text("step"); }),
                HasSubstr("has 'step' as integer, not as text"));
    EXPECT_THAT(error_text([&] { checkpoint.read_tensor("weights", std::span(three)); }),
                HasSubstr("has 'weights' with 100 elements, not 3"));
    EXPECT_THAT(error_text([&] { checkpoint.read_tensor("weights", std::span(hundred)); }),
                HasSubstr("has 'weights' as float32, not as float64"));
}

TEST_F(CheckpointTest, AbsentFileIsNothingOrAnError) {
    EXPECT_FALSE(Checkpoint::load_if_present(path()).has_value());
    EXPECT_THAT(load_error(path()), saying("system: ", path().string(), "No such file"));
    EXPECT_THAT(load_error(directory()), HasSubstr("Is a directory"));
}

TEST_F(CheckpointTest, TruncationAtEveryByteIsNoticed) {
    state_at(1).save(path());
    const std::string whole = read_all(path());
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        write_all(path(), whole.substr(0, bytes));
        ASSERT_THAT(load_error(path()),
                    AllOf(HasSubstr("invalid_argument: "), HasSubstr("is truncated: "),
                          HasSubstr(path().string())))
            << bytes;
    }
    write_all(path(), whole + "x");
    EXPECT_THAT(load_error(path()), HasSubstr("is too long: "));
}

TEST_F(CheckpointTest, AnyChangedByteIsNoticed) {
    state_at(1).save(path());
    const std::string whole = read_all(path());
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ static_cast<char>(1 << (at % 8)));
        write_all(path(), changed);
        ASSERT_THAT(load_error(path()), HasSubstr("invalid_argument: ")) << at;
    }
    write_all(path(), "some other file, long enough to be a checkpoint");
    EXPECT_THAT(load_error(path()), HasSubstr("is not a checkpoint"));
}

// The kernel kills a writer with SIGXFSZ at the first byte beyond its file size limit, so that
// every place in the file at which a writer can be killed is tried once.
TEST_F(CheckpointTest, WriterKilledAtAnyByteLeavesTheOldCheckpoint) {
    constexpr std::size_t kCount = 20;
    state_at(1, kCount).save(path());
    const std::size_t whole = fs::file_size(path());
    for (std::size_t bytes = 0; bytes <= whole; ++bytes) {
        const int status = in_child([this, bytes] {
            const rlimit no_core{0, 0};
            ::setrlimit(RLIMIT_CORE, &no_core);
            const rlimit limit{bytes, bytes};
            ::setrlimit(RLIMIT_FSIZE, &limit);
            std::signal(SIGXFSZ, SIG_DFL);
            state_at(2, kCount).save(path());
        });
        ASSERT_EQ(WIFSIGNALED(status), bytes < whole);
        ASSERT_EQ(step_at(path(), kCount), bytes < whole ? 1 : 2);
    }
    EXPECT_THAT(files(), UnorderedElementsAre("model.ckpt")) << "the next writer cleans up";
}

TEST_F(CheckpointTest, WriterKilledAtAnyMomentLeavesTheOldOrTheNewCheckpoint) {
    std::mt19937 random(1);
    std::int64_t step = 1;
    state_at(step).save(path(), {.previous_count = 2});
    for (int round = 0; round < 25; ++round) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            for (std::int64_t next = step + 1;; ++next) {
                state_at(next).save(path(), {.previous_count = 2});
            }
        }
        // The kill comes after a random stretch of the parent's own work, not at a chosen moment.
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 4000);
        while (std::chrono::steady_clock::now() < until) {
            ASSERT_GE(step_at(path()), step);
        }
        ASSERT_EQ(::kill(pid, SIGKILL), 0);
        ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
        const std::int64_t found = step_at(path());
        ASSERT_GE(found, step);
        step = found;
    }
    state_at(step).save(path(), {.previous_count = 2});
    state_at(step).save(path(), {.previous_count = 2});
    EXPECT_THAT(files(), UnorderedElementsAre("model.ckpt", "model.ckpt.1", "model.ckpt.2"));
}

TEST_F(CheckpointTest, FullDiskLeavesTheOldCheckpointAndSaysSo) {
    state_at(1).save(path());
    const int status = in_child([this] {
        // A file size limit with its signal ignored fails writes half-way, as a full disk does.
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{100, 100};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const std::string error = error_text([this] { state_at(2).save(path()); });
        const bool clear = error.find("system: saving " + path().string()) == 0 &&
                           error.find("write at byte 100 of") != std::string::npos &&
                           error.find("File too large") != std::string::npos;
        ::_exit(clear ? 0 : 1);
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(step_at(path()), 1);
    EXPECT_THAT(files(), UnorderedElementsAre("model.ckpt"));
}

TEST_F(CheckpointTest, MissingDirectoryIsNamed) {
    EXPECT_THAT(error_text([this] { state_at(1).save(directory() / "absent" / "model.ckpt"); }),
                saying("system: ", "absent/model.ckpt", "No such file or directory"));
}

TEST_F(CheckpointTest, LastFewCheckpointsAreKept) {
    for (std::int64_t step = 1; step <= 5; ++step) {
        state_at(step).save(path(), {.previous_count = 3});
    }
    EXPECT_EQ(step_at(path()), 5);
    EXPECT_EQ(step_at(path().string() + ".1"), 4);
    EXPECT_EQ(step_at(path().string() + ".2"), 3);
    EXPECT_EQ(step_at(path().string() + ".3"), 2);
    EXPECT_EQ(files().size(), 4U);
}

TEST_F(CheckpointTest, FilesOfKilledWritersAreRemovedAndFilesInUseAreNot) {
    const std::string stale = path().string() + ".123-0.partial";
    const std::string busy = path().string() + ".124-0.partial";
    write_all(stale, "left by a killed writer");
    write_all(busy, "of a writer at work");
    write_all(directory() / "other.ckpt.123-0.partial", "of another checkpoint");
    const int fd = ::open(busy.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::flock(fd, LOCK_EX), 0);
    state_at(1).save(path());
    EXPECT_THAT(files(), UnorderedElementsAre("model.ckpt", "model.ckpt.124-0.partial",
                                              "other.ckpt.123-0.partial"));
    ::close(fd);
}

/// Why a file could not be written again and again; empty if it could.
std::string write_often(const fs::path& path) {
    constexpr int kFiles = 1000;
    try {
        for (int i = 0; i < kFiles; ++i) {
            checkpointing::AtomicFile file(path);
            file.write("complete");
            file.publish(0);
        }
    } catch (const Error& failure) {
        return failure.what();
    }
    return "";
}

TEST_F(CheckpointTest, WritersOfOnePathDoNotRemoveEachOthersFiles) {
    // Each removes files of killed writers while the others create and lock their files.
    constexpr int kWriters = 4;
    std::array<std::string, kWriters> errors;
    {
        std::vector<std::jthread> writers;
        for (std::string& error : errors) {
            writers.emplace_back([this, &error] { error = write_often(path()); });
        }
    }
    EXPECT_THAT(errors, Each(std::string()));
    EXPECT_THAT(files(), UnorderedElementsAre("model.ckpt"));
}

TEST_F(CheckpointTest, RelativePathsWork) {
    const int status = in_child([this] {
        fs::current_path(directory());
        state_at(4).save("plain.ckpt");
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(step_at(directory() / "plain.ckpt"), 4);
}

TEST_F(CheckpointTest, LargeTensorsSurvive) {
    constexpr std::size_t kCount = 300'000;
    state_at(6, kCount).save(path());
    EXPECT_EQ(step_at(path(), kCount), 6);
}

}  // namespace
}  // namespace regroup
