// SPDX-License-Identifier: Apache-2.0
//
// The wire as it is documented: each message has one file, which is its example in PROTOCOL.md. A
// change of any of these bytes is a change of the protocol's version.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/codec.h"
#include "tests/support/matchers.h"

namespace regroup::protocol {
namespace {

using ::testing::UnorderedElementsAreArray;

const std::string kSource = REGROUP_SOURCE_DIR;
const std::vector<std::string> kFromAgent(std::begin(kAgentKinds), std::end(kAgentKinds));
const std::vector<std::string> kFromDaemon(std::begin(kDaemonKinds), std::end(kDaemonKinds));

std::string read_file(const std::string& path) {
    std::ifstream file(kSource + "/" + path);
    EXPECT_TRUE(file) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string golden(const std::string& message) {
    return read_file("tests/conformance/wire/" + message + ".json");
}

// The file is written for reading; on the wire there are no blanks and the fields are in order.
std::string compact(const std::string& text) {
    return nlohmann::json::parse(text).dump();
}

TEST(DaemonWire, AgentsMessagesDecodeAndEncodeToTheirFiles) {
    for (const std::string& name : kFromAgent) {
        const Result<rendezvous::FromAgent> message = decode_from_agent(golden(name));
        ASSERT_TRUE(message) << name << ": " << message.error().detail;
        EXPECT_EQ(encode(*message), compact(golden(name)));
    }
}

TEST(DaemonWire, DaemonsMessagesDecodeAndEncodeToTheirFiles) {
    for (const std::string& name : kFromDaemon) {
        const Result<rendezvous::FromDaemon> message = decode_from_daemon(golden(name));
        ASSERT_TRUE(message) << name << ": " << message.error().detail;
        EXPECT_EQ(encode(*message), compact(golden(name)));
    }
}

TEST(DaemonWire, EachFileHasTheTypeInItsName) {
    std::vector<std::string> names = kFromAgent;
    names.insert(names.end(), kFromDaemon.begin(), kFromDaemon.end());
    std::vector<std::string> found;
    for (const auto& entry :
         std::filesystem::directory_iterator(kSource + "/tests/conformance/wire")) {
        found.push_back(entry.path().stem());
    }
    EXPECT_THAT(found, UnorderedElementsAreArray(names));
    for (const std::string& name : names) {
        EXPECT_EQ(nlohmann::json::parse(golden(name)).at("type"), name);
    }
}

TEST(DaemonWire, DocumentShowsEachFileAndNamesEachField) {
    const std::string document = read_file("rendezvous/protocol/PROTOCOL.md");
    for (const auto* side : {&kFromAgent, &kFromDaemon}) {
        for (const std::string& name : *side) {
            EXPECT_THAT(document, HasSubstr("### " + name + "\n"));
            EXPECT_THAT(document, HasSubstr("```json\n" + golden(name) + "```\n"));
            const auto example = nlohmann::json::parse(golden(name));
            for (const auto& [field, value] : example.items()) {
                EXPECT_THAT(document, HasSubstr("`" + field + "`"));
            }
        }
    }
    EXPECT_THAT(document, HasSubstr("version " + std::to_string(kProtocolVersion)));
}

}  // namespace
}  // namespace regroup::protocol
