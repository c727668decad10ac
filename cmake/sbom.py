# SPDX-License-Identifier: Apache-2.0
"""Writes the bill of materials of a release (CycloneDX 1.5, JSON): which libraries are in its files.

    sbom.py OUT --tree TREE [--sources FILE...] --from BUILD FILE... [--from BUILD FILE...]

TREE: the sources. BUILD: the folder in which ninja built the FILEs behind it. FILE: a Debian package, a wheel, a
program or library. Nothing here lists libraries. The link of a program is repeated with the linker's --trace, which
names each file that it took something from. The compiler's lists of headers name the rest, and dpkg the versions.
Licences come from the table in NOTICE: a library that it lacks is an error. Needs Debian, where
each file belongs to a package. The same files give the same bytes at the same SOURCE_DATE_EPOCH.
"""
import argparse
import datetime
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import uuid
import zipfile
from urllib.parse import quote

SPEC = "1.5"


class Unknown(Exception):
    """Something is linked of which this program cannot say what it is."""


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unknown(f"{shlex.join(command)[:300]} failed: {done.stderr.strip()[-600:]}")
    return done.stdout


# ---- NOTICE.

def family(source):
    """The source package, of PACKAGE or PACKAGE@VERSION, without the number in its name: another Debian has another
    gcc."""
    return re.sub(r"[-\d.]*(@.*)?$", "", source)


def notice_table(text):
    """Family: (name, SPDX expression), of the rows `  NAME  PACKAGE  LICENCE`."""
    rows = {}
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if line.startswith("  ") and len(cells) == 3 and cells[1] != "Debian":
            rows[family(cells[1])] = (cells[0], cells[2])
    return rows


# ---- Debian.

class Packages:
    """Which source package of Debian a file belongs to."""

    def __init__(self):
        self.triplet = f"{os.uname().machine}-linux-gnu"
        self.found = {}

    def root_of(self, path):
        """Libraries of another architecture are unpacked beside the build, with a database of dpkg of their own."""
        found = re.match(r"(.*/build/tools/[^/]+)/", path)
        return found[1] if found and os.path.isdir(found[1] + "/var/lib/dpkg") else ""

    def candidates(self, path, root):
        """Names under which dpkg may know the file: /lib is a link to /usr/lib on some systems."""
        names = [path, os.path.realpath(path)]
        for name in list(names):
            inside = name[len(root):]
            names.append(root + (inside[4:] if inside.startswith("/usr/") else "/usr" + inside))
        return list(dict.fromkeys(names))

    def source_of(self, owner, database):
        """The source package and the version of a binary package. A database beside the build may lack the first;
        the package of the same name for this machine has it then."""
        source, version = run("dpkg-query", *database, "-W", "-f", "${source:Package} ${source:Version}",
                              owner).split(" ")
        if database and source == owner.partition(":")[0]:
            native = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package}", source], capture_output=True,
                                    text=True, check=False)
            source = native.stdout or source
        return source, version

    def find_in(self, root, paths):
        names = {path: self.candidates(path, root) for path in paths}
        flat = sorted({name for each in names.values() for name in each})
        database = [f"--admindir={root}/var/lib/dpkg"] if root else []
        owners = {}
        for i in range(0, len(flat), 500):
            done = subprocess.run(["dpkg-query", *database, "-S", *flat[i:i + 500]], capture_output=True, text=True,
                                  check=False)
            for line in done.stdout.splitlines():
                owner, _, name = line.partition(": ")
                if not owner.startswith("diversion by"):
                    owners.setdefault(name, owner.split(", ")[0])
        sources = {owner: self.source_of(owner, database) for owner in set(owners.values())}
        for path in paths:
            owner = next((owners[name] for name in names[path] if name in owners), None)
            self.found[path] = sources[owner] if owner else None

    def find(self, paths):
        """(source package, version) of each path; those of no package are left out."""
        by_root = {}
        for path in paths:
            if path not in self.found:
                by_root.setdefault(self.root_of(path), []).append(path)
        for root, those in by_root.items():
            self.find_in(root, those)
            # Files for all architectures, as headers are, may be only in the database of this machine.
            lost = {path: path[len(root):] for path in those if root and not self.found[path]}
            here = self.find(sorted(set(lost.values())))
            self.found.update((path, here.get(name)) for path, name in lost.items())
        return {path: self.found[path] for path in paths if self.found[path]}

    def of_shared(self, soname, near):
        """Of the shared library with this name, in one of the folders `near` or the system's."""
        for folder in [*near, f"/lib/{self.triplet}", f"/usr/lib/{self.triplet}"]:
            found = self.find([os.path.join(folder, soname)])
            if found:
                return next(iter(found.values()))
        raise Unknown(f"{soname}, which is loaded at run time, is of no Debian package")


# ---- The build.

