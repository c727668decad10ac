// SPDX-License-Identifier: Apache-2.0
// The profiler plugin under the stand-in for NCCL, in each version that NCCL has had: what the
// pages of two ranks say. The ranks are programs that know nothing of regroup.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/collectives_file.h"
#include "tests/support/program.h"
#include "tests/support/stand_in_nccl/host_runtime.h"
#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup {
namespace {

using testing::eventually;
using worker_link::CollectiveGroup;
using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;
using worker_link::ElementType;

constexpr int kRanks = 2;

/// The calls of a program to NCCL.
class Rank {
   public:
    Rank(int rank_in, const ncclUniqueId& id) : rank(rank_in) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        check(api.comm_init_rank_config(&comm, kRanks, id, rank, &config));
    }

    void all_reduce(std::size_t count) { all_reduce(count, comm); }
    void all_reduce(std::size_t count, ncclComm_t with) {
        check(api.all_reduce(values.data(), values.data(), count, ncclFloat32, ncclSum, with,
                             stream()));
    }
    void broadcast(std::size_t count) {
        check(api.broadcast(values.data(), values.data(), count, ncclInt64, 0, comm, stream()));
    }
    void exchange() {
        check(api.send(values.data(), 10, ncclFloat32, 1 - rank, comm, stream()));
        check(api.recv(other.data(), 10, ncclFloat32, 1 - rank, comm, stream()));
    }
    void destroy(ncclComm_t which) {
        check(api.comm_finalize(which));
        check(api.comm_destroy(which));
    }
    [[nodiscard]] cudaStream_t stream() {
        return reinterpret_cast<cudaStream_t>(static_cast<StandInStream*>(&own_stream));
    }
    static void check(ncclResult_t result) {
        if (!nccl::is_good(result)) {
            throw std::runtime_error("NCCL: " + std::to_string(result));
        }
    }

    int rank;
    nccl::NcclApi api = nccl::open_api(STAND_IN_NCCL);
    testing::HostStream own_stream;
    ncclComm_t comm = nullptr;
    std::vector<float> values = std::vector<float>(4000, 1);
    std::vector<float> other = std::vector<float>(4000);
};

using Body = std::function<void(Rank&)>;

/// Two ranks, each a process with a page of its own, that stay when their work is done.
class NcclProfilerTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
   public:
    ~NcclProfilerTest() override {
        for (const pid_t pid : pids_) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
    }

   protected:
    NcclProfilerTest() { EXPECT_EQ(::pipe2(id_pipe_.data(), O_CLOEXEC), 0); }

    void start(const Body& body) {
        const pid_t parent = ::getpid();
        std::array<int, 2> done{};
        ASSERT_EQ(::pipe2(done.data(), O_CLOEXEC), 0);
        done_ = done[0];
        for (int rank = 0; rank < kRanks; ++rank) {
            std::fflush(nullptr);
            const pid_t pid = ::fork();
            if (pid == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (::getppid() != parent) {
                    ::_exit(1);
                }
                run(rank, body, done[1]);
            }
            pids_.push_back(pid);
        }
        ::close(done[1]);
    }
    /// False if a rank has failed.
    [[nodiscard]] bool wait() const {
        std::string words;
        char word = 0;
        while (words.size() < kRanks && ::read(done_, &word, 1) == 1) {
            words += word;
        }
        return words == "yy";
    }
    [[nodiscard]] bool run_to_end(const Body& body) {
        start(body);
        return wait();
    }

    /// Those of both ranks, at the same place of the page.
    [[nodiscard]] std::vector<CollectiveGroup*> groups(std::size_t index = 0) {
        return {&files[0].group(index), &files[1].group(index)};
    }
    [[nodiscard]] static int version() { return std::get<0>(GetParam()); }
    [[nodiscard]] static bool has_kernels() { return std::get<1>(GetParam()); }
    [[nodiscard]] static bool tells_starts() { return has_kernels() && version() >= 3; }
    [[nodiscard]] static bool tells_ends() { return has_kernels() && version() >= 4; }
    [[nodiscard]] static bool tells_size() { return version() >= 4; }
    /// Collectives are numbered as the program calls them, not as NCCL sorts them.
    [[nodiscard]] static bool tells_calls() { return version() >= 5; }
    [[nodiscard]] static std::uint64_t starts(std::uint64_t count) {
        return tells_starts() ? count : 0;
    }
    [[nodiscard]] static std::uint64_t ends(std::uint64_t count) {
        return tells_ends() ? count : 0;
    }

    std::array<testing::CollectivesFile, kRanks> files{};
    bool has_pages = true;
    std::string faults{};

   private:
    [[noreturn]] void run(int rank, const Body& body, int done) {
        if (has_pages) {
            const std::string path = files[static_cast<std::size_t>(rank)].path();
            ::setenv(worker_link::kCollectivesVariable, path.c_str(), 1);
        }
        ::setenv("NCCL_PROFILER_PLUGIN", PROFILER_PLUGIN, 1);
        ::setenv("STAND_IN_NCCL_PROFILER_VERSION", std::to_string(version()).c_str(), 1);
        ::setenv("REGROUP_NCCL_KERNELS", has_kernels() ? "1" : "0", 1);
        ::setenv("STAND_IN_NCCL_FAULTS", faults.c_str(), 1);
        bool good = false;
        try {
            ncclUniqueId id{};
            if (rank == 0) {
                Rank::check(nccl::open_api(STAND_IN_NCCL).get_unique_id(&id));
                good = ::write(id_pipe_[1], &id, sizeof id) == sizeof id;
            } else {
                good = ::read(id_pipe_[0], &id, sizeof id) == sizeof id;
            }
            auto& own = *new Rank(rank, id);
            body(own);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
            good = false;
        }
        (void)!::write(done, good ? "y" : "n", 1);
        while (true) {
            ::pause();
        }
    }

    std::array<int, 2> id_pipe_{};
    int done_ = -1;
    std::vector<pid_t> pids_;
};

