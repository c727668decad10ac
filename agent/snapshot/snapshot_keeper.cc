// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/snapshot_keeper.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "agent/snapshot/channel_server.h"
#include "agent/snapshot/copier.h"
#include "agent/snapshot/fetches.h"
#include "agent/snapshot/folder_writer.h"
#include "agent/snapshot/mouth.h"
#include "agent/snapshot/peer_client.h"
#include "agent/snapshot/peer_server.h"
#include "agent/snapshot/shelf.h"
#include "rendezvous/cgroup/cgroup.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/snapshot/folder.h"

namespace regroup::agent {

namespace {

using snapshot::Answer;
using snapshot::Ask;
using snapshot::Holding;
using Reply = ChannelServer::Reply;

Reply refusal(std::string why) {
    return {Answer{.error = std::move(why)}, {}};
}

UniqueFd copy_of(int fd) {
    return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

Reply with_file(UniqueFd file, const snapshot::Range& range) {
    if (!file) {
        return refusal(system_failure("a descriptor for a snapshot", errno).detail);
    }
    return {Answer{.offset = range.begin, .bytes = range.bytes}, std::move(file)};
}

Reply with_text(const std::string& text) {
    UniqueFd file(::memfd_create("regroup-snapshots-held", MFD_CLOEXEC));
    const ssize_t written = file ? ::write(file.get(), text.data(), text.size()) : -1;
    if (written != static_cast<ssize_t>(text.size())) {
        return refusal(system_failure("memory for a list of snapshots", errno).detail);
    }
    return {Answer{.bytes = text.size()}, std::move(file)};
}

Reply with_file_at(const std::filesystem::path& path, const Ask& ask) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
        return refusal(system_failure("open " + path.string(), errno).detail);
    }
    return with_file(std::move(file), range_of(ask, static_cast<std::uint64_t>(status.st_size)));
}

std::uint64_t memory_max(const SnapshotOptions& options) {
    return options.memory_max.value_or(cgroup::node_memory_left() / 2);
}

/// The facts of the round that the threads need.
struct RoundFacts {
    std::uint32_t group_rank = 0;
    std::string endpoint{};  ///< Of this agent, for the others; empty: none.
    PeerTrust trust{};
};

}  // namespace

/// The parts of the keeper that exist from the first channel on.
struct ActiveSnapshots {
    using Say = std::function<void(const std::string& sentence)>;

    /// `say_in`: from any thread.
    ActiveSnapshots(boost::asio::io_context& io, const SnapshotOptions& options_in,
                    std::string name_in, const Say& say)
        : options(options_in),
          name(std::move(name_in)),
          shelf_owner(std::make_shared<Shelf>(
              Shelf::Limits{memory_max(options_in), !options_in.folder.empty()})),
          shelf(*shelf_owner),
          copier(shelf, say),
          fetches([this](const Ask& ask) { return fetch(ask); }),
          server(io, shelf,
                 {.find = [this](const Ask& ask) { return find(ask); },
                  .on_whole = [this](const Ask& ask) { whole(ask, Shelf::Teller::agent); },
                  .on_kept = [this](const Ask& ask) { shelf.set_kept(ask.id, ask.version); },
                  .say = say}),
          channels([this](const Ask& ask) { return answer(ask); }) {
        if (!options.folder.empty()) {
            writer.emplace(shelf_owner,
                           FolderWriter::Options{options.folder, options.interval, say});
        }
    }
    ~ActiveSnapshots() { sockets.stop(); }
    ActiveSnapshots(const ActiveSnapshots&) = delete;
    ActiveSnapshots& operator=(const ActiveSnapshots&) = delete;

    /// On the thread of the io_context.
    void begin_round(boost::asio::io_context& io, const rendezvous::Assignment& assignment,
                     const std::string& own_address, const PeerTrust& trust, const Say& say) {
        const bool has_others = assignment.group_world_size > 1;
        shelf.begin_round(number(assignment.round), has_others);
        if (has_others && server.port() == 0) {
            if (Result<void> started = server.start(trust, io); !started) {
                say("other nodes cannot hold copies of this node's snapshots: " +
                    started.error().detail);
            }
        }
        server.set_trust(trust);
        copier.begin_round(has_others);
        const std::lock_guard lock(mutex);
        round = {assignment.group_rank,
                 server.port() == 0 ? "" : rendezvous::Endpoint{own_address, server.port()}.text(),
                 trust};
    }

    [[nodiscard]] RoundFacts facts() {
        const std::lock_guard lock(mutex);
        return round;
    }

    // ---- On the threads of channels.

