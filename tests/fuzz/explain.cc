// SPDX-License-Identifier: Apache-2.0
//
// The files of a hang, which workers have written: the first byte chooses whether it is a flight
// record (JSON or pickle), the facts of a node, a stack, or several records of one job.
#include "agent/explain/explanation.h"
#include "agent/explain/stack_text.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_explain {
namespace {

using namespace regroup::agent;

void check_record(std::string_view text) {
    const auto record = read_flight_record(text);
    if (!record) {
        return;
    }
    for (const RecordedGroup& group : record->groups) {
        regroup::fuzz::require(group.operations.size() < 2 * kOperationsKept,
                               "a record keeps a bounded number of operations");
    }
}

/// All ranks that the explanation names are known or are members of a group.
void check_explanation(const HangFacts& facts) {
    const Explanation result = explain(facts);
    regroup::fuzz::require(!text_of(facts, result).empty(), "an explanation has a text");
    regroup::fuzz::require(json_of(facts, result).front() == '{', "an explanation has JSON");
    for (const StuckCollective& stuck : result.collectives) {
        const std::size_t sorted = stuck.entered.size() + stuck.completed.size() +
                                   stuck.not_entered.size() + stuck.unknown.size();
        regroup::fuzz::require(sorted == stuck.members.size(),
                               "each member of a group is in one state");
        regroup::fuzz::require(!stuck.entered.empty(), "somebody waits in a stuck collective");
    }
}

void check_job(regroup::fuzz::Input& input) {
    HangFacts facts;
    facts.round = input.below(3);
    for (std::uint32_t rank = 0; rank < 4 && !input.empty(); ++rank) {
        FlightRecord record;
        record.recorder = input.chance(128) ? Recorder::sdk : Recorder::pytorch;
        for (std::uint64_t groups = input.below(3); groups > 0; --groups) {
            RecordedGroup group;
            group.name = input.chance(128) ? "default_pg" : "g";
            group.id = std::to_string(input.below(2));
            group.round = input.below(3);
            for (std::uint64_t members = input.below(4); members > 0; --members) {
                group.ranks.push_back(static_cast<std::uint32_t>(input.below(5)));
            }
            for (std::uint64_t operations = input.below(5); operations > 0; --operations) {
                RecordedOperation operation;
                operation.number = input.below(6);
                operation.name = input.chance(200) ? "all_reduce" : "barrier";
                operation.elements = input.below(3);
                operation.is_message = input.chance(40);
                operation.peer = static_cast<std::uint32_t>(input.below(5));
                operation.started = input.chance(128);
                operation.completed = input.chance(128);
                group.operations.push_back(operation);
            }
            record.groups.push_back(std::move(group));
        }
        RankFacts& known = facts_of(facts, static_cast<std::uint32_t>(input.below(6)));
        known.state = static_cast<ProcessState>(input.below(4));
        known.operations = input.below(6);
        known.step = input.below(3);
        known.waiting = input.chance(128);
        known.records.push_back(std::move(record));
    }
    check_explanation(facts);
}

std::vector<std::string> seeds() {
    NodeFacts node;
    node.world_size = 2;
    node.ranks.resize(2);
    node.ranks[1].rank = 1;
    std::vector<std::string> all = regroup::fuzz::random_seeds();
    const std::string record =
        R"({"version":"2.10","standings":{},"pg_config":{"0":{"ranks":"[0, 2-4]","round":1}},)"
        R"("entries":[{"process_group":["0","g"],"collective_seq_id":1,"state":"started",)"
        R"("profiling_name":"gloo:recv 1<-0","is_p2p":true,"input_sizes":[[4,3]],)"
        R"("input_dtypes":["Float"],"frames":[{"name":"f","filename":"x.py","line":3}]}]})";
    all.push_back(std::string(1, '\0') + record);
    all.push_back(
        std::string("\0\x80\x02}q\0(X\x07\0\0\0versionX\x01\0\0\0"
                    "1u.",
                    27));
    all.push_back(std::string(1, '\x01') + write_node_facts(node));
    all.emplace_back("\x02TID 7:\n#0  0x01 poll - /c.so\nThread 1 (LWP 7)\n#0 0x1 in f ()\n");
    return all;
}

void test(const std::uint8_t* bytes, std::size_t count) {
    regroup::fuzz::Input input(bytes, count);
    const std::uint64_t choice = input.below(4);
    if (choice == 3) {
        check_job(input);
        return;
    }
    const std::string_view text = input.bytes(count);
    if (choice == 0) {
        check_record(text);
    } else if (choice == 1) {
        if (const auto node = read_node_facts(text)) {
            HangFacts facts;
            add(facts, *node);
            check_explanation(facts);
        }
    } else {
        static_cast<void>(top_frames(text, 7));
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_explain
