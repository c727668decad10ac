// SPDX-License-Identifier: Apache-2.0
//
// Files and folders whose names others can guess, in folders that others may write to, such as
// /tmp. Another user may have put a link, a pipe or a file there first.
//
// Each component of a path is checked. A symbolic link is followed if it belongs to this user or
// to root. A link of another user is followed only in a folder of its own that nobody else can
// write to, and only if the user named that folder: not if its owner made it in a shared folder. A
// file or folder at the end that is there already in a sticky folder must belong to this user, to
// root or to the owner of the sticky folder. These are the kernel's rules of fs.protected_symlinks
// and fs.protected_regular, which an administrator may have switched off, and more: they hold for
// the members of a group, too.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::files {

/// Opens `path` with `flags` of open(2), and with `mode` if it creates the file. Only regular files
/// and character devices are opened; a FIFO never blocks. With O_TRUNC the file is emptied only
/// after it has been checked. Children do not inherit the descriptor. Errors: system; `detail` is
/// the reason alone, for a sentence that names the file.
[[nodiscard]] Result<UniqueFd> open_own(const std::string& path, int flags, mode_t mode = 0666);

/// Makes the folder `path`, and its parents, with `mode` for the folder itself. A folder that is
/// there already is kept. Errors: as of open_own().
[[nodiscard]] Result<void> make_own_folder(const std::string& path, mode_t mode = 0777);

/// Writes all of `text`. False, with errno, after an error.
bool write_all(int fd, std::string_view text);
/// Appends all of `text` to a file of `size` bytes, or nothing. Errors: system, naming the file by
/// `path`.
[[nodiscard]] Result<void> append_whole(int fd, const std::string& path, off_t size,
                                        std::string_view text);
/// Reads the rest of a file, at most `bytes_max` bytes. Errors: system.
[[nodiscard]] Result<std::string> read_all(int fd, std::size_t bytes_max);

}  // namespace regroup::files
