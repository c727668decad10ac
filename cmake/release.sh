#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the release of the version that CMakeLists.txt names, from the commit HEAD:
#
#     release.sh [ARCHITECTURE...]
#
# build/release-VERSION gets what a site installs, with its checksums and its bill of materials. In the end the commit
# gets the annotated tag vVERSION. With TAG=no in the environment it gets none, and the section of the changelog
# may still be without a date.
set -eu
umask 022
cd "$(dirname "$0")/.."

fail() {
    echo "release: $1" >&2
    exit 1
}

version=$(sed -n 's/^project(regroup VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ -n "$version" ] || fail "CMakeLists.txt names no version"
tag=v$version
commit=$(git rev-parse --verify 'HEAD^{commit}')
out=$PWD/build/release-$version
work=$PWD/build/release-work
tools=$PWD/build/release-tools

changes=$(git status --porcelain)
[ -z "$changes" ] || fail "commit these changes first, or remove them:
$changes"

# The changelog: a section `## VERSION (DATE)` with entries, and none that was left under `## Unreleased`.
section() {
    awk -v heading="## $1" 'index($0, "## ") == 1 { inside = index($0 " ", heading " ") == 1; next } inside' CHANGELOG.md
}
date=$(sed -n "s/^## $(echo "$version" | sed 's/\./\\./g') (\(.*\))\$/\1/p" CHANGELOG.md)
case $date in
    [0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]) ;;
    unreleased)
        [ "${TAG-}" = no ] || fail "give the section of CHANGELOG.md its date: ## $version ($(date -u +%F))"
        ;;
    *) fail "CHANGELOG.md has no section '## $version ($(date -u +%F))'" ;;
esac
section "$version" | grep -q '[a-z]' || fail "the section '## $version' of CHANGELOG.md is empty"
if section Unreleased | grep -q '[a-z]'; then
    fail "CHANGELOG.md has entries under '## Unreleased': move them to '## $version', or raise the version"
fi

# The tag may be here from an earlier call, for the same commit.
if [ "${TAG-}" != no ]; then
    tagged=$(git rev-parse --verify --quiet "refs/tags/$tag^{commit}" || true)
    [ -z "$tagged" ] || [ "$tagged" = "$commit" ] ||
        fail "the tag $tag is at the commit $tagged already: raise the version in CMakeLists.txt"
    [ -z "$tagged" ] || [ "$(git cat-file -t "refs/tags/$tag")" = tag ] ||
        fail "the tag $tag is no annotated one: delete it first (git tag -d $tag)"
    for remote in $(git remote); do
        there=$(git ls-remote --tags "$remote" "refs/tags/$tag" "refs/tags/$tag^{}" 2>/dev/null | tail -n 1 | cut -f 1) ||
            there=
        [ -z "$there" ] || [ "$there" = "$commit" ] || [ "$there" = "$(git rev-parse --quiet --verify "refs/tags/$tag")" ] ||
            fail "$remote has the tag $tag at another commit, $there: raise the version in CMakeLists.txt"
    done
fi

sh cmake/artefacts.sh "$work" "$@"
rm -rf "$out"
mkdir -p "$out"
cp "$work"/out/* "$out/"

wanted="cyclonedx-python-lib[json-validation]==11.12.0"
if [ "$(cat "$tools/installed" 2>/dev/null)" != "$wanted" ]; then
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" install -q "$wanted"
    echo "$wanted" >"$tools/installed"
fi
bill=$out/regroup-$version.cdx.json
set -- "$bill" --tree "$work/tree" --sources "$out"/*.tar.gz
while read -r file build; do
    set -- "$@" --from "$build" "$out/$file"
done <"$work/origins"
SOURCE_DATE_EPOCH=$(git show -s --format=%ct "$commit") python3 cmake/sbom.py "$@"
"$tools/bin/python" cmake/sbom_schema.py "$bill"

sed "s/@VERSION@/$version/g" cmake/Containerfile.in >"$out/Containerfile"
{
    echo "# regroup $version"
    echo
    echo "The pages that this text names are in regroup-$version-source.tar.gz. \`sha256sum -c SHA256SUMS\` checks the files."
    section "$version"
} >"$out/RELEASE_NOTES.md"
(cd "$out" && LC_ALL=C && export LC_ALL && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)

if [ "${TAG-}" = no ]; then
    echo "release: $out has regroup $version; no tag is made"
elif [ -n "$tagged" ]; then
    echo "release: $out has regroup $version; the tag $tag is here already"
else
    { echo "regroup $version"; section "$version"; } | git tag -a "$tag" --cleanup=whitespace -F - "$commit"
    echo "release: $out has regroup $version, and the commit the tag $tag: git push REMOTE $tag"
fi
