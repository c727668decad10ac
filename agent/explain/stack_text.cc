// SPDX-License-Identifier: Apache-2.0
#include "agent/explain/stack_text.h"

#include <algorithm>
#include <cstdint>

namespace regroup::agent {
namespace {

/// The function in "#0  0x00007f12 in pause () from libc.so.6" of gdb, or in
/// "#0  0x00007f12 pause - /lib/libc.so.6" of eu-stack.
std::string function_in(std::string_view line) {
    line.remove_prefix(std::min(line.find(' '), line.size()));
    const auto skip_spaces = [&line] {
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    };
    skip_spaces();
    if (line.starts_with("0x")) {
        line.remove_prefix(std::min(line.find(' '), line.size()));
        skip_spaces();
    }
    if (line.starts_with("in ")) {
        line.remove_prefix(3);
    }
    const std::size_t end = std::min(line.find(" - "), line.find(" ("));
    const std::string_view name = line.substr(0, std::min(end, line.size()));
    return std::string(name.starts_with('-') ? std::string_view() : name);
}

/// Whether a line begins the frames of a thread: "TID 12:", or "Thread 1 (Thread 0x7f (LWP 12))".
bool begins_thread(std::string_view line) {
    return line.starts_with("TID ") || line.starts_with("Thread ");
}

bool names_thread(std::string_view line, const std::string& id) {
    return line.starts_with("TID " + id + ":") || line.find("LWP " + id + ")") != line.npos;
}

/// Whether a line of py-spy begins the frames of a thread: Thread 12 (idle): "MainThread".
bool begins_python_thread(std::string_view line) {
    return line.starts_with("Thread ") && line.find("): \"") != line.npos;
}

}  // namespace

std::vector<std::string> top_frames(std::string_view text, long pid, std::size_t most) {
    const std::string id = std::to_string(pid);
    const std::string python_thread = "Thread " + id + " (";
    std::vector<std::string> frames;
    std::vector<std::string> python_frames;
    bool is_inside = false;
    bool is_inside_python = false;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (begins_python_thread(line)) {
            is_inside = false;
            is_inside_python = line.starts_with(python_thread);
        } else if (is_inside_python && line.starts_with("    ")) {
            if (python_frames.size() < most) {
                python_frames.emplace_back(line.substr(4));
            }
        } else if (begins_thread(line)) {
            is_inside = names_thread(line, id);
        } else if (is_inside && line.starts_with('#') && frames.size() < most) {
            if (std::string name = function_in(line); !name.empty()) {
                frames.push_back(std::move(name));
            }
        }
    }
    return python_frames.empty() ? frames : python_frames;
}

}  // namespace regroup::agent