    Reply answer(const Ask& ask) {
        switch (ask.kind) {
            case Ask::Kind::room:
                return give_room(ask);
            case Ask::Kind::holdings:
                return with_text(snapshot::encode(holdings(ask.id.name)));
            case Ask::Kind::image:
                return give_image(ask);
            case Ask::Kind::adopt:
                return adopt(ask);
            case Ask::Kind::saved:
                return saved(ask);
            case Ask::Kind::whole:
                whole(ask, Shelf::Teller::worker);
                if (writer) {
                    writer->whole(ask.id.name, ask.version, ask.write);
                }
                return {};
            case Ask::Kind::kept:
                shelf.set_kept(ask.id, ask.version);
                copier.try_again();
                return {};
            case Ask::Kind::copies_to:
                copier.set_target(Copier::Target{ask.endpoint, facts().trust});
                return {};
        }
        return refusal("the agent does not know this message");
    }

    Reply give_room(const Ask& ask) {
        const snapshot::RoomWanted wanted{ask.id, ask.bytes, ask.spare, ask.replicated, ask.fresh};
        auto room = shelf.room(wanted);
        if (!room && room.error().code == Errc::overloaded) {
            fetches.drop_all();  // Workers that still read them have them.
            room = shelf.room(wanted);
        }
        return room ? with_file(copy_of((*room)->fd()), {0, (*room)->bytes()})
                    : refusal(room.error().detail);
    }

    snapshot::Announcement holdings(const std::string& state) {
        snapshot::Announcement announcement;
        announcement.name = name;
        const RoundFacts known = facts();
        announcement.node = known.group_rank;
        announcement.endpoint = known.endpoint;
        for (const HeldPart& held : shelf.parts()) {
            if (held.id.name == state) {
                announcement.holdings.push_back(
                    {held.place, held.id.part, held.id.parts, held.version});
            }
        }
        announcement.holdings = snapshot::joined(announcement.holdings);
        if (!options.folder.empty()) {
            for (const Holding& holding : snapshot::Folder(options.folder).list(state)) {
                announcement.holdings.push_back(holding);
            }
        }
        return announcement;
    }

    Reply give_image(const Ask& ask) {
        if (!ask.endpoint.empty() && ask.endpoint != facts().endpoint) {
            const Fetches::Image image = fetches.get(ask);
            if (image) {
                return with_file(copy_of((*image)->fd()), {0, (*image)->size()});
            }
            Reply reply = refusal(image.error().detail);
            reply.answer.unreachable = image.error().code == Errc::disconnected;
            return reply;
        }
        if (ask.place == Holding::Place::folder) {
            return options.folder.empty()
                       ? refusal(kNoFolder)
                       : with_file_at(snapshot::Folder(options.folder).file_of(ask.id, ask.version),
                                      ask);
        }
        const auto image = shelf.lend(ask.id, ask.version, ask.place);
        if (!image) {
            return refusal(gone(ask));
        }
        const snapshot::Range range = range_of(ask, image->bytes.size());
        return with_file(copy_of(image->fd), {image->offset + range.begin, range.bytes});
    }

    Reply adopt(const Ask& ask) {
        auto image = fetches.find(ask);
        if (!image) {
            return refusal(gone(ask));
        }
        shelf.adopt(ask.id, ask.version, std::move(image));
        return {};
    }

    Reply saved(const Ask& ask) {
        if (!shelf.has(ask.id, ask.version, Holding::Place::room)) {
            return refusal(to_string(ask.version) + " is not in its room");
        }
        copier.saved(ask.id, ask.version, ask.replicated);
        Reply reply;
        reply.answer.write = writer && facts().group_rank == 0 && writer->is_due(ask.id.name);
        return reply;
    }

    static std::string gone(const Ask& ask) {
        return "this node does not have " + to_string(ask.version) + " of part " +
               std::to_string(ask.id.part) + " any more";
    }

    // ---- On these and on the threads of other agents' connections.

    void whole(const Ask& ask, Shelf::Teller teller) {
        if (shelf.set_whole(ask.id.name, ask.version, teller)) {
            fetches.drop(ask.id.name, ask.version);
        }
    }

    Result<ImageRef> find(const Ask& ask) {
        if (ask.place != Holding::Place::folder) {
            auto image = shelf.find(ask.id, ask.version, ask.place);
            return image ? Result<ImageRef>(*std::move(image))
                         : Failure(Errc::overloaded, gone(ask));
        }
        if (options.folder.empty()) {
            return Failure(Errc::overloaded, kNoFolder);
        }
        auto file = snapshot::MappedFile::open(
            snapshot::Folder(options.folder).file_of(ask.id, ask.version));
        if (!file) {
            return file.error();
        }
        const auto owner = std::make_shared<snapshot::MappedFile>(*std::move(file));
        return ImageRef{owner, -1, 0, owner->bytes()};
    }

    Fetches::Image fetch(const Ask& ask) {
        Ask there = ask;
        there.endpoint.clear();
        return get_image(
            {ask.endpoint, facts().trust, sockets}, there,
            [this](std::uint64_t bytes) { return shelf.scratch(bytes); },
            ask.patient ? options.fetch_limit : Duration::zero());
    }

    static constexpr const char* kNoFolder =
        "this node has no folder for snapshots (--snapshot-dir)";

