# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of this build (cmake/sbom.py) against what can be seen of its programs without it:

    sbom_test.py TREE BUILD REGROUP LIBRARY ARCHIVE

A library that is linked, and that it does not name, fails. So does one without its row in NOTICE or, where the licence
asks for it, without its text in the wheel.
"""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TREE, BUILD = (os.path.abspath(each) for each in sys.argv[1:3])
BINARIES = [os.path.abspath(each) for each in sys.argv[3:]]
# Licences that ask for a copy of their text beside a binary.
WITH_TEXT = re.compile(r"^(MIT|ISC|BSD-.*|X11.*|Apache-2\.0)$")
# Texts by which a program shows that it has a library in it.
MARKS = {b"OpenSSL 3.": "openssl", b"SQLite format 3": "sqlite3", b"ncurses 6.": "ncurses", b"HWLOC_XMLFILE": "hwloc",
         b"cudaGetDeviceCount": "cuda"}


def load_sbom():
    spec = importlib.util.spec_from_file_location("sbom", os.path.join(TREE, "cmake/sbom.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(out):
    return subprocess.run(
        [sys.executable, os.path.join(TREE, "cmake/sbom.py"), out, "--tree", TREE, "--from", BUILD, *BINARIES],
        capture_output=True, text=True, check=False, env=dict(os.environ, SOURCE_DATE_EPOCH="1700000000"))


def packages_of_link_line(output):
    """Source packages of the static libraries that the build file names for this output."""
    with open(os.path.join(BUILD, "build.ninja"), encoding="utf-8") as stream:
        rules = stream.read().split("\nbuild ")
    rule = next(each for each in rules if re.match(rf"\S*\b{re.escape(output)}: CXX_\w+_LINKER", each))
    found = {}
    for path in re.findall(r"(?<!\S)(/\S+\.a)(?!\S)", re.search(r"LINK_LIBRARIES = (.*)", rule)[1]):
        owner = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True, check=False).stdout
        if owner:
            found[path] = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package}", owner.split(": ")[0]],
                                         capture_output=True, text=True, check=True).stdout
        elif "cuda" in path:
            found[path] = "cuda"
    return found


def check_what_is_linked(sbom, bom):
    components = {each["bom-ref"]: each for each in bom["components"]}
    depends = {each["ref"]: each.get("dependsOn", []) for each in bom["dependencies"]}
    for binary in BINARIES:
        name = os.path.basename(binary)
        has = {each.partition("@")[0]: each for each in depends[f"{name}#{name}"]}
        if not name.endswith(".a"):
            for path, source in packages_of_link_line(name).items():
                assert source in has, f"{name} has {path} in it, and the bill does not name {source}: {has}"
                linkage = components[has[source]]["properties"][0]["value"]
                assert "static" in linkage, f"{source}: {linkage}"
        with open(binary, "rb") as stream:
            content = stream.read()
        for mark, source in MARKS.items():
            assert mark not in content or source in has, f"{name} has '{mark.decode()}' in it, but not {source}: {has}"
        assert {"glibc", "gcc"} <= {sbom.family(each) for each in has}, f"{name}: {has}"
    program = {sbom.family(each) for each in depends["regroup#regroup"]}
    for source in ("boost", "nlohmann-json", "openssl", "libsodium", "sqlite", "hwloc", "ncurses"):
        assert source in program, f"the program has no {source}: {program}"
    library = os.path.basename(BINARIES[1])
    assert "xxhash" in {sbom.family(each) for each in depends[f"{library}#{library}"]}
    for source, each in components.items():
        if each["type"] == "library":
            assert each["licenses"] and re.match(r"\d", each["version"].split(":")[-1]), each


def check_texts(sbom, bom, notice):
    with open(os.path.join(TREE, "python/THIRD_PARTY_LICENSES.txt"), encoding="utf-8") as stream:
        sections = re.findall(r"^=+\n(.*)\n=+$", stream.read(), re.M)
    wanted = {each["name"] for each in bom["components"]
              if each["type"] == "library" and WITH_TEXT.match(notice[sbom.family(each["bom-ref"])][1])}
    assert wanted <= set(sections), f"python/THIRD_PARTY_LICENSES.txt lacks {sorted(wanted - set(sections))}"


def check_refusals(sbom):
    """Without the row of a library the bill is refused, and names what to do."""
    with open(os.path.join(TREE, "NOTICE"), encoding="utf-8") as stream:
        notice = stream.read()
    build = sbom.Build(BUILD)
    packages = sbom.Packages()
    for source in ("libsodium", "boost1.81", "glibc"):
        assert sbom.family(source) in sbom.notice_table(notice)
        table = sbom.notice_table("".join(line for line in notice.splitlines(True) if f" {source} " not in line))
        materials = sbom.Materials({BUILD: build}, packages, table, TREE)
        try:
            for binary in BINARIES:
                materials.of_binary(os.path.basename(binary), binary, build)
        except sbom.Unknown as refusal:
            assert source in str(refusal) and "NOTICE does not name" in str(refusal), refusal
        else:
            raise AssertionError(f"a NOTICE without {source} is accepted")


def check_schema(path):
    """By the schema of CycloneDX, which `make release` brings along."""
    python = os.path.join(TREE, "build/release-tools/bin/python")
    if not os.access(python, os.X_OK):
        print("the schema is checked by `make release`, and here after it")
        return
    done = subprocess.run([python, os.path.join(TREE, "cmake/sbom_schema.py"), path], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(path, encoding="utf-8") as stream:
        broken = json.load(stream)
    broken["components"][0]["type"] = "potato"
    with open(path + ".broken", "w", encoding="utf-8") as stream:
        json.dump(broken, stream)
    done = subprocess.run([python, os.path.join(TREE, "cmake/sbom_schema.py"), path + ".broken"], capture_output=True,
                          text=True, check=False)
    assert done.returncode != 0, "a bill that breaks the schema is accepted"


def main():
    if not (shutil.which("dpkg") and shutil.which("ninja") and os.path.exists(os.path.join(BUILD, "build.ninja"))):
        print("skipped: it needs Debian's dpkg, and a build by ninja")
        sys.exit(77)
    sbom = load_sbom()
    with open(os.path.join(TREE, "NOTICE"), encoding="utf-8") as stream:
        notice = sbom.notice_table(stream.read())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bom.json")
        done = write(path)
        assert done.returncode == 0, done.stderr
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        bom = json.loads(text)
        check_what_is_linked(sbom, bom)
        check_texts(sbom, bom, notice)
        assert write(path).returncode == 0
        with open(path, encoding="utf-8") as stream:
            assert stream.read() == text, "two bills of the same files differ"
        check_refusals(sbom)
        check_schema(path)


if __name__ == "__main__":
    main()
