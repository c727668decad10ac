// SPDX-License-Identifier: Apache-2.0
// Flight records and saved stacks, as other programs write them.
#include "agent/explain/flight_record.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/explain/plain_data.h"
#include "agent/explain/stack_text.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

std::string bytes_of(std::string_view hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    }
    return bytes;
}

Result<nlohmann::json> read_all(std::string_view bytes) {
    return read_plain_data(bytes, "", [](const nlohmann::json&) { return Result<void>(); });
}

// As PyTorch 2.15 writes it for gloo: the state never changes, and the group has no ranks.
constexpr const char* kGloo = R"({"comm_lib_version":"","entries":[
{"collective_seq_id":1,"input_dtypes":["Float"],"input_sizes":[[4,3]],"is_p2p":false,"op_id":1,
 "output_dtypes":["Float"],"output_sizes":[[4,3]],"p2p_seq_id":0,"pg_id":0,
 "process_group":["0","default_pg"],"profiling_name":"gloo:all_reduce","record_id":0,
 "retired":true,"state":"scheduled","time_created_ns":1,"timeout_ms":1800000},
{"collective_seq_id":2,"input_dtypes":["Float"],"input_sizes":[[4,3]],"is_p2p":false,"op_id":2,
 "output_dtypes":["Float"],"output_sizes":[[4,3]],"p2p_seq_id":0,"pg_id":0,
 "process_group":["0","default_pg"],"profiling_name":"gloo:broadcast","record_id":1,
 "retired":false,"state":"scheduled","time_created_ns":1,"timeout_ms":1800000}],
"nccl_comm_state":{},"pg_config":{"":{"desc":"","name":"","ranks":"[0, 1]"}},
"pg_status":{"0":{"last_completed_collective":"1"}},"version":"2.10"})";

TEST(FlightRecordReader, ReadsTheRecordOfPyTorchForGloo) {
    const Result<FlightRecord> record = read_flight_record(kGloo);
    ASSERT_TRUE(record) << record.error().detail;
    EXPECT_EQ(record->recorder, Recorder::pytorch);
    ASSERT_THAT(record->groups, SizeIs(1));
    const RecordedGroup& group = record->groups[0];
    EXPECT_EQ(group.backend, "gloo");
    EXPECT_EQ(group.name, "default_pg");
    EXPECT_THAT(group.ranks, IsEmpty());
    ASSERT_THAT(group.operations, SizeIs(2));
    EXPECT_TRUE(group.operations[0].completed);
    EXPECT_FALSE(group.operations[1].completed);
    EXPECT_EQ(group.operations[1].name, "broadcast");
    EXPECT_EQ(group.operations[1].number, 2U);
    EXPECT_EQ(group.operations[1].elements, 12U);
}

TEST(FlightRecordReader, ReadsMessagesRanksAndRoundsOfTheSdk) {
    const Result<FlightRecord> record = read_flight_record(
        R"({"version": "2.10", "pg_config": {"3": {"name": "3", "desc": "g", "ranks": "[4, 6]",
            "round": 5}}, "standings": {}, "entries": [
            {"process_group": ["3", "g"], "collective_seq_id": 0, "p2p_seq_id": 2,
             "profiling_name": "gloo:recv 1<-0", "input_sizes": [[3]], "input_dtypes": ["Long"],
             "state": "started", "retired": false, "is_p2p": true}]})");
    ASSERT_TRUE(record) << record.error().detail;
    EXPECT_EQ(record->recorder, Recorder::sdk);
    const RecordedGroup& group = record->groups.at(0);
    EXPECT_THAT(group.ranks, ElementsAre(4, 6));
    EXPECT_EQ(group.round, 5U);
    EXPECT_EQ(group.backend, "cpu");
    EXPECT_TRUE(group.operations.at(0).is_message);
    EXPECT_EQ(group.operations[0].name, "recv");
    EXPECT_EQ(group.operations[0].number, 2U);
    EXPECT_EQ(group.operations[0].peer, 0U);
    EXPECT_TRUE(group.operations[0].started);
}

