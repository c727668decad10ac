// SPDX-License-Identifier: Apache-2.0
//
// The first bytes of a connection to the daemon's port. Once the protocol is told, more bytes do
// not change it, and five always tell it.
#include "rendezvous/server/first_bytes.h"

#include "rendezvous/store/store_wire.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_first_bytes {
namespace {

std::vector<std::string> seeds() {
    std::string greeting;
    store::encode({store::Opcode::validate, {}, store::kMagic}, greeting);
    std::string set;
    store::encode({store::Opcode::set, {"/key", "value"}}, set, store::Dialect::v2_1);
    return {greeting, set, std::string("\0\0\0\x10{\"type\"", 10), "GET / HTTP/1.1"};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    using rendezvous::PortProtocol;
    const std::string_view all(reinterpret_cast<const char*>(bytes),
                               std::min<std::size_t>(count, 64));
    PortProtocol told = PortProtocol::undecided;
    for (std::size_t size = 0; size <= all.size(); ++size) {
        const PortProtocol now = rendezvous::tell_protocol(all.substr(0, size));
        fuzz::require(told == PortProtocol::undecided || now == told, "a told protocol stays");
        told = now;
    }
    fuzz::require(all.size() < 5 || told != PortProtocol::undecided, "five bytes tell a protocol");
    fuzz::require(told != PortProtocol::http || (all[0] >= 'A' && all[0] <= 'Z'),
                  "a request of HTTP begins with a method");
    if (told == PortProtocol::store) {
        // The store's parser takes these bytes or refuses them.
        store::RequestParser parser({}, store::Dialect::v2_1);
        std::string_view rest = all;
        while (!rest.empty() && parser.next(rest)) {
        }
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_first_bytes