class Build:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.outputs = {}
        for line in self.ninja("targets", "all").splitlines():
            name, _, rule = line.rpartition(": ")
            if "LINKER" in rule:
                self.outputs.setdefault(os.path.basename(name), name)
        self.headers = {}
        output = None
        for line in self.ninja("deps").splitlines():
            if line.startswith("    "):
                self.headers[output].append(line.strip())
            elif line:
                output = line.partition(": ")[0]
                self.headers[output] = []

    def ninja(self, tool, *words):
        return run("ninja", "-C", self.folder, "-t", tool, *words).replace(
            f"ninja: Entering directory `{self.folder}'\n", "")

    def headers_of(self, output):
        """Headers and sources of every object that the output is made of, its precompiled headers included."""
        found = set()
        for name in self.ninja("inputs", output).splitlines():
            found.update(self.headers.get(name, ()))
        return {os.path.normpath(os.path.join(self.folder, name)) for name in found}

    def link_of(self, output):
        """The command that links it; None for an archive, which links nothing."""
        commands = self.ninja("commands", "-s", output).strip().splitlines()
        if output.endswith(".a") or not commands:
            return None
        words = [part for part in commands[-1].split(" && ") if f"-o {output} " in part]
        if len(words) != 1:
            raise Unknown(f"the link of {output} is no command that can be repeated: {commands[-1][:200]}")
        return shlex.split(words[0])

    def linked_files(self, output):
        """The files that its linker has taken something from, as the linker says."""
        command = self.link_of(output)
        if command is None:
            return set()
        with tempfile.TemporaryDirectory() as folder:
            command[command.index("-o") + 1] = os.path.join(folder, "out")
            text = run(*command, "-Wl,--trace", cwd=self.folder)
        files = set()
        for line in text.splitlines():
            path = re.sub(r"\(.*\)$", "", re.sub(r"^\((.*)\).*$", r"\1", line.strip()))
            files.add(os.path.normpath(os.path.join(self.folder, path)))
        return {path for path in files if os.path.exists(path)}


# ---- The content of the files.

def is_binary(path):
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as stream:
        head = stream.read(8)
    return head.startswith(b"\x7fELF") or head == b"!<arch>\n"


def binaries_of(path, folder):
    """(name, path) of the programs and libraries in a file of the release, unpacked into `folder`."""
    if path.endswith(".deb"):
        run("dpkg-deb", "-x", path, folder)
    elif path.endswith(".whl"):
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
    else:
        return [(os.path.basename(path), path)]
    found = []
    for root, _, names in os.walk(folder):
        found += [os.path.join(root, name) for name in names]
    return sorted((os.path.relpath(each, folder), each) for each in found if is_binary(each))


def python_requirements(folder):
    """Packages that the wheel makes pip install."""
    for root, _, names in os.walk(folder):
        if root.endswith(".dist-info") and "METADATA" in names:
            with open(os.path.join(root, "METADATA"), encoding="utf-8") as stream:
                head = stream.read().split("\n\n")[0]
            return re.findall(r"^Requires-Dist: (.*)$", head, re.M)
    return []


def needed(path):
    """The shared libraries that a program or library loads."""
    done = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=False)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)


class Materials:
    """Source packages, by the way in which a binary has them."""

    def __init__(self, builds, packages, notice, tree):
        self.builds = builds  # By their folders.
        self.packages = packages
        self.notice = notice
        self.tree = os.path.abspath(tree) + "/"
        self.found = {}  # PACKAGE@VERSION: ways, files. Two architectures may have two versions.

    def add(self, source, version, way, name):
        if family(source) not in self.notice:
            raise Unknown(f"{name} is of the package {source} ({way}), which NOTICE does not name: add its row, and "
                          "its text to python/THIRD_PARTY_LICENSES.txt if its licence asks for that")
        ref = f"{source}@{version}"
        each = self.found.setdefault(ref, {"ways": set(), "files": set()})
        each["ways"].add(way)
        if way != "headers":
            each["files"].add(os.path.basename(name))
        return ref

    def add_files(self, paths, way, headers):
        outside = {path for path in paths if not self.is_ours(path)}
        owners = self.packages.find(sorted(outside))
        found = set()
        for path in sorted(outside):
            if path in owners:
                found.add(self.add(*owners[path], way, path))
            elif re.search(r"/(lib)?cuda", path):  # NVIDIA's own toolkit.
                found.add(self.add("cuda", cuda_version(headers), way, path))
            else:
                raise Unknown(f"{path} ({way}) is of no Debian package")
        return found

    def is_ours(self, path):
        """build/tools has libraries of Debian that are not installed here (cmake/setup.sh)."""
        if path.startswith(self.tree + "build/tools/"):
            return False
        return path.startswith((self.tree, *(build.folder + "/" for build in self.builds.values())))

    def of_binary(self, name, path, build):
        output = build.outputs.get(os.path.basename(name))
        if output is None:
            raise Unknown(f"{build.folder} has not linked {name}")
        headers = build.headers_of(output)
        if not headers:
            raise Unknown(f"{build.folder} does not know the headers of {name}: build it there")
        linked = build.linked_files(output)
        static = {each for each in linked if not re.search(r"\.so(\.\d+)*$", each)}
        found = self.add_files(static, "static", headers)
        found |= self.add_files(headers, "headers", headers)
        near = sorted({os.path.dirname(each) for each in linked - static})
        for soname in needed(path):
            source, version = self.packages.of_shared(soname, near)
            found.add(self.add(source, version, "shared", soname))
        return found