TEST(FlightRecordReader, KeepsTheLastOperationsOfALongRecord) {
    nlohmann::json record{{"version", "2.10"}, {"entries", nlohmann::json::array()}};
    const std::size_t count = 5 * kOperationsKept;
    for (std::size_t i = 1; i <= count; ++i) {
        record["entries"].push_back(
            {{"collective_seq_id", i}, {"profiling_name", "nccl:all_reduce"}, {"pg_id", 0}});
    }
    const Result<FlightRecord> read = read_flight_record(record.dump());
    ASSERT_TRUE(read);
    const auto& operations = read->groups.at(0).operations;
    EXPECT_GE(operations.size(), kOperationsKept);
    EXPECT_LT(operations.size(), 2 * kOperationsKept);
    EXPECT_EQ(operations.back().number, count);
}

TEST(FlightRecordReader, RefusesWhatIsNoRecord) {
    for (const std::string text : {"", "{", "[]", "null", "{}", "{\"version\": 3}", "\x80"}) {
        EXPECT_FALSE(read_flight_record(text)) << text;
    }
    // Wrong types of fields are no error: the fields count as missing.
    const auto odd = read_flight_record(
        R"({"version": "1", "entries": [3, {"process_group": 7, "input_sizes": "x",
            "frames": 1, "profiling_name": {}}], "pg_config": []})");
    ASSERT_TRUE(odd);
    EXPECT_THAT(odd->groups, SizeIs(1));
}

TEST(FlightRecordReader, RanksAreAListWithRanges) {
    EXPECT_THAT(read_ranks("[0, 2, 5-7]"), ElementsAre(0, 2, 5, 6, 7));
    EXPECT_THAT(read_ranks(""), IsEmpty());
    EXPECT_THAT(read_ranks("[0, x, 3]"), ElementsAre(0));
    EXPECT_THAT(read_ranks("0-99999999999"), ElementsAre(0));
    EXPECT_LE(read_ranks("[0-131071, 0-131071]").size(), 131072U);
}

TEST(Pickle, ReadsPlainDataOfBothProtocols) {
    // pickle.dumps({"a": [1, -2, 300, 70000, 2**40], "b": (None, True, 1.5), "c": {7: "x"}}, 2)
    const Result<nlohmann::json> value = read_all(
        bytes_of("80027d71002858010000006171015d7102284b014afeffffff4d2c014a701101008a060000000000"
                 "016558010000006271034e88473ff800000000000087710458010000006371057d71064b07580100"
                 "000078710773752e"));
    ASSERT_TRUE(value) << value.error().detail;
    EXPECT_EQ(*value, nlohmann::json::parse(
                          R"({"a": [1, -2, 300, 70000, 1099511627776],
                              "b": [null, true, 1.5], "c": {"7": "x"}})"));
    // pickle.dumps(["a", "a"], 4)
    const Result<nlohmann::json> list =
        read_all(bytes_of("8004950b000000000000005d94288c0161946801652e"));
    ASSERT_TRUE(list) << list.error().detail;
    EXPECT_EQ(*list, nlohmann::json::parse(R"(["a", "a"])"));
}

TEST(Pickle, NamesNoClassAndCallsNothing) {
    // os.system("true")
    EXPECT_THAT(read_all(bytes_of("8002") + "cposix\nsystem\n" + bytes_of("5804000000") + "true" +
                         bytes_of("85") + "R."),
                fails("the instruction 99"));
}

TEST(Pickle, ListOfItselfAndBombsAreRefused) {
    EXPECT_FALSE(read_all(bytes_of("80025d71006800612e")));
    // Each list has the one before it ten times.
    std::string bomb = bytes_of("80025d7100");
    for (char i = 0; i < 20; ++i) {
        bomb += "](";
        for (int k = 0; k < 10; ++k) {
            bomb += std::string("h") + i;
        }
        bomb += std::string("eq") + static_cast<char>(i + 1);
    }
    EXPECT_FALSE(read_all(bomb + "."));
    EXPECT_FALSE(read_all("\x80\x02" + std::string(100, '(') + "."));
    EXPECT_FALSE(read_all(bytes_of("800258ffffffff")));
    EXPECT_FALSE(read_all(""));
}