    const SnapshotOptions options;
    const std::string name;
    std::mutex mutex;
    RoundFacts round;  ///< Guarded by the mutex.
    const std::shared_ptr<Shelf> shelf_owner;
    Shelf& shelf;
    OpenSockets sockets;  ///< Of fetches.
    Copier copier;
    Fetches fetches;
    PeerServer server;
    std::optional<FolderWriter> writer;  ///< Nothing without a folder.
    ChannelServer channels;
};

struct SnapshotKeeper::Impl {
    boost::asio::io_context& io;
    const SnapshotOptions options;
    const StoreMode mode;
    const std::string name;
    Say say;
    std::shared_ptr<Mouth> mouth;
    rendezvous::Assignment assignment{};
    std::string own_address{};
    std::unique_ptr<ActiveSnapshots> active{};
    std::optional<Instant> leaves_until{};
    std::function<void()> on_finished{};
    boost::asio::steady_timer timer{io};

    void finished() {
        timer.cancel();
        if (const auto done = std::exchange(on_finished, nullptr)) {
            done();
        }
    }

    [[nodiscard]] PeerTrust trust() const {
        PeerTrust trust;
        trust.same_user = mode == StoreMode::local;
        trust.purpose = "regroup snapshots, round " + std::to_string(number(assignment.round));
        if (const auto key = security::Key::from_secret(assignment.store_key)) {
            trust.key = key->derive(trust.purpose);
        }
        return trust;
    }

    [[nodiscard]] ActiveSnapshots::Say say_from_threads() const {
        return [mouth = mouth, say = say](const std::string& sentence) {
            Mouth::post(mouth, [say, sentence] { say(sentence); });
        };
    }

    void tell_round() const {
        if (active) {
            active->begin_round(io, assignment, own_address, trust(), say);
        }
    }
};

SnapshotKeeper::SnapshotKeeper(boost::asio::io_context& io, SnapshotOptions options, StoreMode mode,
                               std::string name, Say say)
    : impl_(new Impl{io, std::move(options), mode, std::move(name), std::move(say),
                     std::make_shared<Mouth>(io)}) {}

SnapshotKeeper::~SnapshotKeeper() {
    impl_->mouth->close();
}

void SnapshotKeeper::begin_round(const rendezvous::Assignment& assignment,
                                 const std::string& own_address) {
    impl_->assignment = assignment;
    impl_->own_address = own_address;
    impl_->tell_round();
}

Result<UniqueFd> SnapshotKeeper::open() {
    if (!impl_->active) {
        impl_->active = std::make_unique<ActiveSnapshots>(impl_->io, impl_->options, impl_->name,
                                                          impl_->say_from_threads());
        impl_->tell_round();
    }
    return impl_->active->channels.open();
}

std::optional<rendezvous::SnapshotFacts> SnapshotKeeper::facts() const {
    if (!impl_->active || impl_->assignment.group_rank != 0) {
        return std::nullopt;
    }
    const auto state = impl_->active->shelf.latest_state();
    if (!state) {
        return std::nullopt;
    }
    const auto step_of = [](const std::optional<snapshot::Version>& version) {
        return version ? std::optional(version->step) : std::nullopt;
    };
    rendezvous::SnapshotFacts facts;
    facts.step = impl_->active->shelf.whole(*state)->step;
    facts.kept_step = step_of(impl_->active->shelf.kept(*state));
    if (impl_->active->writer) {
        const auto written = impl_->active->writer->written();
        const auto found = written.find(*state);
        facts.written_step = found != written.end() ? step_of(found->second) : std::nullopt;
    }
    facts.bytes = impl_->active->shelf.bytes();
    return facts;
}

void SnapshotKeeper::leave(Duration grace) {
    const Instant until = after(now(), grace);
    const bool is_first = !impl_->leaves_until;
    impl_->leaves_until = std::min(impl_->leaves_until.value_or(until), until);
    if (is_first && impl_->active && impl_->active->writer) {
        impl_->active->writer->write_now();
    }
}

void SnapshotKeeper::finish(Duration limit, std::function<void()> on_done) {
    if (!impl_->active || !impl_->active->writer) {
        on_done();
        return;
    }
    if (impl_->leaves_until) {
        constexpr Duration kLeast = std::chrono::seconds(1);
        limit = std::min(limit, std::max(*impl_->leaves_until - now(), kLeast));
    }
    FolderWriter& writer = *impl_->active->writer;
    impl_->on_finished = std::move(on_done);
    impl_->timer.expires_after(limit);
    impl_->timer.async_wait([impl = impl_.get(), &writer, limit](boost::system::error_code error) {
        if (!error && impl->on_finished) {
            writer.give_up();
            impl->say("the last snapshot could not be written to " + impl->options.folder.string() +
                      " within " + format_duration(limit) +
                      " (--shutdown-timeout); the versions that are there are untouched");
            impl->finished();
        }
    });
    writer.finish([mouth = impl_->mouth, impl = impl_.get()] {
        Mouth::post(mouth, [impl] { impl->finished(); });
    });
}

}  // namespace regroup::agent
