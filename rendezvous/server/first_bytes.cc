// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/first_bytes.h"

namespace regroup::rendezvous {

namespace {

bool is_capital(char byte) {
    return byte >= 'A' && byte <= 'Z';
}

PortProtocol tell_http(std::string_view bytes) {
    constexpr std::size_t kLettersMin = 3;  // "GET", "PUT".
    constexpr std::size_t kBytesMax = 5;
    std::size_t letters = 0;
    while (letters < bytes.size() && is_capital(bytes[letters])) {
        ++letters;
    }
    if (letters >= kBytesMax) {
        return PortProtocol::http;
    }
    if (letters == bytes.size()) {
        return PortProtocol::undecided;
    }
    return bytes[letters] == ' ' && letters >= kLettersMin ? PortProtocol::http
                                                           : PortProtocol::control;
}

}  // namespace

PortProtocol tell_protocol(std::string_view bytes) noexcept {
    constexpr char kOlderOpcodeMax = 0x0B;
    constexpr unsigned char kGreeting = 0xCE;
    if (bytes.empty()) {
        return PortProtocol::undecided;
    }
    if (is_capital(bytes[0])) {
        return tell_http(bytes);
    }
    if (bytes[0] != '\0') {
        return bytes[0] > '\0' && bytes[0] <= kOlderOpcodeMax ? PortProtocol::store
                                                              : PortProtocol::control;
    }
    if (bytes.size() < 2) {
        return PortProtocol::undecided;
    }
    if (static_cast<unsigned char>(bytes[1]) == kGreeting) {
        return PortProtocol::store;
    }
    if (bytes.size() < 4) {
        return PortProtocol::undecided;
    }
    // In a length with the highest byte first, byte 3 is rarely 0. In the length of a key it is
    // always 0, and so is the next byte.
    if (bytes[3] != '\0' || bytes.substr(0, 4) == std::string_view("\0\0\0\0", 4)) {
        return PortProtocol::control;
    }
    if (bytes.size() < 5) {
        return PortProtocol::undecided;
    }
    return bytes[4] == '\0' ? PortProtocol::store : PortProtocol::control;
}

}  // namespace regroup::rendezvous
