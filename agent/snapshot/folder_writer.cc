// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/folder_writer.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "agent/snapshot/low_priority.h"
#include "rendezvous/snapshot/folder.h"
#include "rendezvous/snapshot/image.h"

namespace regroup::agent {

namespace {

using snapshot::Holding;
using snapshot::PartId;
using snapshot::Version;

}  // namespace

/// One version to write.
struct FolderWriter::Job {
    std::string state;
    Version version;
    bool at_end = false;       ///< The workers have ended: nothing changes any more.
    bool with_copies = false;  ///< Also parts of other nodes.
    bool announces = false;    ///< Says that it has succeeded.
    /// Until the version has been copied in memory, while workers are alive.
    std::shared_ptr<Shelf::Hold> hold{};
};

/// The state of the threads, which may outlive the writer.
struct FolderWriter::Shared {
    Shared(std::shared_ptr<Shelf> shelf_in, Options options_in)
        : shelf(std::move(shelf_in)), options(std::move(options_in)), folder(options.folder) {}

    /// A part of the version, in its place or in a copy.
    struct Source {
        HeldPart part;
        ImageRef image;
    };

    void run(Job& job);
    [[nodiscard]] bool write_parts(Job& job);
    [[nodiscard]] std::vector<HeldPart> parts_of(const Job& job) const;
    Result<Source> take(const Job& job, const HeldPart& part) const;
    Result<void> write_part(const Source& source);
    void too_slow(const Version& version) const;
    void succeeded(const Job& job);
    void failed(const Job& job, const Failure& why);
    [[nodiscard]] bool is_written(const Job& job);

    const std::shared_ptr<Shelf> shelf;
    const Options options;
    const snapshot::Folder folder;
    std::atomic<bool> stop{false};  ///< A version that is being written stays incomplete.
    std::mutex mutex;
    // Guarded by it.
    bool is_over = false;
    std::multiset<std::string> waiting;  ///< States, with the one that is being written.
    std::optional<std::pair<std::string, Version>> running;
    std::map<std::string, Version> written;
};

FolderWriter::FolderWriter(std::shared_ptr<Shelf> shelf, Options options)
    : shelf_(shelf),
      shared_(std::make_shared<Shared>(std::move(shelf), std::move(options))),
      interval_(shared_->options.interval),
      began_(now()) {}

FolderWriter::~FolderWriter() {
    give_up();
}

Duration FolderWriter::since_last_locked(const std::string& state) const {
    const auto found = last_.find(state);
    return now() - (found != last_.end() ? found->second : began_);
}

bool FolderWriter::is_due(const std::string& state) const {
    const std::lock_guard lock(mutex_);
    return since_last_locked(state) >= interval_;
}

void FolderWriter::whole(const std::string& state, const Version& version, bool write) {
    {
        const std::lock_guard lock(mutex_);
        // Workers of another kind may never say that all are to write.
        const bool is_late = since_last_locked(state) >= interval_ + interval_ / 2;
        if ((!write && !is_late) || begun_[state] >= version) {
            return;
        }
        // The workers wait until it has been copied in memory, but not for the disk.
        const std::lock_guard shared_lock(shared_->mutex);
        const auto own = shared_->waiting.find(state);
        if (own == shared_->waiting.end() && !shared_->waiting.empty()) {
            return;  // Another state is being written; this one has its turn with its next version.
        }
        begun_[state] = version;
        last_[state] = now();
        if (own != shared_->waiting.end()) {
            shared_->too_slow(version);
            return;
        }
    }
    post({.state = state, .version = version, .hold = std::make_shared<Shelf::Hold>(shelf_)});
}

std::map<std::string, Version> FolderWriter::written() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->written;
}

// ---- The end.

