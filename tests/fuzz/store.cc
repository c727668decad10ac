// SPDX-License-Identifier: Apache-2.0
//
// Four interleaved clients of one store, each with a parser. Every byte is consumed or refused. The
// bytes allocated are linear in the bytes received and sent, and the live ones are at most twice
// what the store charges, and a constant.
#include <array>
#include <optional>

#include "rendezvous/store/store_dispatch.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/memory.h"

namespace regroup::fuzz_store {
namespace {

using namespace regroup::store;

/// Beyond the charges: the tables of an empty store, four parsers, and one request with its reply.
constexpr std::size_t kConstantBytes = std::size_t{24} << 10U;
/// The bytes that may be allocated for each byte received or sent, and for each request.
constexpr std::size_t kWorkPerByte = 48;
constexpr std::size_t kWorkPerRequest = 2048;

Limits limits() {
    Limits limits;
    limits.key_bytes_max = 1024;
    limits.value_bytes_max = 64 << 10;
    limits.stored_value_bytes_max = 128 << 10;
    limits.keys_max = 1024;
    limits.request_bytes_max = 256 << 10;
    limits.reply_bytes_max = 256 << 10;
    limits.total_bytes_max = 1 << 20;
    return limits;
}

struct Client {
    std::optional<RequestParser> parser;
    bool refused = false;
};

class Server {
   public:
    explicit Server(Dialect older)
        : core_(limits()), older_(older), live_before_(fuzz::memory().live) {
        for (Client& client : clients_) {
            client.parser.emplace(limits(), older_);
        }
    }

    Client& client(std::size_t number) { return clients_[number]; }

    /// `callers_bytes`: what the caller has allocated for `bytes`.
    void receive(std::size_t number, std::string_view bytes, std::size_t callers_bytes = 0) {
        const std::size_t allocated_before = fuzz::memory().allocated;
        work_ += kWorkPerByte * bytes.size();
        while (!clients_[number].refused && !bytes.empty()) {
            const std::size_t before = bytes.size();
            const auto request = clients_[number].parser->next(bytes);
            if (!request) {
                close(number);
                break;
            }
            fuzz::require(bytes.size() < before, "a parser makes progress");
            if (!*request) {
                fuzz::require(bytes.empty(), "a parser takes all bytes");
                break;
            }
            fuzz::require(check_limits(**request, limits()).has_value(), "a request is bounded");
            work_ += kWorkPerRequest + kWorkPerByte * execute_one(number, **request);
        }
        tidy();
        allocated_ += fuzz::memory().allocated - allocated_before;
        fuzz::require(allocated_ <= work_ + kWorkPerRequest,
                      "the work is linear in the bytes received and sent");
        check_memory(callers_bytes);
    }

    void close(std::size_t number) {
        core_.cancel_wait(ClientId{number});
        clients_[number].refused = true;
        clients_[number].parser.emplace(limits(), older_);
    }
    void reopen(std::size_t number) {
        close(number);
        clients_[number].refused = false;
    }

   private:
    /// Returns the size of the reply.
    std::size_t execute_one(std::size_t number, const Request& request) {
        std::string reply;
        Released released;
        if (!execute(core_, ClientId{number}, request, reply, released)) {
            close(number);
            return 0;
        }
        fuzz::require(reply.size() <= limits().reply_bytes_max + 8, "a reply is bounded");
        fuzz::require(released.size() <= clients_.size(), "each wait ends once");
        for (const ClientId client : released) {
            fuzz::require(core_.wait_bytes(client) == 0, "a released client waits no more");
        }
        return reply.size();
    }

    void tidy() {
        constexpr std::size_t kSlice = 32;
        const std::size_t before = core_.untidy_bytes();
        const std::size_t removed = core_.tidy(kSlice);
        fuzz::require(removed <= kSlice, "a slice is bounded");
        fuzz::require(core_.is_tidy() || removed == kSlice, "a slice is full, or the last one");
        fuzz::require(core_.untidy_bytes() <= before, "removal adds nothing");
        fuzz::require(!core_.is_tidy() || core_.untidy_bytes() == 0, "all of it is counted");
    }

    void check_memory(std::size_t callers_bytes) {
        std::size_t charged = core_.total_bytes() + core_.untidy_bytes();
        fuzz::require(charged <= limits().total_bytes_max, "the store is bounded");
        for (std::size_t number = 0; number < clients_.size(); ++number) {
            charged += clients_[number].parser->held_bytes() + core_.wait_bytes(ClientId{number});
        }
        most_charged_ = std::max(most_charged_, charged);
        // A hash table keeps a bucket for each entry that it has had.
        const std::size_t allowed = 2 * charged + most_charged_ / 8 + kConstantBytes;
        const std::size_t live = fuzz::memory().live - live_before_ - callers_bytes;
        if (live > allowed) {
            fuzz::fail(std::to_string(live) + " bytes are live, and " + std::to_string(charged) +
                       " are charged");
        }
    }

