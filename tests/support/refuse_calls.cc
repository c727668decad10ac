// SPDX-License-Identifier: Apache-2.0
//
// Runs a program in a sandbox that refuses a system call, as old container runtimes do with those
// that they do not know:
//
//     refuse_calls EPERM|ENOSYS CALL COMMAND...
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

const std::map<std::string, long>& calls() {
    static const std::map<std::string, long> all{
        {"accept4", SYS_accept4},
        {"clone3", SYS_clone3},
        {"close_range", SYS_close_range},
        {"copy_file_range", SYS_copy_file_range},
        {"dup3", SYS_dup3},
        {"epoll_create1", SYS_epoll_create1},
        {"epoll_pwait", SYS_epoll_pwait},
        {"eventfd2", SYS_eventfd2},
        {"faccessat2", SYS_faccessat2},
        {"fallocate", SYS_fallocate},
        {"flock", SYS_flock},
        {"futex_waitv", SYS_futex_waitv},
        {"get_robust_list", SYS_get_robust_list},
        {"getrandom", SYS_getrandom},
        {"madvise", SYS_madvise},
        {"membarrier", SYS_membarrier},
        {"memfd_create", SYS_memfd_create},
        {"openat2", SYS_openat2},
        {"pidfd_open", SYS_pidfd_open},
        {"pidfd_send_signal", SYS_pidfd_send_signal},
        {"pipe2", SYS_pipe2},
        {"ppoll", SYS_ppoll},
        {"prctl", SYS_prctl},
        {"preadv2", SYS_preadv2},
        {"prlimit64", SYS_prlimit64},
        {"process_vm_readv", SYS_process_vm_readv},
        {"ptrace", SYS_ptrace},
        {"renameat2", SYS_renameat2},
        {"rseq", SYS_rseq},
        {"sched_getaffinity", SYS_sched_getaffinity},
        {"sched_setaffinity", SYS_sched_setaffinity},
        {"set_mempolicy", SYS_set_mempolicy},
        {"set_robust_list", SYS_set_robust_list},
        {"statx", SYS_statx},
        {"syslog", SYS_syslog},
        {"timerfd_create", SYS_timerfd_create},
    };
    return all;
}

}  // namespace

int main(int count, char** words) {
    if (count < 4 || calls().count(words[2]) == 0) {
        std::fputs("refuse_calls: give EPERM or ENOSYS, a system call and a command\n", stderr);
        return 2;
    }
    const auto number = static_cast<unsigned>(calls().at(words[2]));
    const unsigned error = std::string(words[1]) == "ENOSYS" ? ENOSYS : EPERM;
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{sizeof filter / sizeof filter[0], filter};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        std::perror("refuse_calls: seccomp");
        return 77;
    }
    ::execv(words[3], words + 3);
    std::perror(words[3]);
    return 127;
}
