// SPDX-License-Identifier: Apache-2.0
//
// Snapshots of programs without an agent: ranks are threads with a store of their own.
#include <regroup/snapshot.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;

/// One start of a job: its ranks as threads, which share a store and a folder.
struct Job {
    std::uint32_t world_size;
    SnapshotOptions options;
    std::shared_ptr<Store> store = make_local_store(kPatience);

    Job(std::uint32_t world_size_in, SnapshotOptions options_in)
        : world_size(world_size_in), options(std::move(options_in)) {}

    void run(const std::function<void(const Context&, Snapshot&)>& body) const {
        run_contexts([&](const Context& context) {
            Snapshot snapshot(context, options);
            body(context, snapshot);
        });
    }
    void run_contexts(const std::function<void(const Context&)>& body) const {
        std::vector<std::jthread> threads;
        for (std::uint32_t rank = 0; rank < world_size; ++rank) {
            threads.emplace_back([&, rank] {
                Context context = testing::context_of_rank(rank, world_size, store);
                context.store_timeout = kPatience;
                try {
                    body(context);
                } catch (const std::exception& error) {
                    ADD_FAILURE() << "rank " << rank << ": " << error.what();
                }
            });
        }
    }
};

std::vector<float> ramp(std::size_t count, float first) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

/// The rows of a matrix that fall to a rank.
TensorPiece rows_of(std::uint32_t rank, std::uint32_t world_size, std::uint64_t rows,
                    std::uint64_t columns) {
    const std::uint64_t begin = rank * rows / world_size;
    const std::uint64_t end = (rank + 1) * rows / world_size;
    return {{end - begin, columns}, {begin, 0}, {rows, columns}};
}
TensorPiece columns_of(std::uint32_t rank, std::uint32_t world_size, std::uint64_t rows,
                       std::uint64_t columns) {
    const std::uint64_t begin = rank * columns / world_size;
    const std::uint64_t end = (rank + 1) * columns / world_size;
    return {{rows, end - begin}, {0, begin}, {rows, columns}};
}

/// The elements of a piece of the matrix in which each element is its number plus `first`.
std::vector<float> piece_values(const TensorPiece& piece, float first) {
    std::vector<float> values;
    for (std::uint64_t row = 0; row < piece.shape[0]; ++row) {
        for (std::uint64_t column = 0; column < piece.shape[1]; ++column) {
            const std::uint64_t number =
                (piece.offset[0] + row) * piece.global_shape[1] + piece.offset[1] + column;
            values.push_back(first + static_cast<float>(number));
        }
    }
    return values;
}

constexpr std::uint64_t kRows = 7;
constexpr std::uint64_t kColumns = 11;

/// Saves the steps of a matrix, of which each rank has some rows.
void save_rows(const Job& job, const std::vector<std::uint64_t>& steps) {
    job.run([&](const Context& context, Snapshot& snapshot) {
        const TensorPiece piece = rows_of(context.rank, context.world_size, kRows, kColumns);
        std::vector<float> values(piece.shape[0] * kColumns);
        std::string text;
        snapshot.add("matrix", values, piece);
        snapshot.add("text", [&] { return text; }, [](std::string_view) {});
        for (const std::uint64_t step : steps) {
            std::ranges::copy(piece_values(piece, static_cast<float>(step)), values.begin());
            text = "rank " + std::to_string(context.rank) + ", step " + std::to_string(step);
            EXPECT_TRUE(snapshot.save(step));
        }
        EXPECT_TRUE(snapshot.wait_until_whole(kPatience));
        EXPECT_EQ(snapshot.whole_step(), steps.back());
    });
}

/// Loads them in another cut of the matrix; gives the step that all ranks got.
std::optional<std::uint64_t> load_matrix(const Job& job,
                                         const std::function<TensorPiece(const Context&)>& cut) {
    std::vector<std::optional<std::uint64_t>> steps(job.world_size);
    job.run([&](const Context& context, Snapshot& snapshot) {
        const TensorPiece piece = cut(context);
        std::vector<float> values(piece.shape[0] * piece.shape[1]);
        snapshot.add("matrix", values, piece);
        std::string text;
        snapshot.add(
            "text", [] { return std::string(); }, [&](std::string_view saved) { text = saved; });
        const auto step = steps[context.rank] = snapshot.load();
        if (step) {
            EXPECT_EQ(values, piece_values(piece, static_cast<float>(*step)));
            EXPECT_THAT(text, ::testing::EndsWith(", step " + std::to_string(*step)));
        } else {
            EXPECT_EQ(values, std::vector<float>(values.size()));
        }
    });
    EXPECT_EQ(std::ranges::count(steps, steps.front()), std::ssize(steps));
    return steps.front();
}

TensorPiece rows_of_rank(const Context& context) {
    return rows_of(context.rank, context.world_size, kRows, kColumns);
}