def cuda_version(headers):
    for path in headers:
        if path.endswith("/cuda_runtime_api.h"):
            with open(path, encoding="utf-8") as stream:
                number = re.search(r"#define CUDART_VERSION\s+(\d+)", stream.read())
            if number:
                return f"{int(number[1]) // 1000}.{int(number[1]) % 1000 // 10}"
    return "unknown"


# ---- The document.

def licence(expression):
    return [{"license": {"id": expression}}] if re.fullmatch(r"[\w.+-]+", expression) and not expression.startswith(
        "LicenseRef-") else [{"expression": expression}]


def sha256(path):
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def version_of(tree):
    with open(os.path.join(tree, "CMakeLists.txt"), encoding="utf-8") as stream:
        return re.search(r"project\(regroup VERSION ([\d.]+)", stream.read())[1]


def tools(builds):
    """The compilers and CMake, as each build names them."""
    found = {}
    for build in builds.values():
        with open(os.path.join(build.folder, "CMakeCache.txt"), encoding="utf-8") as stream:
            cache = dict(re.findall(r"^(\w+):\w+=(.*)$", stream.read(), re.M))
        compiler = cache.get("CMAKE_CXX_COMPILER", "c++")
        for command in (compiler, cache.get("CMAKE_COMMAND", "cmake"), cache.get("REGROUP_LLD", "")):
            if command:
                found[os.path.basename(command)] = run(command, "--version").splitlines()[0]
    return [{"type": "application", "name": name, "version": version} for name, version in sorted(found.items())]


def document(args, builds, materials):
    version = version_of(args.tree)
    components = []
    depends = {}
    requirements = set()
    files = {path: None for path in args.sources}
    files.update((path, builds[group[0]]) for group in args.origin for path in group[1:])
    for path, build in sorted(files.items(), key=lambda item: os.path.basename(item[0])):
        name = os.path.basename(path)
        parts = []
        depends[name] = set()
        with tempfile.TemporaryDirectory() as folder:
            for inside, binary in binaries_of(path, folder) if build else ():
                ref = f"{name}#{inside}"
                depends[ref] = materials.of_binary(inside, binary, build)
                depends[name].add(ref)
                parts.append({"type": "file", "bom-ref": ref, "name": inside,
                              "hashes": [{"alg": "SHA-256", "content": sha256(binary)}]})
            wanted = {re.match(r"[\w.-]+", each)[0].lower() for each in python_requirements(folder)}
        requirements |= wanted
        depends[name] |= {f"pypi/{each}" for each in wanted}
        component = {"type": "file", "bom-ref": name, "name": name, "version": version,
                     "hashes": [{"alg": "SHA-256", "content": sha256(path)}]}
        components.append({**component, "components": parts} if parts else component)
    for ref, each in sorted(materials.found.items()):
        title, expression = materials.notice[family(ref)]
        source, _, number = ref.partition("@")
        component = {"type": "library", "bom-ref": ref, "name": title, "version": number,
                     "licenses": licence(expression),
                     "properties": [{"name": "regroup:linkage", "value": ", ".join(sorted(each["ways"]))}]}
        if each["files"]:
            component["properties"].append({"name": "regroup:files", "value": ", ".join(sorted(each["files"]))})
        if source != "cuda":
            component["purl"] = f"pkg:deb/debian/{source}@{quote(number, safe=':~')}?arch=source"
        components.append(component)
    for each in sorted(requirements):
        components.append({"type": "library", "bom-ref": f"pypi/{each}", "name": each, "purl": f"pkg:pypi/{each}",
                           "properties": [{"name": "regroup:linkage", "value": "python"}]})
    depends["release"] = {os.path.basename(path) for path in files}
    hashes = "".join(sorted(sha256(path) for path in files))
    date = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json", "bomFormat": "CycloneDX", "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, hashes)}", "version": 1,
        "metadata": {
            "timestamp": date.strftime("%Y-%m-%dT%H:%M:%SZ"), "tools": {"components": tools(builds)},
            "component": {"type": "application", "bom-ref": "release", "name": "regroup", "version": version,
                          "licenses": licence("Apache-2.0")}},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} if on else {"ref": ref}
                         for ref, on in sorted(depends.items())],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--tree", required=True)
    parser.add_argument("--sources", nargs="+", default=[])
    parser.add_argument("--from", dest="origin", metavar=("BUILD", "FILE"), nargs="+", action="append", required=True)
    args = parser.parse_args()
    try:
        with open(os.path.join(args.tree, "NOTICE"), encoding="utf-8") as stream:
            notice = notice_table(stream.read())
        builds = {group[0]: Build(group[0]) for group in args.origin}
        text = json.dumps(document(args, builds, Materials(builds, Packages(), notice, args.tree)), indent=2)
    except Unknown as failure:
        sys.exit(f"sbom: {failure}")
    with open(args.out, "w", encoding="utf-8") as stream:
        stream.write(text + "\n")


if __name__ == "__main__":
    main()