    StoreCore core_;
    const Dialect older_;
    std::array<Client, 4> clients_{};
    std::size_t live_before_;
    std::size_t most_charged_ = 0;
    // Over all calls: a value that grows by appending doubles its memory once in a while.
    std::size_t work_ = 0;
    std::size_t allocated_ = 0;
};

std::string make_text(fuzz::Input& input) {
    const std::uint8_t kind = input.byte();
    if (kind < 160) {
        return std::string(1 + kind % 3, static_cast<char>('a' + kind / 3 % 4));
    }
    return kind < 200 ? input.text(32) : std::string(input.below(80 << 10), 'v');
}

/// A request of any kind, which the dialect may not have.
std::string make_request(fuzz::Input& input, Dialect dialect) {
    const auto opcodes = opcodes_of(dialect);
    Request request{opcodes[input.below(opcodes.size())], {}, 0};
    std::size_t texts = 1;
    switch (request.opcode) {
        case Opcode::set:
        case Opcode::append:
        case Opcode::queue_push:
            texts = 2;
            break;
        case Opcode::compare_set:
            texts = 3;
            break;
        case Opcode::check:
        case Opcode::wait:
        case Opcode::multi_get:
            // Some waits are for so many names that they are removed in slices.
            texts = input.below(input.chance(16) ? 200 : 12);
            break;
        case Opcode::multi_set:
            texts = 2 * input.below(12);
            break;
        case Opcode::validate:
        case Opcode::num_keys:
        case Opcode::cancel_wait:
        case Opcode::list_keys:
        case Opcode::ping:
            texts = 0;
            break;
        default:
            break;
    }
    for (; texts > 0; --texts) {
        request.texts.push_back(make_text(input));
    }
    if (request.opcode == Opcode::validate) {
        request.number = kMagic;
    } else if (request.opcode == Opcode::barrier) {
        request.number = static_cast<std::int64_t>(input.below(5));
    } else if (request.opcode == Opcode::add) {
        request.number = static_cast<std::int64_t>(input.number(UINT64_MAX));
    }
    std::string bytes;
    encode(request, bytes, dialect);
    return bytes;
}

std::vector<std::string> seeds() {
    std::string greeting;
    encode({Opcode::validate, {}, kMagic}, greeting);
    std::string all('\0' + std::string("\x40\x07", 2) + greeting);
    for (const Opcode opcode : opcodes_of(Dialect::current)) {
        all += std::string("\x80", 1) + static_cast<char>(opcode) + "\x01\x02\x03\x04\x05";
    }
    const std::string greeted = std::string("\0\x40\x05", 3) + greeting;
    // The beginning of a request that announces more than it brings.
    std::string announced;
    encode({Opcode::set, {"/k", std::string(limits().value_bytes_max, 'v')}}, announced);
    announced.resize(60);
    // A large value, replaced by a small one.
    return {all, greeted + "\x40\x3C" + announced,
            greeted + "\x80\x01\x01\xF0\xFF\x3F\x80\x01\x01\x02"};
}

/// The first byte: the older dialect. Then pieces: a byte that says which client and what, and its
/// bytes.
void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    const Dialect older = input.chance(128) ? Dialect::v2_1 : Dialect::v1_13;
    Server server(older);
    while (!input.empty()) {
        const std::uint8_t kind = input.byte();
        const std::size_t number = kind % 4;
        switch (kind / 64) {
            case 0:
                if (kind / 4 % 16 == 0) {
                    server.reopen(number);
                    break;
                }
                [[fallthrough]];
            case 1:
                server.receive(number, input.bytes(input.byte()));
                break;
            default: {
                const auto spoken = server.client(number).parser->dialect();
                const std::size_t live_before = fuzz::memory().live;
                const std::string request = make_request(input, spoken.value_or(Dialect::current));
                // In two pieces, to leave a request incomplete for a while.
                const std::size_t first = kind / 64 == 2 ? request.size() : request.size() / 2;
                const std::size_t callers_bytes = fuzz::memory().live - live_before;
                server.receive(number, std::string_view(request).substr(0, first), callers_bytes);
                server.receive(number, std::string_view(request).substr(first), callers_bytes);
            }
        }
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_store
