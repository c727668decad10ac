// SPDX-License-Identifier: Apache-2.0
//
// A stranger's words to a rank: the two messages of the handshake, and then records of an
// encrypted connection, some of them real ones that are changed on the way.
#include <algorithm>
#include <cstring>
#include <deque>

#include "tests/fuzz/fuzz.h"
#include "worker_sdk/src/net/handshake.h"

namespace regroup::fuzz_hello {
namespace {

using namespace regroup::net;

const security::Key& group_key() {
    static const security::Key key = *security::Key::from_hex(std::string(64, '7'));
    return key;
}

template <WireStruct T>
T take(fuzz::Input& input) {
    T value{};
    const std::string_view bytes = input.bytes(sizeof value);
    std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
    return value;
}

void stranger_calls(fuzz::Input& input) {
    const Protection own{group_key(), input.chance(128)};
    const auto introduction = take<Introduction>(input);
    const HandshakeAnswer verdict = judge(introduction, own);
    fuzz::require(verdict != HandshakeAnswer::welcome, "a caller without the key is not welcome");
    const Welcome welcome = make_welcome(verdict, introduction, own);
    fuzz::require(welcome.code == security::Mac{}, "a refused caller gets no code");
    const Protection open;
    if (judge(introduction, open) == HandshakeAnswer::welcome) {
        fuzz::require(!result_of(End::accepting, introduction, welcome, open).keys,
                      "without a key nothing is encrypted");
    }
}

void stranger_answers(fuzz::Input& input) {
    const Protection own{group_key(), input.chance(128)};
    const Introduction introduction = introduce(Hello{}, own);
    const auto welcome = take<Welcome>(input);
    fuzz::require(!objection_to(welcome, introduction, own).empty(),
                  "an answer without the key is refused");
}

/// Bytes on their way from one end to the other.
struct Wire {
    std::deque<std::byte> bytes;

    RecordChannel::Move writer() {
        return [this](std::span<std::byte> raw) {
            bytes.insert(bytes.end(), raw.begin(), raw.end());
            return raw.size();
        };
    }
    RecordChannel::Move reader(std::size_t most) {
        return [this, most](std::span<std::byte> raw) {
            const std::size_t count = std::min({most, raw.size(), bytes.size()});
            std::copy_n(bytes.begin(), count, raw.begin());
            bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
            return count;
        };
    }
};

/// The text that arrives is the beginning of the one that was sent, whatever somebody does to the
/// bytes.
void records(fuzz::Input& input) {
    const bool aes = has_fast_aes() && input.chance(128);
    const security::Key there = group_key().derive("there");
    const security::Key back = group_key().derive("back");
    RecordChannel from(SessionKeys{there, back, aes});
    RecordChannel to(SessionKeys{back, there, aes});
    Wire wire;
    std::string sent;
    std::string arrived;
    bool changed = false;
    while (!input.empty()) {
        switch (input.below(4)) {
            case 0: {
                std::string text = input.text(200);
                const iovec part{text.data(), text.size()};
                sent += text.substr(0, from.write({&part, 1}, wire.writer()));
                break;
            }
            case 1: {  // Somebody inserts bytes.
                const std::string_view bytes = input.bytes(1 + input.below(40));
                for (const char c : bytes) {
                    wire.bytes.push_back(static_cast<std::byte>(c));
                }
                changed = changed || !bytes.empty();
                break;
            }
            case 2:  // Somebody changes a byte.
                if (!wire.bytes.empty()) {
                    wire.bytes[input.below(wire.bytes.size())] ^= std::byte{1};
                    changed = true;
                }
                break;
            default: {
                std::array<std::byte, 64> into{};
                const std::size_t count = to.read(into, wire.reader(1 + input.below(100)));
                arrived.append(reinterpret_cast<const char*>(into.data()), count);
                fuzz::require(sent.starts_with(arrived), "only what was sent arrives");
                fuzz::require(changed || !to.is_spoilt(), "an honest connection stays in order");
            }
        }
    }
}

std::vector<std::string> seeds() {
    const auto text = [](char choice, const auto& value) {
        const auto bytes = bytes_of(value);
        return choice + std::string(1, '\xff') +
               std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    const Introduction introduction = introduce(Hello{}, {});
    return {text('\0', introduction),
            text('\1', make_welcome(HandshakeAnswer::welcome, introduction, {})),
            std::string("\2\0\0\5hello\3\xff\0\4world\3\xff\3\xff", 18),
            std::string("\2\xff\0\5hello\2\3\3\xff", 12)};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    switch (input.below(3)) {
        case 0:
            stranger_calls(input);
            break;
        case 1:
            stranger_answers(input);
            break;
        default:
            records(input);
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_hello