CollectiveSignature signature(const CollectiveGroup& group, std::uint64_t number) {
    return CollectiveSignature::unpacked(group.signatures[number % worker_link::kSignaturesKept]);
}

TEST_P(NcclProfilerTest, CollectivesOfEachRankAreOnItsPage) {
    ASSERT_TRUE(run_to_end([](Rank& rank) {
        for (int i = 0; i < 3; ++i) {
            rank.all_reduce(1000);
        }
        rank.broadcast(20);
        rank.own_stream.synchronize();
    }));
    std::uint32_t rank = 0;
    for (CollectiveGroup* const group : groups()) {
        EXPECT_EQ(files[rank].groups_in_use(), 1U);
        EXPECT_EQ(group->backend, worker_link::CollectiveBackend::nccl);
        EXPECT_EQ(group->size, tells_size() ? 2U : 0U);
        EXPECT_EQ(group->rank, rank++);
        EXPECT_EQ(std::string(group->name.data()), "stand-in");
        EXPECT_EQ(group->knows_starts, tells_starts() ? 1U : 0U);
        EXPECT_EQ(group->knows_ends, tells_ends() ? 1U : 0U);
        EXPECT_EQ(group->entered, 4U);
        EXPECT_EQ(group->started, starts(4));
        EXPECT_EQ(group->completed, ends(4));
        EXPECT_EQ(group->messages_entered, 0U);
        EXPECT_EQ(signature(*group, 1),
                  (CollectiveSignature{CollectiveKind::all_reduce, ElementType::float32, 1000}));
        EXPECT_EQ(signature(*group, 4),
                  (CollectiveSignature{CollectiveKind::broadcast, ElementType::int64, 20}));
    }
    EXPECT_NE(groups()[0]->id, 0U);
    EXPECT_EQ(groups()[0]->id, groups()[1]->id);
}

TEST_P(NcclProfilerTest, GroupCallBeginsAndEndsAsOne) {
    ASSERT_TRUE(run_to_end([](Rank& rank) {
        Rank::check(rank.api.group_start());
        rank.all_reduce(10);
        rank.all_reduce(1000);
        rank.exchange();
        Rank::check(rank.api.group_end());
        rank.own_stream.synchronize();
    }));
    std::uint32_t peer = 1;
    for (const CollectiveGroup* const group : groups()) {
        EXPECT_EQ(group->entered, 2U);
        EXPECT_EQ(signature(*group, 1).elements, tells_calls() ? 10U : 1000U);
        EXPECT_EQ(signature(*group, 2).elements, tells_calls() ? 1000U : 10U);
        EXPECT_EQ(group->started, starts(2));
        EXPECT_EQ(group->completed, ends(2));
        EXPECT_EQ(group->messages_entered, 2U);
        EXPECT_EQ(group->messages_completed, ends(2));
        EXPECT_EQ(group->message_peer, peer--);
        EXPECT_EQ(CollectiveSignature::unpacked(group->message).kind, CollectiveKind::receive);
    }
}

TEST_P(NcclProfilerTest, RankThatDoesNotCallIsBehind) {
    start([](Rank& rank) {
        rank.all_reduce(1000);
        if (rank.rank == 0) {
            rank.all_reduce(1000);
        }
        rank.own_stream.synchronize();
    });
    const auto all = groups();
    EXPECT_TRUE(eventually([&] {
        return all[0]->entered == 2 && all[0]->started == starts(2) &&
               all[0]->completed == ends(1) && all[1]->entered == 1 &&
               all[1]->started == starts(1) && all[1]->completed == ends(1);
    }));
}

