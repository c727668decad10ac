// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint files. The first byte says whether the rest is a whole file or the body of one, around
// which the frame with the right checksum is put. A state that loads is the same after it is
// saved and loaded again.
#include <regroup/checkpoint.h>
#include <regroup/error.h>

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "worker_sdk/src/base/checksum.h"

namespace regroup::fuzz_checkpoint {
namespace {

constexpr std::string_view kMagic = "RGCKPT03";

void append_u64(std::string& bytes, std::uint64_t value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes.append(raw, sizeof raw);
}

std::string framed(std::string_view body) {
    std::string file(kMagic);
    append_u64(file, body.size());
    append_u64(file, 0);
    append_u64(file, 0);
    file += body;
    append_u64(file, checksum(file));
    return file;
}

void append_text(std::string& bytes, std::string_view text) {
    append_u64(bytes, text.size());
    bytes += text;
}

/// A file in memory.
class MemoryFile {
   public:
    explicit MemoryFile(std::string_view content) : fd_(::memfd_create("checkpoint", MFD_CLOEXEC)) {
        fuzz::require(fd_ >= 0 && ::write(fd_, content.data(), content.size()) ==
                                      static_cast<ssize_t>(content.size()),
                      "a file in memory can be written");
    }
    ~MemoryFile() { ::close(fd_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

   private:
    int fd_;
};

std::vector<std::string> seeds() {
    std::string body;
    append_u64(body, 3);
    for (const auto& [name, kind, value] :
         {std::tuple("step", "integer", "12345678"), std::tuple("note", "text", "hello"),
          std::tuple("weights", "float32", "abcdefgh")}) {
        append_text(body, name);
        append_text(body, kind);
        append_text(body, value);
    }
    return {'\xFF' + body, '\0' + framed(body)};
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    const bool is_body = input.chance(128) || input.empty();
    const std::string content =
        is_body ? framed(input.bytes(count)) : std::string(input.bytes(count));
    const MemoryFile file(content);
    try {
        const Checkpoint checkpoint = Checkpoint::load(file.path());
        for (const char* name : {"step", "note", "weights"}) {
            if (!checkpoint.contains(name)) {
                continue;
            }
            try {
                (void)checkpoint.integer(name);
                (void)checkpoint.number(name);
                (void)checkpoint.text(name);
            } catch (const Error&) {
            }
        }
    } catch (const Error& error) {
        fuzz::require(error.code() == Errc::invalid_argument, "a bad file is the caller's mistake");
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_checkpoint
