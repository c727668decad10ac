// SPDX-License-Identifier: Apache-2.0
//
// The lines that commands print for people. Their texts may come from other hosts, so they are
// printed by printable(). A process with jobs uses agent::OutputRelay or agent::LineWriter
// instead, which never wait for a reader.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup::launcher {

/// Prints "`who`: `line`" on stderr.
void complain(const std::string& who, const std::string& line);

/// Prints on stdout.
void print(const std::string& line);
void print(const std::vector<std::string>& lines);

/// Tells on stderr how far a command has come: on a terminal in place, otherwise by a line at most
/// every 10 s, the first one after 10 s.
class Progress {
   public:
    /// Lines begin with "`who`: ".
    explicit Progress(std::string who);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void show(const std::string& text);
    /// Erases the line in place. Call before other output.
    void clear();

   private:
    const std::string who_;
    bool in_place_ = false;
    bool shown_ = false;
    Instant due_;
};

}  // namespace regroup::launcher