TEST_P(NcclProfilerTest, CollectiveThatHangsHasBegunAndNotEnded) {
    faults = "op_never_at=2 rank=1";
    start([](Rank& rank) {
        rank.all_reduce(1000);
        rank.all_reduce(1000);
        rank.all_reduce(1000);
        rank.own_stream.synchronize();
    });
    EXPECT_TRUE(eventually([&] {
        return std::ranges::all_of(groups(), [](const CollectiveGroup* group) {
            return group->entered == 3 && group->started == starts(2) &&
                   group->completed == ends(1);
        });
    }));
}

TEST_P(NcclProfilerTest, EachCommunicatorHasAGroupWhileItLives) {
    ASSERT_TRUE(run_to_end([](Rank& rank) {
        rank.all_reduce(5);
        std::array<ncclComm_t, 2> children{};
        for (ncclComm_t& child : children) {
            Rank::check(rank.api.comm_split(rank.comm, 0, 1 - rank.rank, &child, nullptr));
            rank.all_reduce(7, child);
        }
        rank.own_stream.synchronize();
        rank.destroy(children[0]);
    }));
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(files[rank].groups_in_use(), 2U);
        EXPECT_EQ(files[rank].group(0).entered, 1U);
        EXPECT_EQ(files[rank].group(1).state, CollectiveGroup::kFree);
    }
    const auto all = groups(2);
    EXPECT_EQ(all[0]->entered, 1U);
    EXPECT_EQ(all[0]->id, all[1]->id);
    EXPECT_NE(all[0]->id, files[0].group(0).id);
    EXPECT_EQ(all[0]->rank, 1U);
    EXPECT_EQ(all[1]->rank, 0U);
}

TEST_P(NcclProfilerTest, ReplaysOfAGraphCountWithKernels) {
    ASSERT_TRUE(run_to_end([](Rank& rank) {
        rank.all_reduce(10);
        rank.own_stream.begin_capture();
        rank.all_reduce(1000);
        rank.own_stream.end_capture();
        for (int i = 0; i < 3; ++i) {
            rank.own_stream.replay();
        }
        rank.own_stream.synchronize();
        rank.all_reduce(20);
        rank.own_stream.synchronize();
    }));
    // Where NCCL does not tell of calls, a capture looks like one.
    const std::uint64_t captured = tells_starts() ? 3 : tells_calls() ? 0 : 1;
    for (const CollectiveGroup* const group : groups()) {
        EXPECT_EQ(group->entered, 2 + captured);
        EXPECT_EQ(group->started, starts(5));
        EXPECT_EQ(group->completed, ends(5));
        EXPECT_EQ(signature(*group, 1 + captured).elements, captured > 0 ? 1000U : 10U);
        EXPECT_EQ(signature(*group, 2 + captured).elements, 20U);
    }
}

TEST_P(NcclProfilerTest, PluginIsLoadedAgainForALaterCommunicator) {
    ASSERT_TRUE(run_to_end([](Rank& rank) {
        ncclUniqueId id{};
        Rank::check(rank.api.get_unique_id(&id));
        std::memcpy(rank.values.data(), &id, sizeof id);
        rank.broadcast(sizeof id / sizeof(std::int64_t));
        rank.own_stream.synchronize();
        rank.destroy(rank.comm);
        std::memcpy(&id, rank.values.data(), sizeof id);
        auto& later = *new Rank(rank.rank, id);
        later.all_reduce(10);
        later.all_reduce(20);
        later.own_stream.synchronize();
    }));
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(files[rank].groups_in_use(), 1U);
        EXPECT_EQ(files[rank].group(0).entered, 2U);
        EXPECT_EQ(files[rank].group(0).completed, ends(2));
    }
}

TEST_P(NcclProfilerTest, WithoutAPageTheProgramRunsAsWithout) {
    has_pages = false;
    ASSERT_TRUE(run_to_end([](Rank& rank) {
        rank.all_reduce(1000);
        Rank::check(rank.api.group_start());
        rank.all_reduce(1000);
        rank.exchange();
        Rank::check(rank.api.group_end());
        rank.own_stream.synchronize();
        if (rank.values[0] != 4 || rank.other[0] == 0) {
            throw std::runtime_error("wrong values");
        }
        rank.destroy(rank.comm);
    }));
    EXPECT_EQ(files[0].groups_in_use() + files[1].groups_in_use(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclProfilerTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 6),
                                            ::testing::Bool()));

}  // namespace
}  // namespace regroup
