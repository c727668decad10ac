// SPDX-License-Identifier: Apache-2.0
#include "agent/output/log_reader.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/files/own_file.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/protocol/codec.h"

namespace regroup::agent {

namespace {

using rendezvous::LogPart;
using rendezvous::LogWish;

/// In so many of the last bytes the last lines are looked for.
constexpr std::size_t kTailBytes = std::size_t{64} << 10;

std::string read_at(int fd, std::uint64_t offset, std::size_t bytes_max) {
    std::string bytes(bytes_max, '\0');
    const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return bytes;
}

/// Where the last `lines` lines begin.
std::uint64_t tail_of(int fd, std::uint64_t size, std::uint32_t lines) {
    const std::uint64_t begin = size - std::min<std::uint64_t>(size, kTailBytes);
    const std::string bytes = read_at(fd, begin, static_cast<std::size_t>(size - begin));
    std::size_t at = bytes.size();
    if (lines > 0 && at > 0 && bytes[at - 1] == '\n') {
        --at;  // It ends the last line.
    }
    for (std::uint32_t seen = 0; seen < lines; ++seen) {
        const std::size_t before = at == 0 ? bytes.npos : bytes.rfind('\n', at - 1);
        if (before == bytes.npos) {
            return begin;
        }
        at = before;
    }
    return begin + (lines > 0 ? std::min(at + 1, bytes.size()) : bytes.size());
}

/// Without the beginning of a UTF-8 character, of which the rest is in the next part.
void cut_half_character(std::string& bytes) {
    std::size_t lead = bytes.size();
    while (lead > 0 && bytes.size() - lead < 3 &&
           (static_cast<unsigned char>(bytes[lead - 1]) & 0xC0U) == 0x80U) {
        --lead;
    }
    const auto first = static_cast<unsigned char>(lead > 0 ? bytes[lead - 1] : '\0');
    const std::size_t whole = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 0;
    if (lead > 1 && bytes.size() - (lead - 1) < whole) {
        bytes.resize(lead - 1);
    }
}

}  // namespace

LogPart read_log(const rendezvous::ReadLog& asked, const std::string& node,
                 const std::string& file) {
    const LogWish& wish = asked.wish;
    LogPart part;
    part.ticket = asked.ticket;
    part.file = file;
    const bool goes_on = wish.node == node && wish.file == file;
    part.offset = goes_on ? wish.offset : 0;
    if (file.empty()) {
        return part;
    }
    const Result<UniqueFd> opened = files::open_own(file, O_RDONLY);
    if (!opened) {
        const bool is_missing = ::access(file.c_str(), F_OK) != 0 && errno == ENOENT;
        part.trouble = is_missing ? "" : "cannot read '" + file + "': " + opened.error().detail;
        return part;
    }
    const int fd = opened->get();
    struct stat facts{};
    if (::fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        part.trouble = "'" + file + "' is no file";
        return part;
    }
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    if (!goes_on && wish.file.empty()) {
        part.offset = tail_of(fd, size, wish.lines);
    } else if (part.offset > size) {
        part.offset = 0;  // The file was full and has begun anew.
    }
    part.text = read_at(fd, part.offset, protocol::kLogBytesMax);
    if (part.offset + part.text.size() < size) {
        cut_half_character(part.text);
    }
    part.offset += part.text.size();
    part.more = part.offset < size && !part.text.empty();
    return part;
}

}  // namespace regroup::agent
