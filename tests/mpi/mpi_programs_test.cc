// SPDX-License-Identifier: Apache-2.0
//
// Programs that call MPI, under regroup and without MPI, and a program of the SDK under a real
// mpirun.
#include <filesystem>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

std::string mpi_program(const std::string& name) {
    return std::string(MPI_PROGRAMS) + "/mpi_" + name;
}

std::string find_tool(const std::string& name) {
    for (const char* place : {"/usr/bin/", "/usr/local/bin/"}) {
        if (std::filesystem::exists(place + name)) {
            return place + name;
        }
    }
    return "";
}

class MpiPrograms : public EndToEnd {
   protected:
    [[nodiscard]] Program start(const std::string& ranks, const Words& program) const {
        return run(Words{"--standalone", "--nproc-per-node=" + ranks} + program);
    }
};

TEST_F(MpiPrograms, UniqueIdReachesAllRanksAndEachPartGetsItsOwn) {
    Program job = start("4", {mpi_program("unique_id")});
    EXPECT_EQ(job.wait(), 0) << job.output();
    const std::string output = job.output();
    // The key makes the highest rank the first of its part.
    for (const char* line : {"rank 0 of 4, local rank 0, id ", "rank 3 of 4, local rank 3, id ",
                             "part 1 of 2, part id ", "best 3"}) {
        EXPECT_THAT(output, HasSubstr(line));
    }
    std::map<std::string, int> ids;
    std::map<std::string, int> part_ids;
    for (const std::string& line : lines_of(output)) {
        const std::size_t id = line.find(" id ");
        const std::size_t part_id = line.find(" part id ");
        if (id != line.npos && part_id != line.npos) {
            ++ids[line.substr(id, line.find(',', id) - id)];
            ++part_ids[line.substr(part_id, line.find(',', part_id) - part_id)];
        }
    }
    EXPECT_EQ(ids.size(), 1U) << output;
    EXPECT_EQ(part_ids.size(), 2U) << output;
}

TEST_F(MpiPrograms, EveryFunctionFollowsTheMpiStandard) {
    for (const char* program : {"collectives", "uneven", "patterns"}) {
        for (const char* ranks : {"2", "3", "4"}) {
            Program job = start(ranks, {mpi_program(program)});
            EXPECT_EQ(job.wait(), 0) << program << " " << ranks << "\n" << job.output();
            EXPECT_THAT(job.output(), HasSubstr("rank 1: all is well")) << program << ranks;
        }
    }
}

TEST_F(MpiPrograms, EveryFunctionWorksOverTcpToo) {
    for (const char* program : {"collectives", "uneven", "patterns"}) {
        Program job = run({"--standalone", "--nproc-per-node=3", mpi_program(program)},
                          {"REGROUP_CPU_TRANSPORT=tcp"});
        EXPECT_EQ(job.wait(), 0) << program << "\n" << job.output();
    }
}

TEST_F(MpiPrograms, UnevenCollectivesWorkAlone) {
    Program job({{mpi_program("uneven")}, {}, folder()});
    EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST_F(MpiPrograms, RunAloneAsAWorldOfOne) {
    Program job({{mpi_program("unique_id")}, {}, folder()});
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("rank 0 of 1, local rank 0"));
}

TEST_F(MpiPrograms, ARankThatFailsEndsTheJob) {
    struct Ending {
        const char* way;
        int code;
        const char* says;
    };
    for (const Ending& ending :
         {Ending{"abort", 42, "regroup_mpi: rank 2 of 3: MPI_Abort was called with code 42"},
          Ending{"kill", 128 + SIGKILL, "SIGKILL"}, Ending{"exit", 7, "rank 2"},
          Ending{"root", 1, "regroup_mpi: rank 2 of 3: MPI_Bcast: rank 3 is none of"},
          // Bits are reduced by the group, and not gathered.
          Ending{"bits", 1, "all_reduce #1 (bit_or"}}) {
        Program job = start("3", {mpi_program("misuse"), ending.way});
        EXPECT_EQ(job.wait(), ending.code) << ending.way << "\n" << job.output();
        EXPECT_THAT(job.output(), saying(std::string("rank 2 goes by ") + ending.way, ending.says,
                                         Not(HasSubstr("the barrier is complete"))));
    }
}

TEST_F(MpiPrograms, CallBeforeInitIsReported) {
    Program job({{mpi_program("misuse"), "too_early"}, {}, folder()});
    EXPECT_EQ(job.wait(), 1) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("regroup_mpi: MPI_Barrier: called before MPI_Init"));
}

TEST_F(MpiPrograms, OtherBuildSystemsLinkOneLibraryInAnMpiHome) {
    if (LINKS_PLAINLY == 0) {
        GTEST_SKIP() << "with sanitizers, libmpi.a alone is not enough to link";
    }
    const std::string home = MPI_HOME;
    // As a program, and as a shared library.
    for (const char* kind : {"-o program", "-fPIC -shared -o libprogram.so"}) {
        const std::string link = std::string(C_COMPILER) + " -I" + home + "/include " +
                                 MPI_SOURCES + "/unique_id.c " + kind + " -L" + home +
                                 "/lib -lmpi -lstdc++ -lm " + CUDA_LIBRARIES;
        Program compiler({{"/bin/sh", "-c", link}, {}, folder()});
        ASSERT_EQ(compiler.wait(), 0) << compiler.output();
    }
    Program job = start("2", {folder() + "/program"});
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("rank 1 of 2, local rank 1"));
}

TEST_F(MpiPrograms, AnMpiLauncherStartsProgramsOfTheSdk) {
    const std::string mpirun = find_tool("mpirun.openmpi");
    if (mpirun.empty()) {
        GTEST_SKIP() << "Open MPI's mpirun is missing (Debian: openmpi-bin)";
    }
    const Words flags{mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3"};
    Program job({flags + Words{mpi_program("job_rank")}, {}, folder()});
    EXPECT_EQ(job.wait(), 0) << job.output();
    for (const char* line :
         {"rank 0 of 3, local rank 0 of 3, sum 6", "rank 1 of 3, local rank 1 of 3, sum 6",
          "rank 2 of 3, local rank 2 of 3, sum 6"}) {
        EXPECT_THAT(job.output(), HasSubstr(line));
    }
    // Each rank is a child of a shell, and calls regroup's MPI functions under a real mpirun.
    Program shell(
        {flags + Words{"/bin/sh", "-c", mpi_program("collectives") + "; exit $?"}, {}, folder()});
    EXPECT_EQ(shell.wait(), 0) << shell.output();
    EXPECT_THAT(shell.output(), HasSubstr("rank 2: all is well"));
}

}  // namespace
}  // namespace regroup::testing
