// SPDX-License-Identifier: Apache-2.0
// The forming of groups over NCCL: ids, roots, missing ranks, the choice of the GPU.
#include <regroup/cuda.h>

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <utility>

#include "tests/conformance/nccl_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/forwarding_store.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/nccl/bootstrap.h"

namespace regroup {
namespace {

using testing::NcclWorld;

TEST(NcclForming, CommunicatorsBlockOnlyIfAsked) {
    for (const bool blocking : {false, true}) {
        NcclWorld world(2);
        world.blocking = blocking;
        run_ranks(world, [](ProcessGroup& group) { group.barrier().wait(); });
        EXPECT_EQ(world.stand_in.events("blocking").size(), blocking ? 2U : 0U);
    }
}

TEST(NcclForming, MissingRanksAreNamed) {
    NcclWorld world(4);
    world.options.timeout = std::chrono::seconds(3);
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 2U}) {
        threads.emplace_back([&, rank] {
            EXPECT_THAT(error_of([&] { (void)world.join(rank); }),
                        is_error(Errc::deadline_exceeded, "group \"test\" on cuda:",
                                 "of 4 ranks these have not come within 3.0 s: 1, 3"));
        });
    }
    threads.clear();
    // NCCL was not called, so it leaves nothing behind.
    EXPECT_EQ(world.stand_in.journal(), "");
}

TEST(NcclForming, EndlessInitialisationEndsAtTheDeadline) {
    NcclWorld world(2);
    world.options.timeout = std::chrono::seconds(4);
    world.meeting_limit = testing::kPatience;
    world.stand_in.set_faults("init_never");
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 1U}) {
        threads.emplace_back([&, rank] {
            const auto error = error_of([&] { (void)world.join(rank); });
            ASSERT_TRUE(error);
            // The first one to give up tells the other.
            EXPECT_THAT(error->what(), HasSubstr("NCCL"));
        });
    }
    threads.clear();
    EXPECT_EQ(world.stand_in.events("abort_flag").size(), 2U);
    EXPECT_EQ(world.stand_in.events("free").size(), 2U);
    EXPECT_TRUE(world.stand_in.events("VIOLATION").empty()) << world.stand_in.journal();
}

TEST(NcclForming, FormingWorksAfterAFailedAttemptWithANewId) {
    NcclWorld world(2);
    const auto attempt = [&](bool should_work) {
        std::vector<std::jthread> threads;
        for (const std::uint32_t rank : {0U, 1U}) {
            threads.emplace_back([&, rank] {
                EXPECT_EQ(error_of([&] { (void)world.join(rank); }).has_value(), !should_work);
            });
        }
    };
    world.stand_in.set_faults("init_never");
    world.options.timeout = std::chrono::seconds(3);
    world.meeting_limit = testing::kPatience;
    attempt(false);
    world.stand_in.set_faults("");
    world.options.timeout = testing::kPatience;
    attempt(true);
    const auto ids = world.stand_in.events("unique_id");
    ASSERT_EQ(ids.size(), 2U);
    EXPECT_NE(ids[0], ids[1]);
}

TEST(NcclForming, EveryGroupAndRoundHasANewId) {
    NcclWorld world(2);
    for (const std::uint64_t round : {1U, 1U, 2U}) {
        std::vector<std::jthread> threads;
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            threads.emplace_back([&, rank] {
                Context context = testing::context_of_rank(rank, 2, world.store);
                context.round = round;
                (void)world.join(context);
            });
        }
    }
    const auto ids = world.stand_in.events("unique_id");
    EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 3U);
    EXPECT_EQ(world.stand_in.events("init rank=0 ids=1").size(), 3U);
}

/// A store in which somebody else replaces NCCL's id.
class TamperedStore final : public testing::ForwardingStore {
   public:
    using ForwardingStore::ForwardingStore;
    std::function<std::string(std::string)> tamper;

    void set(std::string_view key, std::string_view value) override {
        const bool is_id = key.find("/id/") != key.npos;
        ForwardingStore::set(key, is_id ? tamper(std::string(value)) : std::string(value));
    }
};