/// The files of the parts, the latest version first.
std::vector<fs::path> part_files(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (entry.path().extension() == ".safetensors") {
            files.push_back(entry.path());
        }
    }
    std::ranges::sort(files, std::greater<>());
    return files;
}

void flip_byte(const fs::path& file, std::uint64_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
}

TEST(Snapshot, GivesNothingWhereNothingWasSaved) {
    const TemporaryDirectory folder;
    EXPECT_EQ(load_matrix(Job(3, {.folder = folder.path()}), rows_of_rank), std::nullopt);
    EXPECT_EQ(load_matrix(Job(1, {}), rows_of_rank), std::nullopt);
}

TEST(Snapshot, GivesTheNewestWholeStepToTheNextStart) {
    const TemporaryDirectory folder;
    save_rows(Job(3, {.folder = folder.path()}), {10, 20, 30, 40});
    EXPECT_EQ(load_matrix(Job(3, {.folder = folder.path()}), rows_of_rank), 40);
}

TEST(Snapshot, IsLoadedByOtherNumbersOfRanksAndOtherCuts) {
    const TemporaryDirectory folder;
    save_rows(Job(3, {.folder = folder.path()}), {10});
    for (const std::uint32_t world_size : {1U, 2U, 3U, 4U, 6U}) {
        const Job job(world_size, {.folder = folder.path()});
        EXPECT_EQ(load_matrix(job, rows_of_rank), 10);
        EXPECT_EQ(load_matrix(job,
                              [](const Context& context) {
                                  return columns_of(context.rank, context.world_size, kRows,
                                                    kColumns);
                              }),
                  10);
        EXPECT_EQ(
            load_matrix(
                job, [](const Context&) { return TensorPiece{{3, 4}, {2, 5}, {kRows, kColumns}}; }),
            10);
    }
}

TEST(Snapshot, StateThatEachRankHasAllOfIsLoadedByAnyNumberOfRanks) {
    const TemporaryDirectory folder;
    for (const bool replicated : {false, true}) {
        const SnapshotOptions options{.name = replicated ? "replicated" : "each",
                                      .replicated = replicated,
                                      .folder = folder.path()};
        Job(2, options).run([&](const Context&, Snapshot& snapshot) {
            std::vector<float> weights = ramp(1000, 5);
            snapshot.add("weights", weights);
            EXPECT_TRUE(snapshot.save(3));
            EXPECT_TRUE(snapshot.wait_until_whole(kPatience));
        });
        for (const std::uint32_t world_size : {1U, 2U, 5U}) {
            Job(world_size, options).run([&](const Context&, Snapshot& snapshot) {
                std::vector<float> weights(1000);
                snapshot.add("weights", weights);
                EXPECT_EQ(snapshot.load(), 3);
                EXPECT_EQ(weights, ramp(1000, 5));
            });
        }
    }
    EXPECT_EQ(part_files(folder / "replicated").size(), 1);
    EXPECT_EQ(part_files(folder / "each").size(), 2);
}

TEST(Snapshot, DamagedPartMakesAllRanksGoBackToTheStepBefore) {
    const TemporaryDirectory folder;
    save_rows(Job(2, {.folder = folder.path()}), {10});
    save_rows(Job(2, {.folder = folder.path()}), {20});
    const std::vector<fs::path> files = part_files(folder.path());
    ASSERT_EQ(files.size(), 4);
    const std::uint64_t bytes = fs::file_size(files[0]);
    for (const std::uint64_t at : {std::uint64_t{3}, std::uint64_t{100}, bytes / 2, bytes - 1}) {
        flip_byte(files[0], at);
        EXPECT_EQ(load_matrix(Job(2, {.folder = folder.path()}), rows_of_rank), 10);
        EXPECT_EQ(load_matrix(Job(3, {.folder = folder.path()}), rows_of_rank), 10);
        flip_byte(files[0], at);
    }
    EXPECT_EQ(load_matrix(Job(2, {.folder = folder.path()}), rows_of_rank), 20);
    fs::remove(files[1]);
    EXPECT_EQ(load_matrix(Job(2, {.folder = folder.path()}), rows_of_rank), 10);
    flip_byte(files[2], 100);
    EXPECT_EQ(load_matrix(Job(2, {.folder = folder.path()}), rows_of_rank), std::nullopt);
}