TEST(PlainData, RowsArePassedOneByOneAndNotKept) {
    std::vector<std::string> rows;
    const auto take = [&](const nlohmann::json& row) {
        return rows.push_back(row.dump()), Result<void>();
    };
    const auto rest = read_plain_data(
        R"({"a": {"rows": [9]}, "rows": [1, [2, 3], {"rows": [4]}], "b": 5})", "rows", take);
    ASSERT_TRUE(rest);
    EXPECT_THAT(rows, ElementsAre("1", "[2,3]", R"({"rows":[4]})"));
    EXPECT_EQ(rest->dump(), R"({"a":{"rows":[9]},"b":5,"rows":[]})");

    // pickle.dumps({"rows": [1, "x"], "b": 5}, 2)
    rows.clear();
    const auto pickled = read_plain_data(
        bytes_of("80027d7100285804000000726f777371015d7102284b01580100000078710365580100000062"
                 "71044b05752e"),
        "rows", take);
    ASSERT_TRUE(pickled) << pickled.error().detail;
    EXPECT_THAT(rows, ElementsAre("1", R"("x")"));
    EXPECT_EQ(pickled->dump(), R"({"b":5,"rows":[]})");

    const auto refused = read_plain_data(R"({"rows": [1, 2]})", "rows", [](const nlohmann::json&) {
        return Result<void>(invalid_argument("no more"));
    });
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().detail, "no more");
}

// Twenty thousand operations, each with thirty frames that the pickle names again.
TEST(PlainData, LongRecordWithStacksIsRead) {
    std::string record = bytes_of("80027d28") + bytes_of("580700000076657273696f6e58010000003158");
    record += bytes_of("07000000") + "entries](";
    std::string frames;
    for (char i = 0; i < 30; ++i) {
        frames += std::string("h") + i;
    }
    for (int i = 0; i < 20'000; ++i) {
        record += "}(";
        record += bytes_of("580600000066") + "rames](";
        if (i == 0) {
            for (char frame = 0; frame < 30; ++frame) {
                record += "}(" + bytes_of("58040000006e616d65") + bytes_of("580100000066") +
                          bytes_of("58040000006c696e65") + "K" + frame + "uq" + frame;
            }
        } else {
            record += frames;
        }
        record += "e";
        for (char field = 'a'; field < 'u'; ++field) {
            record += bytes_of("5801000000") + field + bytes_of("8a08") + "12345678";
        }
        record += "u";
    }
    record += "eu.";
    ASSERT_LT(record.size(), kFileBytesMax);
    const auto read = read_flight_record(record);
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_GE(read->groups.at(0).operations.size(), kOperationsKept);
    EXPECT_THAT(read->groups[0].operations.back().frames, SizeIs(8));
}

TEST(StackText, FramesOfTheFirstThreadAreRead) {
    const std::string eu_stack =
        "job j\nrank 3, pid 40\n\nBy eu-stack:\nPID 40 - process\nTID 41:\n#0  0x01 poll - /c.so\n"
        "TID 40:\n#0  0x00007f nanosleep - /lib/libc.so.6\n    ../sysdeps/x.c:25:10\n"
        "#1  0x00005 load_batch(int) - /bin/train\n    train.cc:7:1\n#2  0x5 main - /bin/train\n"
        "TID 42:\n#0  0x02 other - /d.so\n";
    EXPECT_THAT(top_frames(eu_stack, 40), ElementsAre("nanosleep", "load_batch(int)", "main"));
    EXPECT_THAT(top_frames(eu_stack, 40, 1), ElementsAre("nanosleep"));
    const std::string gdb =
        "Thread 2 (Thread 0x7f (LWP 8)):\n#0  0x1 in poll () from /c.so\n\n"
        "Thread 1 (Thread 0x7f (LWP 7)):\n#0  0x00007f in pause () from /lib/libc.so.6\n"
        "#1  main (argc=1) at main.cc:3\n";
    EXPECT_THAT(top_frames(gdb, 7), ElementsAre("pause", "main"));
    const std::string python =
        "By py-spy:\nProcess 7: python3 train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
        "Thread 7 (active+gil): \"MainThread\"\n    match (re/__init__.py:166)\n"
        "    load_batch (train.py:6)\nThread 9 (idle): \"Thread-1\"\n    wait (threading.py:320)\n";
    EXPECT_THAT(top_frames(python, 7),
                ElementsAre("match (re/__init__.py:166)", "load_batch (train.py:6)"));
    EXPECT_THAT(top_frames(gdb + python, 7, 1), ElementsAre("match (re/__init__.py:166)"));
    EXPECT_THAT(top_frames(gdb + "By py-spy:\nError: Permission denied\n", 7),
                ElementsAre("pause", "main"));
    EXPECT_THAT(top_frames("As the kernel sees it:\nthread 7\n", 7), IsEmpty());
}

}  // namespace
}  // namespace regroup::agent
