// SPDX-License-Identifier: Apache-2.0
// The flight recorder: what a process's groups have done last.
#include <regroup/flight_recorder.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/base/flight_recorder.h"

namespace regroup {
namespace {

using testing::World;
using Json = nlohmann::json;

/// The entries of the groups called `name`.
std::vector<Json> entries_of(const Json& record, const std::string& name) {
    std::vector<Json> entries;
    for (const Json& entry : record.at("entries")) {
        if (entry.at("process_group").at(1) == name) {
            entries.push_back(entry);
        }
    }
    return entries;
}

TEST(FlightRecorder, OperationsHaveNumbersSizesStatesAndTimes) {
    World world(2);
    world.options.name = "recorded";
    run_ranks(world, [](ProcessGroup& group) {
        std::array<float, 3> values{};
        group.all_reduce(values, ReduceOp::sum).wait();
        if (group.rank() == 0) {
            group.send(values, 1, 4).wait();
        } else {
            group.recv(values, 0, 4).wait();
        }
        group.barrier().wait();
    });
    const Json record = Json::parse(flight_record());
    const std::vector<Json> entries = entries_of(record, "recorded");
    ASSERT_EQ(entries.size(), 6U);
    std::size_t messages = 0;
    for (const Json& entry : entries) {
        EXPECT_EQ(entry.at("state"), "completed");
        EXPECT_LE(entry.at("time_created_ns"), entry.at("time_discovered_started_ns"));
        EXPECT_LE(entry.at("time_discovered_started_ns"), entry.at("time_discovered_completed_ns"));
        const std::string name = entry.at("profiling_name");
        if (name == "gloo:all_reduce") {
            EXPECT_EQ(entry.at("collective_seq_id"), 1);
            EXPECT_EQ(entry.at("input_sizes"), Json::parse("[[3]]"));
            EXPECT_EQ(entry.at("input_dtypes"), Json::parse("[\"Float\"]"));
        }
        if (entry.at("is_p2p")) {
            ++messages;
            EXPECT_THAT(name, ContainsRegex("gloo:(send 0->1|recv 1<-0)"));
            EXPECT_EQ(entry.at("p2p_seq_id"), 1);
        }
    }
    EXPECT_EQ(messages, 2U);
    const std::string group = entries.front().at("process_group").at(0);
    EXPECT_EQ(record.at("pg_config").at(group).at("ranks"), "[0, 1]");
    EXPECT_EQ(record.at("pg_status").at(group).at("last_completed_collective"), 2);
}

TEST(FlightRecorder, HangingOperationIsTheLastOneAndTheOthersStandingsAreKnown) {
    World world(3);
    world.options.name = "hanging";
    std::atomic<bool> seen = false;
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() != 2) {
            EXPECT_FALSE(error_of(group.barrier()));
            return;
        }
        std::vector<Json> waiting;
        const auto deadline = std::chrono::steady_clock::now() + testing::kPatience;
        while (waiting.size() < 2 && std::chrono::steady_clock::now() < deadline) {
            const Json record = Json::parse(flight_record());
            waiting.clear();
            for (const Json& entry : entries_of(record, "hanging")) {
                if (entry.at("state") == "started" && entry.at("collective_seq_id") == 2) {
                    waiting.push_back(entry);
                }
            }
            for (const auto& [number, standings] : record.at("standings").items()) {
                for (const auto& [rank, text] : standings.items()) {
                    seen = seen || (rank == "2" && text == "after barrier #1");
                }
            }
            std::this_thread::yield();
        }
        EXPECT_EQ(waiting.size(), 2U);
        // The ranks that wait learn about the others.
        while (!seen && std::chrono::steady_clock::now() < deadline) {
            const Json record = Json::parse(flight_record());
            for (const Json& standings : record.at("standings")) {
                seen = seen || (standings.contains("2") && standings["2"] == "after barrier #1");
            }
            std::this_thread::yield();
        }
        EXPECT_TRUE(seen);
        group.barrier().wait();
    });
}

TEST(FlightRecorder, KeepsTheLatestOperationsOfManyGroups) {
    FlightRecorder recorder;
    for (std::uint32_t i = 0; i < 2 * FlightRecorder::kGroupsMax; ++i) {
        EXPECT_EQ(recorder.add({.name = "g\"\n", .backend = "nccl"}), i);
    }
    const Instant now = SteadyClock().now();
    const std::uint64_t first = recorder.issued(0, {.name = "barrier", .number = 1}, now);
    for (std::uint64_t i = 0; i < FlightRecorder::kEntriesMax; ++i) {
        const std::uint64_t entry = recorder.issued(2 * FlightRecorder::kGroupsMax - 1,
                                                    {.name = "barrier", .number = i + 1}, now);
        recorder.started(entry, now);
    }
    recorder.completed(first, now);  // Overwritten: changes nothing.
    const Json record = Json::parse(recorder.json());
    ASSERT_EQ(record.at("entries").size(), FlightRecorder::kEntriesMax);
    EXPECT_EQ(record.at("entries").back().at("collective_seq_id"), FlightRecorder::kEntriesMax);
    EXPECT_EQ(record.at("entries").back().at("process_group").at(1), "g\"\n");
    EXPECT_EQ(record.at("entries").front().at("state"), "started");
}

TEST(FlightRecorder, LinkAtTheNameOfTheFileIsReplacedAndNotFollowed) {
    namespace fs = std::filesystem;
    const std::string pid = std::to_string(::getpid());
    const fs::path folder = fs::temp_directory_path() / ("flight_link." + pid);
    fs::create_directory(folder);
    std::ofstream(folder / "precious") << "precious";
    for (const std::string& name : {"record." + pid + ".partial", std::string("record")}) {
        fs::create_symlink(folder / "precious", folder / name);
    }
    save_flight_record((folder / "record").string());
    EXPECT_EQ(fs::file_size(folder / "precious"), 8U);
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder / "record")));
    fs::remove_all(folder);
}

TEST(FlightRecorder, FailedGroupAndSignalWriteTheFile) {
    const auto folder =
        std::filesystem::temp_directory_path() / ("flight_record." + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    configure_flight_record((folder / "record_").string(), SIGUSR2);
    set_flight_record_place(7, 0);
    run_ranks(2, [](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 0) {
            EXPECT_TRUE(error_of(group.barrier()));
        }
    });
    const auto file = folder / "record_7";
    const auto read = [&] {
        std::ifstream in(file);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    // The group writes after its callers know.
    const auto written = [&] {
        const auto deadline = std::chrono::steady_clock::now() + testing::kPatience;
        while (!std::filesystem::exists(file) && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();
        }
        return std::filesystem::exists(file);
    };
    ASSERT_TRUE(written());
    EXPECT_THAT(read(), HasSubstr("barrier"));
    std::filesystem::remove(file);
    ASSERT_EQ(::raise(SIGUSR2), 0);
    ASSERT_TRUE(written());
    EXPECT_NO_THROW((void)Json::parse(read()));
    configure_flight_record("", 0);
    EXPECT_EQ(error_of([] { save_flight_record("/no/such/folder/file"); })->code(), Errc::system);
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace regroup
