// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdlib.h>
#include <sys/socket.h>
#include <termios.h>
#include <thread>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "agent/process/line_writer.h"
#include "agent/process/output_relay.h"
#include "tests/conformance/process_helpers/process_harness.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

/// Reads a descriptor to its end on a thread of its own, as a terminal would.
class Reader {
   public:
    explicit Reader(UniqueFd fd)
        : fd_(std::move(fd)), thread_([this] { text_ = read_all(fd_.get()); }) {}
    ~Reader() {
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    std::string text() {
        thread_.join();
        return text_;
    }

   private:
    UniqueFd fd_;
    std::string text_;
    std::thread thread_;
};

class OutputTest : public ::testing::Test {
   protected:
    OutputTest() {
        std::tie(out_read_, out_write_) = make_pipe();
        std::tie(err_read_, err_write_) = make_pipe();
        options_.stdout_fd = out_write_.get();
        options_.stderr_fd = err_write_.get();
        relay_.emplace(io_, clock_, options_);
    }

    [[nodiscard]] std::string stem(int rank) const {
        return (folder_.path() / "round1" / ("rank" + std::to_string(rank))).string();
    }

    void launch(int rank, ProcessSpec spec, bool with_files = true) {
        StreamPlan out;
        out.prefix = "[a:" + std::to_string(rank) + "] ";
        StreamPlan err = out;
        if (with_files) {
            out.path = stem(rank) + ".out";
            err.path = stem(rank) + ".err";
        }
        launch(rank, std::move(spec), out, err);
    }

    void launch(int rank, ProcessSpec spec, const StreamPlan& out, const StreamPlan& err) {
        auto pipes = relay_->open(static_cast<std::uint32_t>(rank), out, err);
        ASSERT_TRUE(pipes) << pipes.error().detail;
        spec.stdout_fd = pipes->stdout_fd.get();
        spec.stderr_fd = pipes->stderr_fd.get();
        auto child = launcher_.launch(spec);
        ASSERT_TRUE(child) << child.error().detail;
        auto& running = children_.emplace(rank, *std::move(child)).first->second;
        running.async_wait([this, rank](ExitStatus status) {
            relay_->drain(static_cast<std::uint32_t>(rank));
            ended_[rank] = status;
        });
    }

    void run_all() {
        ASSERT_TRUE(run_until(io_, [&] { return ended_.size() == children_.size(); }));
    }

    /// Ends the relay; what came out on either stream.
    std::pair<std::string, std::string> finish() {
        relay_->close_all();
        EXPECT_TRUE(relay_->flush(clock_.now() + kTestLimit));
        relay_.reset();
        out_write_.reset();
        err_write_.reset();
        return {read_all(out_read_.get()), read_all(err_read_.get())};
    }