TEST(Snapshot, LoadedTrainingIsLaterThanAllThatWasSavedBefore) {
    const TemporaryDirectory folder;
    save_rows(Job(2, {.folder = folder.path()}), {10, 20});
    // Goes on from step 20, and saves earlier steps than before.
    Job(2, {.folder = folder.path()}).run([&](const Context& context, Snapshot& snapshot) {
        const TensorPiece piece = rows_of_rank(context);
        std::vector<float> values(piece.shape[0] * kColumns);
        snapshot.add("matrix", values, piece);
        snapshot.add(
            "text", [] { return std::string("begun again, step 15"); }, [](std::string_view) {});
        EXPECT_EQ(snapshot.load(), 20);
        std::ranges::copy(piece_values(piece, 15), values.begin());
        EXPECT_TRUE(snapshot.save(15));
        EXPECT_TRUE(snapshot.wait_until_whole(kPatience));
        EXPECT_EQ(snapshot.whole_step(), 15);
    });
    EXPECT_EQ(load_matrix(Job(3, {.folder = folder.path()}), rows_of_rank), 15);
}

TEST(Snapshot, StepThatOneRankHasNotSavedIsNotWhole) {
    const TemporaryDirectory folder;
    save_rows(Job(2, {.folder = folder.path()}), {10});
    Job(2, {.folder = folder.path()}).run([&](const Context& context, Snapshot& snapshot) {
        const TensorPiece piece = rows_of_rank(context);
        std::vector<float> values(piece.shape[0] * kColumns);
        snapshot.add("matrix", values, piece);
        snapshot.add("text", [] { return std::string("x, step 10"); }, [](std::string_view) {});
        EXPECT_EQ(snapshot.load(), 10);
        if (context.rank == 0) {
            EXPECT_TRUE(snapshot.save(20));
            EXPECT_FALSE(snapshot.wait_until_whole(std::chrono::milliseconds(20)));
            EXPECT_EQ(snapshot.whole_step(), 10);
            context.interrupt("the test ends the round");
        }
    });
    EXPECT_EQ(load_matrix(Job(2, {.folder = folder.path()}), rows_of_rank), 10);
}

TEST(Snapshot, SaveWaitsForTheRankThatHasNotSavedTheStepBefore) {
    const TemporaryDirectory folder;
    std::promise<void> first_is_saved;
    Job(2, {.folder = folder.path()}).run([&](const Context& context, Snapshot& snapshot) {
        std::vector<float> values(10);
        snapshot.add("values", values);
        EXPECT_EQ(snapshot.load(), std::nullopt);
        if (context.rank == 1) {
            first_is_saved.get_future().wait();
        }
        for (const std::uint64_t step : {1U, 2U, 3U, 4U, 5U}) {
            EXPECT_TRUE(snapshot.save(step));
            if (context.rank == 0 && step == 1) {
                EXPECT_EQ(snapshot.whole_step(), std::nullopt);
                first_is_saved.set_value();
            } else if (context.rank == 0) {
                EXPECT_GE(snapshot.whole_step(), step - 1);
            }
        }
        EXPECT_TRUE(snapshot.wait_until_whole(kPatience));
    });
}

TEST(Snapshot, EndOfTheRoundEndsSaveAndLoad) {
    Job(2, {}).run_contexts([](const Context& context) {
        Snapshot snapshot(context);
        std::vector<float> values(10);
        snapshot.add("values", values);
        EXPECT_EQ(snapshot.load(), std::nullopt);
        if (context.rank == 1) {
            return;
        }
        EXPECT_TRUE(snapshot.save(1));
        std::jthread ending([&] { context.interrupt("the test ends it"); });
        EXPECT_THAT(error_of([&] { snapshot.save(2); }), is_error(Errc::fenced, "the test ends"));
        EXPECT_THAT(error_of([&] { snapshot.save(3); }), is_error(Errc::fenced, "the test ends"));
        EXPECT_THAT(error_of([&] { snapshot.load(); }), is_error(Errc::fenced, "the test ends"));
    });
}

TEST(Snapshot, OneRankMayHaveSeveralPiecesOfATensor) {
    const TemporaryDirectory folder;
    Job(2, {.folder = folder.path()}).run([](const Context& context, Snapshot& snapshot) {
        // Rows 0 and 2 are on rank 0, rows 1 and 3 on rank 1.
        std::vector<std::vector<float>> rows;
        for (std::uint64_t i = 0; i < 2; ++i) {
            const TensorPiece piece{{1, 5}, {context.rank + 2 * i, 0}, {4, 5}};
            rows.push_back(piece_values(piece, 1));
            snapshot.add(i == 0 ? "matrix" : "matrix#1", rows.back(), piece);
        }
        EXPECT_TRUE(snapshot.save(1));
        EXPECT_TRUE(snapshot.wait_until_whole(kPatience));
        EXPECT_THAT(error_of([&] { snapshot.add("other#1", rows[0], {{1, 5}, {0, 0}, {1, 5}}); }),
                    is_error(Errc::invalid_argument, "other#1", "no piece"));
    });
    Job(1, {.folder = folder.path()}).run([](const Context&, Snapshot& snapshot) {
        const TensorPiece left{{4, 3}, {0, 0}, {4, 5}};
        const TensorPiece right{{4, 2}, {0, 3}, {4, 5}};
        std::vector<float> left_values(12);
        std::vector<float> right_values(8);
        snapshot.add("matrix", left_values, left);
        snapshot.add("matrix#1", right_values, right);
        EXPECT_EQ(snapshot.load(), 1);
        EXPECT_EQ(left_values, piece_values(left, 1));
        EXPECT_EQ(right_values, piece_values(right, 1));
    });
}