/// The versions that are known to be whole, and those that may be: another node may know that a
/// later version is whole, and then writes that one.
std::vector<FolderWriter::Job> FolderWriter::last_versions(bool at_end) const {
    std::map<std::string, std::map<PartId, Version>> latest;
    for (const HeldPart& part : shelf_->parts()) {
        if (part.place == Holding::Place::room) {
            Version& version = latest[part.id.name][part.id];
            version = std::max(version, part.version);
        }
    }
    std::vector<Job> jobs;
    std::set<std::string> states;
    for (const auto& [state, parts] : latest) {
        states.insert(state);
        const auto whole = shelf_->whole(state);
        if (whole) {
            jobs.push_back({state, *whole});
        }
        const auto newest =
            std::max_element(parts.begin(), parts.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        const bool is_everywhere_here =
            std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
                return part.first.parts != newest->first.parts || part.second == newest->second;
            });
        if (at_end && is_everywhere_here && (!whole || newest->second > *whole)) {
            jobs.push_back({state, newest->second});
        }
    }
    for (const HeldPart& part : shelf_->parts()) {
        const auto whole = shelf_->whole(part.id.name);
        if (whole && states.insert(part.id.name).second) {
            jobs.push_back({part.id.name, *whole});  // Only copies are here.
        }
    }
    for (Job& job : jobs) {
        job.at_end = at_end;
        job.announces = at_end;
    }
    if (at_end) {
        const std::size_t own = jobs.size();
        for (std::size_t i = 0; i < own; ++i) {
            Job copies = jobs[i];
            copies.with_copies = true;
            jobs.push_back(std::move(copies));
            jobs[i].announces = false;
        }
    }
    return jobs;
}

void FolderWriter::write_now() {
    {
        const std::lock_guard lock(shared_->mutex);
        if (!shared_->waiting.empty()) {
            return;  // The workers do not wait for the disk; finish() writes it.
        }
    }
    const auto hold = std::make_shared<Shelf::Hold>(shelf_);
    for (Job& job : last_versions(false)) {
        job.hold = hold;
        post(std::move(job));
    }
}

void FolderWriter::finish(std::function<void()> on_done) {
    const std::vector<Job> jobs = last_versions(true);
    {
        const std::lock_guard lock(shared_->mutex);
        const auto& running = shared_->running;
        const bool is_old = running && std::any_of(jobs.begin(), jobs.end(), [&](const Job& job) {
                                return job.state == running->first && job.version > running->second;
                            });
        if (is_old) {
            shared_->stop.store(true);
        }
    }
    for (const Job& job : jobs) {
        post(job);
    }
    const auto done = std::make_shared<std::function<void()>>(std::move(on_done));
    if (!thread_.post([done] { (*done)(); })) {
        (*done)();
    }
}

void FolderWriter::give_up() {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_over = true;
    shared_->stop.store(true);
}

void FolderWriter::post(Job job) {
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->waiting.insert(job.state);
    }
    const auto posted_job = std::make_shared<Job>(std::move(job));
    const bool posted = thread_.post([shared = shared_, posted_job] {
        lower_priority();
        shared->run(*posted_job);
        posted_job->hold.reset();
        const std::lock_guard lock(shared->mutex);
        shared->waiting.extract(posted_job->state);
    });
    if (!posted) {
        const std::lock_guard lock(shared_->mutex);
        shared_->waiting.extract(posted_job->state);
        shared_->too_slow(posted_job->version);
    }
}

// ---- On the threads.

bool FolderWriter::Shared::is_written(const Job& job) {
    const std::lock_guard lock(mutex);
    const auto found = written.find(job.state);
    return found != written.end() && found->second >= job.version;
}

void FolderWriter::Shared::too_slow(const Version& version) const {
    options.say(to_string(version) + " is not written to " + options.folder.string() +
                ": the versions before it still wait for the disk; raise --snapshot-interval");
}

void FolderWriter::Shared::run(Job& job) {
    {
        const std::lock_guard lock(mutex);
        const auto found = written.find(job.state);
        if (is_over || (found != written.end() && found->second > job.version)) {
            return;
        }
        stop.store(false);
        running = std::pair(job.state, job.version);
    }
    const bool is_done = is_written(job);
    const bool is_good = (is_done && !job.with_copies) || write_parts(job);
    {
        const std::lock_guard lock(mutex);
        running.reset();
    }
    if (is_good && (is_done || !job.with_copies)) {
        succeeded(job);
    }
}

