// SPDX-License-Identifier: Apache-2.0
#include "agent/health/folder_probe.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <sys/statvfs.h>
#include <system_error>
#include <thread>

namespace regroup::health {

struct FolderProbe::Question {
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<Folder> answer;
};

Folder read_folder(const std::string& path) {
    struct statvfs space{};
    Folder folder{path};
    if (::statvfs(path.c_str(), &space) == 0) {
        folder.free = space.f_bavail * space.f_frsize;
        folder.total = space.f_blocks * space.f_frsize;
    }
    return folder;
}

Folder FolderProbe::ask(const std::string& path, Duration limit) {
    Folder silent{path};
    silent.silent = true;
    if (open_) {
        const std::scoped_lock lock(open_->mutex);
        if (!open_->answer) {
            return silent;
        }
    }
    open_ = std::make_shared<Question>();
    try {
        std::thread([question = open_, read = read_, path] {
            Folder folder = read(path);
            const std::scoped_lock lock(question->mutex);
            question->answer = std::move(folder);
            question->answered.notify_one();
        }).detach();
    } catch (const std::system_error&) {
        open_ = nullptr;  // No thread, no answer: it counts as good.
        return Folder{path};
    }
    std::unique_lock lock(open_->mutex);
    return open_->answered.wait_for(lock, limit, [this] { return open_->answer.has_value(); })
               ? *open_->answer
               : silent;
}

}  // namespace regroup::health