TEST(Snapshot, TensorThatWasNotSavedIsNamed) {
    const TemporaryDirectory folder;
    save_rows(Job(2, {.folder = folder.path()}), {10});
    Job(2, {.folder = folder.path()}).run([&](const Context&, Snapshot& snapshot) {
        std::vector<float> values(10);
        snapshot.add("bias", values);
        EXPECT_THAT(error_of([&] { snapshot.load(); }),
                    is_error(Errc::invalid_argument, "\"bias\"", "no such tensor"));
    });
    Job(2, {.folder = folder.path()}).run([&](const Context&, Snapshot& snapshot) {
        std::vector<double> values(kRows * kColumns);
        snapshot.add("matrix", values, {{kRows, kColumns}, {0, 0}, {kRows, kColumns}});
        EXPECT_THAT(error_of([&] { snapshot.load(); }),
                    is_error(Errc::invalid_argument, "\"matrix\"", "F32", "F64"));
    });
    Job(2, {.folder = folder.path()}).run([&](const Context&, Snapshot& snapshot) {
        snapshot.add("words", [] { return std::string(); }, [](std::string_view) {});
        EXPECT_THAT(error_of([&] { snapshot.load(); }),
                    is_error(Errc::invalid_argument, "\"words\"", "no such entry"));
    });
}

TEST(Snapshot, WrongCallsAreRefused) {
    EXPECT_THAT(error_of([] { Snapshot(Context(), {.name = "a/b"}); }),
                is_error(Errc::invalid_argument, "\"a/b\""));
    const Context context;
    Snapshot snapshot(context);
    const Snapshot other(context, {.name = "other"});
    std::vector<float> values(10);
    snapshot.add("values", values);
    EXPECT_THAT(error_of([&] { snapshot.add("values", values); }),
                is_error(Errc::invalid_argument, "\"values\"", "twice"));
    EXPECT_THAT(error_of([&] { snapshot.add("piece", values, {{5, 2}, {0, 0}, {5, 1}}); }),
                is_error(Errc::invalid_argument, "\"piece\"", "not within"));
    EXPECT_THAT(error_of([&] { snapshot.add("piece", values, {{3}, {0}, {5}}); }),
                is_error(Errc::invalid_argument, "\"piece\"", "3 elements", "10"));
    EXPECT_TRUE(snapshot.save(5));
    Snapshot second{Context()};
    EXPECT_EQ(second.load(), std::nullopt);
    EXPECT_THAT(error_of([&] { second.save(6); }),
                is_error(Errc::invalid_argument, "another Snapshot \"state\""));
    EXPECT_THAT(error_of([&] { snapshot.save(5); }),
                is_error(Errc::invalid_argument, "step 5", "after step 5"));
}

TEST(Snapshot, ForkedChildIsRefused) {
    const Context context;
    auto own = std::make_unique<Snapshot>(context);
    Snapshot& snapshot = *own;
    std::vector<float> values(10);
    snapshot.add("values", values);
    EXPECT_TRUE(snapshot.save(1));
    const pid_t child = ::fork();
    if (child == 0) {
        const auto error = error_of([&] { snapshot.save(2); });
        own.reset();
        ::_exit(error && error->code() == Errc::invalid_argument ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(snapshot.save(2));
    EXPECT_TRUE(snapshot.wait_until_whole(kPatience));
}

TEST(Snapshot, BytesThatGrowGetALargerMemory) {
    const TemporaryDirectory folder;
    Job(2, {.folder = folder.path()}).run([&](const Context&, Snapshot& snapshot) {
        std::string text = "short";
        snapshot.add("text", [&] { return text; }, [&](std::string_view saved) { text = saved; });
        for (const std::uint64_t step : {1U, 2U, 3U}) {
            text = std::string(step * 1'000'000, static_cast<char>('a' + step));
            EXPECT_TRUE(snapshot.save(step));
        }
        EXPECT_TRUE(snapshot.wait_until_whole(kPatience));
        text.clear();
        EXPECT_EQ(snapshot.load(), 3);
        EXPECT_TRUE(text == std::string(3'000'000, 'd'));
    });
}

TEST(Snapshot, FolderThatCannotBeWrittenDoesNotEndTheTraining) {
    const TemporaryDirectory folder;
    folder.write("state", "a file where a folder should be");
    save_rows(Job(2, {.folder = folder.path()}), {10, 20, 30});
}

}  // namespace
}  // namespace regroup
