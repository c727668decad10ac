// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/interruption.h"

#include <regroup/error.h>

#include <cerrno>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/base/result.h"

namespace regroup::cpu {
namespace {

net::Pollable make_wakeup() {
    net::Descriptor fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd.is_open()) {
        throw Error(Errc::system, system_failure("eventfd", errno).detail);
    }
    return {.fd = std::move(fd), .readable = false};
}

}  // namespace

Interruption::Interruption(Mesh& mesh, const std::shared_ptr<RoundScope>& scope)
    : wakeup_(make_wakeup()), registration_(scope, [this](const std::string& reason) {
          const std::lock_guard lock(mutex_);
          reason_ = reason;
          const std::uint64_t one = 1;
          [[maybe_unused]] const ssize_t written = ::write(wakeup_.fd.get(), &one, sizeof one);
      }) {
    mesh.add(*this);
}

void Interruption::watch(net::PollSet& poll) {
    poll.want_read(wakeup_);
}

void Interruption::progress() {
    if (wakeup_.readable) {
        const std::lock_guard lock(mutex_);
        throw Error(Errc::fenced, "aborted: " + reason_);
    }
}

}  // namespace regroup::cpu
