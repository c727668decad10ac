// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/helper_thread.h"

#include <regroup/error.h>

#include <cfenv>
#include <csignal>
#include <pthread.h>
#include <string>
#include <system_error>
#include <utility>

namespace regroup {
namespace {

/// Blocks all signals of this thread, and of those that it starts, while it lives.
class SignalsBlocked {
   public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

   private:
    sigset_t before_{};
};

}  // namespace

std::thread start_helper_thread(const char* name, std::function<void()> body) {
    const SignalsBlocked blocked;
    std::thread thread;
    try {
        thread = std::thread([body = std::move(body)] {
            // Results must not depend on the floating-point mode, which a thread inherits.
            std::fesetenv(FE_DFL_ENV);
            body();
        });
    } catch (const std::system_error& error) {
        const bool refused = error.code() == std::errc::operation_not_permitted;
        throw Error(Errc::system, std::string("the thread ") + name +
                                      " cannot be started: " + error.code().message() +
                                      (refused ? "; the system call clone3 is refused, as by the "
                                                 "sandbox of an old container runtime"
                                               : ""));
    }
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace regroup