std::vector<HeldPart> FolderWriter::Shared::parts_of(const Job& job) const {
    std::set<PartId> own;
    std::vector<HeldPart> parts;
    for (const HeldPart& part : shelf->parts()) {
        if (part.id.name != job.state || part.version != job.version) {
            continue;
        }
        if (part.place == Holding::Place::room && !own.insert(part.id).second) {
            continue;  // Two rooms have it.
        }
        parts.push_back(part);
    }
    std::erase_if(parts, [&](const HeldPart& part) {
        const bool is_copy = part.place == Holding::Place::copy;
        return is_copy != job.with_copies || (is_copy && own.contains(part.id));
    });
    return parts;
}

bool FolderWriter::Shared::write_parts(Job& job) {
    const std::vector<HeldPart> parts = parts_of(job);
    // All of them first: the disk is slower than the workers, who overwrite them meanwhile.
    std::vector<Source> sources;
    bool all = true;
    const auto check = [&](const Result<void>& done) {
        if (!done) {
            failed(job, done.error());
            all = false;
        }
    };
    for (const HeldPart& part : parts) {
        if (Result<Source> source = take(job, part)) {
            sources.push_back(*std::move(source));
        } else {
            check(source.error());
        }
    }
    job.hold.reset();
    for (const Source& source : sources) {
        check(write_part(source));
    }
    return all && (!parts.empty() || job.with_copies);
}

Result<FolderWriter::Shared::Source> FolderWriter::Shared::take(const Job& job,
                                                                const HeldPart& part) const {
    std::optional<ImageRef> image = shelf->find(part.id, part.version, part.place);
    if (image && !job.at_end && part.place == Holding::Place::room) {
        if (const auto copy = shelf->scratch(part.bytes); copy && (*copy)->allocate()) {
            std::memcpy((*copy)->bytes().data(), image->bytes.data(), part.bytes);
            image = ImageRef{*copy, (*copy)->fd(), 0, (*copy)->bytes()};
        }
    }
    if (!image || !shelf->has(part.id, part.version, part.place)) {
        return Failure(Errc::overloaded, "part " + std::to_string(part.id.part) +
                                             " has been overwritten by its worker; save less "
                                             "often");
    }
    return Source{part, *std::move(image)};
}

Result<void> FolderWriter::Shared::write_part(const Source& source) {
    const HeldPart& part = source.part;
    std::error_code error;
    const auto there = std::filesystem::file_size(folder.file_of(part.id, part.version), error);
    if (error || there != part.bytes) {
        if (const auto header = snapshot::verify_image(source.image.bytes); !header) {
            const bool is_there = shelf->has(part.id, part.version, part.place);
            return Failure(Errc::system,
                           "part " + std::to_string(part.id.part) + " in memory " +
                               (is_there ? header.error().detail
                                         : "has been overwritten by its worker; save less often"));
        }
    }
    return folder.write(part.id, part.version, source.image.bytes, &stop);
}

void FolderWriter::Shared::succeeded(const Job& job) {
    {
        const std::lock_guard lock(mutex);
        Version& last = written[job.state];
        last = std::max(last, job.version);
    }
    folder.prune(job.state);
    if (!job.announces) {
        return;
    }
    const std::string state = job.state == "state" ? "" : " of '" + job.state + "'";
    options.say(folder.is_complete(job.state, job.version)
                    ? "the last whole snapshot" + state + ", " + to_string(job.version) +
                          ", is in " + options.folder.string()
                    : "this node's part of the last snapshot" + state + ", " +
                          to_string(job.version) + ", is in " + options.folder.string());
}

void FolderWriter::Shared::failed(const Job& job, const Failure& why) {
    if (why.code == Errc::deadline_exceeded) {
        const std::lock_guard lock(mutex);
        if (!is_over) {
            return;  // A later version is written instead.
        }
    }
    options.say("the snapshot of " + to_string(job.version) + " could not be written to " +
                options.folder.string() + ": " + why.detail +
                "; the versions that are there are untouched");
}

}  // namespace regroup::agent