TEST(NcclForming, IdsOfStrangersAreRefused) {
    NcclWorld world(2);
    const auto store = std::make_shared<TamperedStore>(world.store);
    store->tamper = [](const std::string& value) {
        EXPECT_EQ(value.find("sealed:"), 0U) << "the store shows NCCL's id";
        return "22806 " + std::string(256, 'a');
    };
    world.store = store;
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 1U}) {
        threads.emplace_back([&, rank] {
            EXPECT_THAT(error_of([&] { (void)world.join(rank); }), is_error("/id/0\""));
        });
    }
    threads.clear();
    EXPECT_TRUE(world.stand_in.events("init rank").empty()) << world.stand_in.journal();
}

TEST(NcclForming, IdsOfAnEarlierAttemptAreRefused) {
    NcclWorld world(2);
    const auto store = std::make_shared<TamperedStore>(world.store);
    std::string recorded;
    store->tamper = [&](std::string value) { return recorded = std::move(value); };
    world.store = store;
    run_ranks(world, [](ProcessGroup& group) { group.barrier().wait(); });
    // The same keys again, as after a restart of the whole job with the same secret.
    const auto fresh = std::make_shared<TamperedStore>(make_local_store(testing::kPatience));
    fresh->tamper = [&](const std::string&) { return recorded; };
    world.store = fresh;
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 1U}) {
        threads.emplace_back(
            [&, rank] { EXPECT_TRUE(error_of([&] { (void)world.join(rank); })) << rank; });
    }
    threads.clear();
    EXPECT_EQ(world.stand_in.events("init rank").size(), 2U) << "those of the first attempt";
}

TEST(NcclForming, LargeGroupsUseOneRootPerNode) {
    constexpr std::uint32_t kNodes = nccl::kNodesOfOneRoot + 1;
    NcclWorld world(2 * kNodes);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < world.size; ++rank) {
        threads.emplace_back([&, rank] {
            Context context = testing::context_of_rank(rank, world.size, world.store);
            context.local_rank = rank % 2;
            context.local_world_size = 2;
            context.group_rank = rank / 2;
            context.group_world_size = kNodes;
            const auto group = world.join(context);
            group->barrier().wait();
        });
    }
    threads.clear();
    EXPECT_EQ(world.stand_in.events("unique_id").size(), kNodes);
    for (std::uint32_t rank = 0; rank < world.size; ++rank) {
        const std::string line =
            "init rank=" + std::to_string(rank) + " ids=" + std::to_string(kNodes) + " ";
        EXPECT_EQ(world.stand_in.events(line).size(), 1U);
    }
}

TEST(NcclForming, RootsArePlanned) {
    const auto plan = [](std::uint32_t rank, std::uint32_t size, std::uint32_t per_node,
                         bool scalable = true) {
        const nccl::RootPlan roots = nccl::plan_roots(rank, size, rank % per_node, rank / per_node,
                                                      size / per_node, scalable);
        return std::pair(roots.roots, roots.hosted);
    };
    EXPECT_EQ(plan(0, 64, 8), std::pair(1U, 0U));
    EXPECT_EQ(plan(1, 64, 8), std::pair(1U, 1U));
    EXPECT_EQ(plan(0, 72, 8), std::pair(9U, 0U));
    EXPECT_EQ(plan(8, 72, 8), std::pair(9U, 1U));
    EXPECT_EQ(plan(9, 72, 8), std::pair(9U, 9U));
    EXPECT_EQ(plan(64, 192, 64), std::pair(3U, 1U));
    EXPECT_EQ(plan(0, 256, 256), std::pair(1U, 0U));
    EXPECT_EQ(plan(8, 72, 8, false), std::pair(1U, 1U));
}

bool is_listening(int fd) {
    int listening = 0;
    socklen_t bytes = sizeof listening;
    return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) == 0 && listening != 0;
}

// By number and inode, for threads of other tests may still be closing sockets.
std::set<std::pair<int, ino_t>> listening_sockets() {
    std::set<std::pair<int, ino_t>> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int fd = std::stoi(entry.path().filename());
        struct stat status{};
        if (is_listening(fd) && ::fstat(fd, &status) == 0) {
            found.emplace(fd, status.st_ino);
        }
    }
    return found;
}