    const SteadyClock clock_;
    const TemporaryFolder folder_;
    boost::asio::io_context io_{1};
    LinuxLauncher launcher_{io_};
    UniqueFd out_read_, out_write_, err_read_, err_write_;
    OutputRelayOptions options_;
    std::optional<OutputRelay> relay_;
    std::map<int, ChildProcess> children_;
    std::map<int, ExitStatus> ended_;
};

TEST_F(OutputTest, LinesGetTheirRankAndFilesGetTheBytes) {
    launch(0, shell_spec("echo one; echo; printf 'last'; echo oops >&2"));
    run_all();
    EXPECT_EQ(relay_->last_output(0), "oops\n");
    EXPECT_EQ(relay_->last_output_file(0), stem(0) + ".err");
    relay_->say("a word");
    const auto [out, err] = finish();
    EXPECT_EQ(out, "[a:0] one\n[a:0] \n[a:0] last\n");
    EXPECT_EQ(err, "[a:0] oops\nregroup: a word\n");
    EXPECT_EQ(read_file(stem(0) + ".out"), "one\n\nlast");
    EXPECT_EQ(read_file(stem(0) + ".err"), "oops\n");
}

TEST_F(OutputTest, NoPathGivesNoFiles) {
    launch(0, shell_spec("echo one"), false);
    run_all();
    EXPECT_EQ(relay_->last_output(0), "one\n");
    EXPECT_EQ(relay_->last_output_file(0), "");
    EXPECT_EQ(finish().first, "[a:0] one\n");
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(OutputTest, FileThatCannotBeOpenedIsReportedOnceAndBlocksNoWorker) {
    std::ofstream(folder_.path() / "round1") << "";
    launch(0, shell_spec("echo one; echo oops >&2"));
    relay_->open_files();
    run_all();
    EXPECT_TRUE(ended_.at(0).success());
    const auto [out, err] = finish();
    EXPECT_EQ(out, "[a:0] one\n");
    EXPECT_THAT(err, StartsWith("regroup: cannot write to '" + stem(0) + ".out': Not a directory"));
    EXPECT_EQ(lines_of(err).size(), 2U);
    EXPECT_EQ(lines_of(err).back(), "[a:0] oops");
}

TEST_F(OutputTest, SilentWorkerHasEmptyFiles) {
    launch(0, shell_spec(":"));
    relay_->open_files();
    run_all();
    finish();
    EXPECT_TRUE(std::filesystem::is_empty(stem(0) + ".out"));
    EXPECT_TRUE(std::filesystem::is_empty(stem(0) + ".err"));
}

TEST_F(OutputTest, OnlyTheLastLinesAreKeptForTheReport) {
    launch(0, shell_spec("seq 1 100 >&2; printf '%1000s' x >&2; echo quiet"));
    run_all();
    const auto lines = lines_of(relay_->last_output(0));
    ASSERT_EQ(lines.size(), 20U);
    EXPECT_EQ(lines.front(), "82");
    EXPECT_EQ(lines.back(), std::string(500, ' '));
}

TEST_F(OutputTest, SixtyFourWritersAreNeverMixed) {
    constexpr int kWriters = 64;
    constexpr int kLines = 100;
    auto reader = std::make_optional<Reader>(std::move(out_read_));
    for (int rank = 0; rank < kWriters; ++rank) {
        launch(rank, helper_spec({"babble", std::to_string(rank), std::to_string(kLines)}));
    }
    run_all();
    relay_->close_all();
    EXPECT_TRUE(relay_->flush(clock_.now() + kTestLimit));
    relay_.reset();
    out_write_.reset();

    std::map<int, std::string> by_rank;
    for (const std::string& line : lines_of(reader->text())) {
        ASSERT_THAT(line, StartsWith("[a:"));
        const std::size_t end = line.find("] ");
        ASSERT_NE(end, std::string::npos);
        by_rank[std::stoi(line.substr(3, end - 3))] += line.substr(end + 2) + "\n";
    }
    ASSERT_EQ(by_rank.size(), static_cast<std::size_t>(kWriters));
    for (const auto& [rank, text] : by_rank) {
        EXPECT_TRUE(ended_.at(rank).success());
        EXPECT_EQ(text, read_file(stem(rank) + ".out") + "\n");
        EXPECT_EQ(lines_of(text).size(), static_cast<std::size_t>(kLines) + 1);
    }
}

TEST_F(OutputTest, BlockedTerminalBlocksNoWorkerAndTheFileIsComplete) {
    options_.files = true;
    relay_.emplace(io_, clock_, options_);
    launch(0, shell_spec("seq 1 400000; echo done >&2"));
    run_all();  // No process reads the terminal meanwhile.
    EXPECT_TRUE(ended_.at(0).success());
    relay_->close_all();
    EXPECT_FALSE(relay_->flush(clock_.now() + std::chrono::milliseconds(20)));
    EXPECT_EQ(::fcntl(out_write_.get(), F_GETFL) & O_NONBLOCK, 0) << "the shell shares this";

    auto reader = std::make_optional<Reader>(std::move(out_read_));
    EXPECT_TRUE(relay_->flush(clock_.now() + kTestLimit));
    relay_.reset();
    out_write_.reset();
    const std::vector<std::string> lines = lines_of(reader->text());
    ASSERT_GT(lines.size(), 1U);
    std::size_t shown = 0;
    for (std::size_t index = 0; index + 1 < lines.size(); ++index) {
        EXPECT_EQ(lines[index], "[a:0] " + std::to_string(++shown));
    }
    EXPECT_LT(shown, 400000U);
    EXPECT_EQ(lines.back(), "regroup: " + std::to_string(400000 - shown) +
                                " lines were dropped here: nobody took them in time; the files of "
                                "the ranks have them");
    const std::vector<std::string> kept = lines_of(read_file(stem(0) + ".out"));
    EXPECT_EQ(kept.size(), 400000U);
    EXPECT_EQ(kept.back(), "400000");
}

TEST_F(OutputTest, SlowTerminalGetsEverythingThatFitsTheQueue) {
    launch(0, shell_spec("seq 1 30000"));
    run_all();
    auto reader = std::make_optional<Reader>(std::move(out_read_));
    relay_->close_all();
    // By the loop alone: it is told when the terminal takes more.
    io_.restart();
    io_.run();
    EXPECT_TRUE(relay_->flush(clock_.now()));
    relay_.reset();
    out_write_.reset();
    EXPECT_EQ(lines_of(reader->text()).size(), 30000U);
}

TEST_F(OutputTest, ReaderThatGoesAwayEndsNoProcess) {
    out_read_.reset();
    launch(0, shell_spec("seq 1 100000"));
    run_all();
    EXPECT_TRUE(ended_.at(0).success());
    EXPECT_EQ(lines_of(read_file(stem(0) + ".out")).size(), 100000U);
    EXPECT_TRUE(relay_->flush(clock_.now() + kTestLimit));
}

TEST_F(OutputTest, FullDiskIsReportedOnceAndBlocksNoWorker) {
    std::filesystem::create_directories(folder_.path() / "round1");
    for (const int rank : {0, 1}) {
        std::filesystem::create_symlink("/dev/full", stem(rank) + ".out");
        launch(rank, shell_spec("seq 1 1000; seq 1 1000"));
    }
    run_all();
    EXPECT_TRUE(ended_.at(0).success());
    EXPECT_TRUE(ended_.at(1).success());
    const auto [out, err] = finish();
    EXPECT_EQ(lines_of(out).size(), 4000U);
    EXPECT_EQ(lines_of(err).size(), 1U);
    EXPECT_THAT(err, StartsWith("regroup: cannot write to '" + folder_.path().string()));
    EXPECT_THAT(err, HasSubstr("No space left on device"));
}

TEST_F(OutputTest, OutputBeforeAKillIsKept) {
    for (int rank = 0; rank < 20; ++rank) {
        launch(rank, shell_spec("printf '%060000d' 7; kill -9 $$"));
    }
    run_all();
    for (const auto& [rank, status] : ended_) {
        EXPECT_EQ(status, ExitStatus::signalled(SIGKILL, false));
        EXPECT_EQ(std::filesystem::file_size(stem(rank) + ".out"), 60000U) << rank;
    }
}

TEST_F(OutputTest, GrandchildThatHoldsThePipeDelaysNothingAndIsStillRead) {
    auto [go_read, go_write] = make_pipe();
    launch(0, shell_spec("(while [ ! -e " + (folder_.path() / "go").string() +
                         " ]; do sleep 0.01; done; echo late) & printf early; exit 5"));
    run_all();
    EXPECT_EQ(ended_.at(0), ExitStatus::exited(5));
    EXPECT_EQ(relay_->last_output(0), "early\n");
    std::ofstream(folder_.path() / "go") << "";
    ASSERT_TRUE(run_until(io_, [&] { return relay_->last_output(0) == "early\nlate\n"; }));
    EXPECT_EQ(finish().first, "[a:0] early\n[a:0] late\n");
    EXPECT_EQ(read_file(stem(0) + ".out"), "earlylate\n");
}

TEST_F(OutputTest, StreamsToTheSamePlaceShareOneQueue) {
    relay_.emplace(
        io_, clock_,
        OutputRelayOptions{.stdout_fd = out_write_.get(), .stderr_fd = out_write_.get()});
    launch(0, shell_spec("seq 1 20000 & seq 1 20000 >&2; wait"));
    run_all();
    auto reader = std::make_optional<Reader>(std::move(out_read_));
    relay_->close_all();
    EXPECT_TRUE(relay_->flush(clock_.now() + kTestLimit));
    relay_.reset();
    out_write_.reset();
    std::map<std::string, int> count;
    for (const std::string& line : lines_of(reader->text())) {
        ++count[line];
    }
    EXPECT_EQ(count.size(), 20000U) << "a mixed line would be a new one";
    EXPECT_EQ(count["[a:0] 20000"], 2);
}

class LineWriterTest : public ::testing::Test {
   protected:
    static constexpr std::size_t kMany = 2000;

    /// More than any terminal takes at once, then as much as the reader wants.
    std::string write_many(int fd, UniqueFd reading_end) {
        {
            LineWriter writer(io_, fd, "");
            const std::string line(99, 'x');
            for (std::size_t count = 0; count < kMany; ++count) {
                writer.write(line + "\n", 1);
            }
            EXPECT_FALSE(writer.flush(clock_, clock_.now()));
            reader_.emplace(std::move(reading_end));
            EXPECT_TRUE(run_until(io_, [&] { return writer.flush(clock_, clock_.now()); }));
        }
        ::close(fd);
        return reader_->text();
    }

    const SteadyClock clock_;
    boost::asio::io_context io_{1};
    std::optional<Reader> reader_;
};

TEST_F(LineWriterTest, WriterNeverWaitsForASocket) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    EXPECT_EQ(write_many(ends[1], UniqueFd(ends[0])).size(), kMany * 100);
}

TEST_F(LineWriterTest, LinesOfTheAgentBeyondTheBoundAreCounted) {
    constexpr std::size_t kLines = 30000;
    auto [reading, writing] = make_pipe();
    {
        LineWriter writer(io_, writing.get(), "");
        for (std::size_t count = 0; count < kLines; ++count) {
            writer.write_own(std::string(99, 'x') + "\n", 1);
        }
        reader_.emplace(std::move(reading));
        EXPECT_TRUE(run_until(io_, [&] { return writer.flush(clock_, clock_.now()); }));
    }
    writing.reset();
    const std::vector<std::string> lines = lines_of(reader_->text());
    EXPECT_LT(lines.size(), kLines);
    EXPECT_EQ(lines.back(), "regroup: " + std::to_string(kLines - (lines.size() - 1)) +
                                " lines were dropped here: nobody took them in time");
}

TEST_F(LineWriterTest, WriterNeverWaitsForATerminal) {
    UniqueFd screen(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ASSERT_TRUE(screen);
    ASSERT_EQ(::grantpt(screen.get()), 0);
    ASSERT_EQ(::unlockpt(screen.get()), 0);
    const int terminal = ::open(::ptsname(screen.get()), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(terminal, 0);
    // "\n" is shown as "\r\n".
    EXPECT_EQ(write_many(terminal, std::move(screen)).size(), kMany * 101);
}

TEST_F(LineWriterTest, PartialLineIsGoneOnWithOrEndedBeforeTheNextLine) {
    auto [reading, writing] = make_pipe();
    {
        const int one = 0;
        const int other = 0;
        LineWriter writer(io_, writing.get(), "");
        writer.write_partial("[1] na", &one);
        writer.write_partial("[1] name? ", &one);
        writer.write("[1] name? ann\n[1] ok\n", 2, &one);
        writer.write_partial("[1] sure? ", &one);
        writer.write("[2] a line\n", 1, &other);
        writer.write("[1] sure? yes\n", 1, &one);
        writer.write_partial("[1] more", &one);
        writer.write_own("regroup: line\n");
        EXPECT_TRUE(writer.flush(clock_, clock_.now()));
    }
    writing.reset();
    EXPECT_EQ(read_all(reading.get()),
              "[1] name? ann\n[1] ok\n[1] sure? \n[2] a line\n[1] sure? yes\n[1] more\n"
              "regroup: line\n");
}

TEST_F(LineWriterTest, FileTakesEverythingAtOnce) {
    const TemporaryFolder folder;
    const std::string path = folder.path() / "file";
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    LineWriter writer(io_, file.get(), "");
    writer.write("one\ntwo\n", 2);
    EXPECT_TRUE(writer.flush(clock_, clock_.now()));
    EXPECT_EQ(read_file(path), "one\ntwo\n");
}

}  // namespace
}  // namespace regroup::agent
