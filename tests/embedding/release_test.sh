#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks what `make release` refuses and leaves behind, in a small repository whose build is a stand-in:
#
#     release_test.sh TREE
set -eu

if ! command -v git >/dev/null; then
    echo "skipped: it needs git"
    exit 77
fi
tree=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_GLOBAL="$work/gitconfig" GIT_CONFIG_NOSYSTEM=1
unset TAG
git config --global user.name "A Maintainer"
git config --global user.email maintainer@example.com
git config --global init.defaultBranch main
today=2026-11-30

fail() {
    echo "release_test: $1" >&2
    cat "$work/log" >&2
    exit 1
}

# The build of a release takes minutes, and the schema comes from PyPI: here both are a line.
repository=$work/repository
mkdir -p "$repository/cmake" "$repository/build/release-tools/bin"
cd "$repository"
git init -q
cp "$tree/cmake/release.sh" "$tree/cmake/Containerfile.in" "$tree/cmake/compare.py" cmake/
cat >cmake/artefacts.sh <<'END'
set -eu
mkdir -p "$1/out" "$1/tree"
git archive HEAD | gzip -9n >"$1/out/regroup-1.2.3-source.tar.gz"
echo program >"$1/out/regroup_1.2.3_amd64.deb"
echo "regroup_1.2.3_amd64.deb $1/tree/build/package" >"$1/origins"
END
echo 'import sys; open(sys.argv[1], "w").write(" ".join(sys.argv[2:]))' >cmake/sbom.py
echo 'exit 0' >cmake/sbom_schema.py
ln -s /bin/true build/release-tools/bin/python
sed -n 's/^wanted="\(.*\)"$/\1/p' cmake/release.sh >build/release-tools/installed
echo build/ >.gitignore
echo 'project(regroup VERSION 1.2.3 LANGUAGES CXX)' >CMakeLists.txt
cat >CHANGELOG.md <<'END'
# Changelog

## 1.2.3 (unreleased)

- It flies.

## 1.2.30 (2026-01-01)

- It crawls.
END
commit() {
    git add -A
    git commit -q -m "$1"
}
commit "Fly"

refused() {
    because=$1
    shift
    if "$@" sh cmake/release.sh >"$work/log" 2>&1; then
        fail "'$because' is not refused"
    fi
    grep -qF -- "$because" "$work/log" || fail "it does not say '$because'"
    [ ! -e build/release-1.2.3 ] || fail "a refused release has files"
    [ -z "$(git tag -l v1.2.3)" ] || [ "${kept_tag-}" = yes ] || fail "a refused release has a tag"
}
accepted() {
    "$@" sh cmake/release.sh >"$work/log" 2>&1 || fail "refused"
}

refused "give the section of CHANGELOG.md its date" env
echo change >>CMakeLists.txt
refused "commit these changes first" env TAG=no
git checkout -q CMakeLists.txt

# A dry run makes everything but the tag.
accepted env TAG=no
[ -z "$(git tag -l)" ] || fail "a dry run made a tag"
(cd build/release-1.2.3 && sha256sum -c --quiet SHA256SUMS) || fail "the checksums are wrong"
for file in regroup_1.2.3_amd64.deb regroup-1.2.3-source.tar.gz regroup-1.2.3.cdx.json Containerfile RELEASE_NOTES.md; do
    grep -q "  $file\$" build/release-1.2.3/SHA256SUMS || fail "$file is not there, or has no checksum"
done
grep -q 'It flies' build/release-1.2.3/RELEASE_NOTES.md || fail "no notes"
! grep -q 'crawls' build/release-1.2.3/RELEASE_NOTES.md || fail "the notes are of two releases"
grep -q 'regroup_1.2.3_' build/release-1.2.3/Containerfile || fail "the image gets no package"
! grep -q '@' build/release-1.2.3/Containerfile || fail "a name is left open in the Containerfile"
grep -q -- "--from .*/build/package .*/regroup_1.2.3_amd64.deb" build/release-1.2.3/regroup-1.2.3.cdx.json ||
    fail "the bill does not know the build of the package"
rm -rf build/release-1.2.3

sed -i "s/(unreleased)/($today)/" CHANGELOG.md
sed -i 's/^- It flies.$//' CHANGELOG.md
commit "Say nothing"
refused "is empty" env
git revert -n HEAD
sed -i "s/(unreleased)/($today)/; s/^# Changelog\$/&\n\n## Unreleased\n\n- It swims./" CHANGELOG.md
commit "Swim"
refused "has entries under '## Unreleased'" env
sed -i '/^- It swims.$/d' CHANGELOG.md
commit "Date the release"

# Elsewhere: in another repository, at another commit, or without an annotation.
git clone -q --bare . "$work/remote"
git remote add origin "$work/remote"
git -C "$work/remote" tag -a v1.2.3 -m other HEAD~1
refused "origin has the tag v1.2.3 at another commit" env
git -C "$work/remote" tag -d v1.2.3 >/dev/null
kept_tag=yes
git tag v1.2.3
refused "is no annotated one" env
git tag -d v1.2.3 >/dev/null
git tag -a v1.2.3 -m other HEAD~1
refused "the tag v1.2.3 is at the commit" env
git tag -d v1.2.3 >/dev/null

accepted env
[ "$(git cat-file -t v1.2.3)" = tag ] || fail "no annotated tag"
[ "$(git rev-parse 'v1.2.3^{commit}')" = "$(git rev-parse HEAD)" ] || fail "the tag is at another commit"
git tag -l -n9 v1.2.3 | grep -q 'It flies' || fail "the tag does not say what is new"
git push -q origin v1.2.3
accepted env
grep -q 'is here already' "$work/log" || fail "a second call makes the tag again"
sed -i 's/1\.2\.3/1.2.4/' CMakeLists.txt
commit "Begin the next one"
if sh cmake/release.sh >"$work/log" 2>&1 || ! grep -qF "no section '## 1.2.4" "$work/log"; then
    fail "a version without a section is released"
fi

# Two builds that differ are told apart, down to the member.
mkdir -p "$work/one" "$work/other"
for folder in one other; do
    (cd "$work/$folder" && echo same >same && echo "$folder" >program && gzip -9nc program >log.gz &&
        tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -czf files.tar.gz same program log.gz &&
        rm program log.gz)
done
if python3 cmake/compare.py "$work/one" "$work/other" >"$work/log" 2>&1; then
    fail "two builds that differ are taken for equal"
fi
for member in program log.gz; do
    grep -q "files.tar.gz: $member: " "$work/log" || fail "it does not name the member $member, which differs"
done
! grep -q 'tar.gz: same' "$work/log" || fail "it names a member that is equal"
rm "$work/one/files.tar.gz" "$work/other/files.tar.gz"
python3 cmake/compare.py "$work/one" "$work/other" >"$work/log" 2>&1 || fail "two equal builds are told apart"
echo "release_test: passed"