TEST(NcclForming, SocketOfARootIsClosedInChildren) {
    testing::StandIn stand_in;
    const auto before = listening_sockets();
    const ncclUniqueId id = nccl::make_unique_id(stand_in.api());
    EXPECT_EQ(nccl::to_text(nccl::parse_unique_id(nccl::to_text(id))), nccl::to_text(id));
    int made = 0;
    for (const auto& socket : listening_sockets()) {
        if (!before.contains(socket)) {
            ++made;
            EXPECT_NE(::fcntl(socket.first, F_GETFD) & FD_CLOEXEC, 0);
        }
    }
    EXPECT_GE(made, 1);
    EXPECT_TRUE(error_of([] { (void)nccl::parse_unique_id("xyz"); }));
}

int number_that_is_freed = -1;

TEST(NcclForming, SocketOfARootWithAReusedNumberIsClosedInChildren) {
    number_that_is_freed = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(number_that_is_freed, 0);
    testing::StandIn stand_in;
    nccl::NcclApi api = stand_in.api();
    // As when another thread closes a descriptor and NCCL's socket gets its number.
    api.get_unique_id = [](ncclUniqueId* /*id*/) {
        const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const bool listens =
            ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)) == 0 &&
            ::listen(socket, 1) == 0 && ::dup2(socket, number_that_is_freed) >= 0;
        ::close(socket);
        return listens ? ncclSuccess : ncclSystemError;
    };
    (void)nccl::make_unique_id(api);
    ASSERT_TRUE(is_listening(number_that_is_freed));
    EXPECT_NE(::fcntl(number_that_is_freed, F_GETFD) & FD_CLOEXEC, 0);
    ::close(number_that_is_freed);
}

TEST(NcclForming, TwoRanksOnOneGpuAreRefusedAndNamed) {
    NcclWorld world(2);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            Context context = testing::context_of_rank(rank, 2, world.store);
            context.local_rank = rank;
            context.local_world_size = 2;
            const auto error = error_of([&] {
                (void)nccl::form_group_on({world.stand_in.api(), world.runtime}, context,
                                          world.options, world.device_of(0), {});
            });
            ASSERT_TRUE(error);
            if (rank == 1) {
                EXPECT_EQ(error->code(), Errc::invalid_argument);
                EXPECT_THAT(error->what(),
                            saying("ranks 0 and 1", "same GPU stand-in-0", "REGROUP_SHARE_GPUS=1"));
            }
        });
    }
}

TEST(NcclForming, DifferentVersionsOfNcclAreRefused) {
    NcclWorld world(2);
    nccl::NcclApi other = world.stand_in.api();
    other.version = 22703;
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            const nccl::NcclApi& api = rank == 1 ? other : world.stand_in.api();
            const auto error = error_of([&] {
                (void)nccl::form_group_on({api, world.runtime},
                                          testing::context_of_rank(rank, 2, world.store),
                                          world.options, world.device_of(rank), {});
            });
            ASSERT_TRUE(error);
            if (rank == 1) {
                EXPECT_EQ(error->code(), Errc::invalid_argument);
                EXPECT_THAT(error->what(), AllOf(HasSubstr("2.27.3"), HasSubstr("2.28.9")));
            } else {
                EXPECT_THAT(error->what(), HasSubstr("rank 1 has given up forming the group"));
            }
        });
    }
}

