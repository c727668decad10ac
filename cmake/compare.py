# SPDX-License-Identifier: Apache-2.0
"""Compares two folders of files of a release byte by byte: compare.py ONE OTHER. Where a file differs, it names the
members of the archive that differ, and for each how: its content, its time, its mode, its place."""
import hashlib
import io
import os
import sys
import tarfile
import zipfile


def digest(content):
    return hashlib.sha256(content).hexdigest()[:12]


def ar_members(content):
    """Name, content and the rest of the header, of each member of a Debian package or a static library."""
    at = 8
    while at + 60 <= len(content):
        head = content[at:at + 60]
        size = int(head[48:58])
        yield head[:16].decode().rstrip(" /"), content[at + 60:at + 60 + size], f"{head[16:48].decode().split()}"
        at += 60 + size + size % 2


def members(name, content):
    """The members of the archive; None if it is no archive."""
    if content.startswith(b"!<arch>\n"):
        return list(ar_members(content))
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [(each.filename, archive.read(each), f"time {each.date_time}, mode {each.external_attr >> 16:o}")
                    for each in archive.infolist()]
    if content.startswith((b"\x1f\x8b", b"\xfd7zXZ")) and ".tar." in name.rpartition(": ")[2]:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            return [(each.name, archive.extractfile(each).read() if each.isreg() else each.linkname.encode(),
                     f"time {each.mtime}, mode {each.mode:o}, owner {each.uid}/{each.gid} {each.uname}/{each.gname}")
                    for each in archive.getmembers()]
    return None


def differences(name, one, other):
    """A line for each part that differs; a line about the whole, if its parts are equal."""
    if one == other:
        return []
    parts, others = members(name, one), members(name, other)
    if parts is None or others is None:
        at = next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
        return [f"{name}: {len(one)} bytes {digest(one)} and {len(other)} bytes {digest(other)}; the first other byte "
                f"is {at}: {one[max(0, at - 20):at + 40]!r} and {other[max(0, at - 20):at + 40]!r}"]
    found = []
    names, other_names = [each[0] for each in parts], [each[0] for each in others]
    if names != other_names:
        found.append(f"{name}: other members, or in another order: only here {sorted(set(names) - set(other_names))}, "
                     f"only there {sorted(set(other_names) - set(names))}")
    there = {each[0]: each for each in others}
    for member, content, facts in parts:
        if member in there:
            if facts != there[member][2]:
                found.append(f"{name}: {member}: {facts} and {there[member][2]}")
            found += differences(f"{name}: {member}", content, there[member][1])
    return found or [f"{name}: its members are equal, but not how they are packed"]


def main():
    one, other = sys.argv[1:]
    names = sorted(set(os.listdir(one)) | set(os.listdir(other)))
    found = []
    for name in names:
        pair = []
        for folder in (one, other):
            try:
                with open(os.path.join(folder, name), "rb") as stream:
                    pair.append(stream.read())
            except FileNotFoundError:
                found.append(f"{name}: not in {folder}")
        if len(pair) == 2:
            lines = differences(name, *pair)
            print(f"{'differs' if lines else 'equal  '} {name}")
            found += lines
    if not names:
        found.append(f"nothing in {one} and {other}")
    for line in found:
        print(line, file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
