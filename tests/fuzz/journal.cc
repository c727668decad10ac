// SPDX-License-Identifier: Apache-2.0
//
// Records of a journal, one a line. A record that can be read is the same after it is written
// and read again, and replays twice to the same lines.
#include "rendezvous/journal/journal.h"

#include "tests/fuzz/fuzz.h"
#include "tests/unit/journal_stories.h"

namespace regroup::fuzz_journal {
namespace {

using namespace regroup::journal;

std::vector<Entry> read(const std::vector<std::string>& records) {
    std::vector<Entry> all;
    for (const std::string& record : records) {
        const Result<std::vector<Entry>> entries = decode_record(record);
        if (!entries) {
            fuzz::fail("a record cannot be read: " + entries.error().detail);
        }
        all.insert(all.end(), entries->begin(), entries->end());
    }
    return all;
}

/// Without the wall-clock times: reports that are kept together get the time of the last one.
std::string shown(std::vector<Entry> entries) {
    std::string text;
    for (Entry& entry : entries) {
        entry.wall_ms = 0;
        text += encode(entry) + '\n';
    }
    return text;
}

std::string replayed(const StoredJob& job) {
    std::string lines;
    const Result<Replayed> result =
        replay(kept(job), [&](const std::string& line) { lines += line + '\n'; });
    return lines + (result ? std::to_string(result->identical) : result.error().detail);
}

std::vector<std::string> seeds() {
    const StoredJob job = testing::story_of_two_rounds().job();
    std::string records;
    for (const std::string& record : to_records(job.entries)) {
        records += record + '\n';
    }
    std::string table;
    for (const std::string& record : to_records(std::span(job.entries).subspan(2, 2))) {
        table += record + '\n';
    }
    return {records, shown(job.entries), table, testing::lines_of(job)};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    std::string_view text(reinterpret_cast<const char*>(bytes), count);
    StoredJob job{{"job", 1}, {}, false};
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        (void)decode_entry(line);
        const Result<std::vector<Entry>> entries = decode_record(line);
        for (const Entry& entry : entries ? *entries : std::vector<Entry>()) {
            // A job that goes back in time is refused as a whole.
            if (job.entries.empty() || entry.at >= job.entries.back().at) {
                job.entries.push_back(entry);
            }
        }
    }
    const std::vector<Entry> again = read(to_records(job.entries));
    fuzz::require(shown(again) == shown(job.entries), "what was read is written and read again");
    fuzz::require(replayed(job) == replayed(job), "a replay is repeatable");
    (void)from_lines({reinterpret_cast<const char*>(bytes), count});
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_journal