/// Sets a variable for the time of a scope.
class Variable {
   public:
    Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~Variable() { ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

   private:
    const char* name_;
};

/// Rank 1 waits for a rank 0 that fails because of `cannot`, and learns of it at once.
void expect_told(NcclWorld& world, const std::function<void()>& cannot, const char* reason) {
    const auto start = std::chrono::steady_clock::now();
    const std::jthread other([&] { EXPECT_TRUE(error_of(cannot)); });
    EXPECT_THAT(error_of([&] { (void)world.join(1); }),
                is_error(Errc::disconnected, "rank 0 has given up forming the group", reason));
    EXPECT_LT(std::chrono::steady_clock::now() - start, testing::kPatience / 2);
}

TEST(NcclForming, RankWithoutLibraryIsReportedToAllAtOnce) {
    NcclWorld world(2);
    const Variable library("REGROUP_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    const Context context = testing::context_of_rank(0, 2, world.store);
    expect_told(
        world, [&] { (void)ProcessGroup::create("nccl", context, world.options); },
        "/nowhere/libnccl.so.2");
}

TEST(NcclForming, RankWithoutAddressIsReportedToAllAtOnce) {
    NcclWorld world(2);
    Context context = testing::context_of_rank(0, 2, world.store);
    context.master_addr = "no address at all";
    expect_told(world, [&] { (void)world.join(context); }, "no address at all");
}

std::optional<Error> error_of_create() {
    return error_of([] { (void)ProcessGroup::create("nccl", Context()); });
}

TEST(NcclForming, AddressForAllGroupsIsRefused) {
    const Variable id("NCCL_COMM_ID", "10.0.0.1:4711");
    const auto error = error_of_create();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::invalid_argument);
    EXPECT_THAT(error->what(), saying("NCCL_COMM_ID=10.0.0.1:4711", "unset it"));
}

TEST(NcclForming, VariablesThatChangeEveryCommunicatorAreRefused) {
    const Variable not_blocking("REGROUP_NCCL_BLOCKING", "");
    for (const char* const name : {"NCCL_COMM_BLOCKING", "NCCL_COMM_SPLIT_SHARE_RESOURCES"}) {
        for (const char* const one : {"1", "0x1"}) {
            const Variable variable(name, one);
            const auto error = error_of_create();
            ASSERT_TRUE(error);
            EXPECT_EQ(error->code(), Errc::invalid_argument);
            EXPECT_THAT(error->what(), AllOf(HasSubstr(name), HasSubstr("unset it")));
        }
        // Without the variables' effect, something else is missing, or nothing is.
        for (const char* const harmless : {"0", "", "2"}) {
            const Variable variable(name, harmless);
            const Variable library("REGROUP_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
            const auto error = error_of_create();
            ASSERT_TRUE(error);
            EXPECT_THAT(error->what(), HasSubstr("/nowhere/libnccl.so.2"));
        }
    }
}

TEST(NcclForming, VariableThatUndoesBlockingCallsIsRefused) {
    const Variable blocking("REGROUP_NCCL_BLOCKING", "1");
    const Variable variable("NCCL_COMM_BLOCKING", "0");
    const auto error = error_of_create();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::invalid_argument);
    EXPECT_THAT(error->what(), HasSubstr("NCCL_COMM_BLOCKING is set"));
}

TEST(NcclForming, LibraryWhoseAbortHangsIsRefused) {
    const testing::StandIn stand_in;
    stand_in.set_faults("version=22501");
    const auto error = error_of([] { (void)nccl::open_api(STAND_IN_NCCL); });
    stand_in.set_faults("");
    EXPECT_THAT(error, is_error(Errc::invalid_argument, "NCCL 2.25.1", "2.26"));
}

TEST(NcclForming, ErrorNamesTheSearchedLibraries) {
    const Variable library("REGROUP_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    const auto error = error_of_create();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::invalid_argument);
    EXPECT_THAT(error->what(), saying("/nowhere/libnccl.so.2", "REGROUP_NCCL_LIBRARY"));
    EXPECT_THAT(error_of([] { (void)nccl::open_api("libc.so.6"); })->what(),
                saying("libc.so.6", "ncclGetUniqueId"));
}

// With the machine's own libnccl.so.2, if there is one.
TEST(NcclForming, MissingGpuIsReported) {
    const cuda::Availability found = cuda::availability();
    EXPECT_TRUE(found.built_in);
    if (found.problem.empty()) {
        GTEST_SKIP() << "this machine has a GPU and NCCL";
    }
    const auto error = error_of_create();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::invalid_argument);
    EXPECT_THAT(error->what(), HasSubstr("group \"default\": "));
    EXPECT_THAT(found.problem, HasSubstr(std::string(error->what()).substr(17)));
    if (found.nccl_version != 0 && found.device_count == 0) {
        EXPECT_THAT(error->what(), ::testing::AnyOf(HasSubstr("no NVIDIA driver"),
                                                    HasSubstr("no GPU that this process")));
    }
}

}  // namespace
}  // namespace regroup
