# SPDX-License-Identifier: Apache-2.0
"""Compares the interface for C, in the headers and in the library, with the table in the repository:

    abi_test.py BUILD [--update]
    abi_test.py --compiler CC --include FOLDER... --library LIBRARY [--update]

The table (abi/regroup.abi) has the symbols that libregroup.so exports, with their versions; the functions and types of
the headers; the size of each struct and the place of each member; the values of enumerators and macros. A line that
vanishes or changes breaks programs. A line that comes is an addition. Both are decisions: --update writes the table.
"""
import argparse
import difflib
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../.."))
TABLE = os.path.join(HERE, "abi/regroup.abi")
HEAD = """# SPDX-License-Identifier: Apache-2.0
# The interface for C of libregroup.so. Written by tests/embedding/abi_test.py, which compares it with each build.
"""


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def tidy(text):
    """One spelling for one declaration, whatever its line breaks."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s*([(),*])\s*", r"\1", text)
    return re.sub(r",", ", ", re.sub(r"\*(?=[\w(])", "* ", text)).replace("(* ", "(*")


class Headers:
    """The declarations of the interface, as the compiler's preprocessor leaves them."""

    def __init__(self, compiler, includes):
        names = sorted(os.path.basename(each)
                       for each in glob.glob(os.path.join(ROOT, "worker_sdk/include/regroup/c_api*.h")))
        self.source = "".join(f"#include <regroup/{name}>\n" for name in names)
        self.command = [compiler, "-std=c11", *(f"-I{each}" for each in includes)]
        whole = run(*self.command, "-E", "-P", "-xc", "-", text=self.source)
        macros = run(*self.command, "-E", "-dM", "-xc", "-", text=self.source)
        self.macros = {name: tidy(value) for name, value in re.findall(r"^#define (REGROUP_\w+) (.+)$", macros, re.M)
                       if not name.startswith("REGROUP_VERSION")}
        self.structs = {name: [tidy(each) for each in body.split(";") if each.strip()]
                        for name, body in re.findall(r"typedef struct (regroup_\w+) \{(.*?)\}", whole, re.S)}
        self.enumerators = [name for body in re.findall(r"\benum \{(.*?)\}", whole, re.S)
                            for name in re.findall(r"\b(REGROUP_\w+)", body)]
        rest = re.sub(r"\{[^{}]*\}", "", whole)
        statements = [tidy(each) for each in rest.split(";")]
        self.functions = {}
        self.types = {}
        for each in statements:
            function = re.match(r"(?!typedef)[\w* ]*?\b(regroup_\w+)\(", each)
            callback = re.match(r"typedef [\w* ]+\(\*(regroup_\w+)\)", each)
            name = re.match(r"typedef .*\b(regroup_\w+)$", each)
            if function:
                self.functions[function[1]] = each
            elif callback or name:
                self.types[(callback or name)[1]] = each
        # A function that is declared is found, or this test has read the headers wrongly.
        called = set(re.findall(r"\b(regroup_\w+) ?\(", rest)) - set(self.types)
        assert called == set(self.functions), called ^ set(self.functions)

    def member_name(self, declaration):
        found = re.search(r"\(\*(\w+)\)", declaration) or re.search(r"(\w+)(\[[^]]*\])?$", declaration)
        return found[1]

    def layout(self):
        """Sizes, places and values, as a program says them that the compiler has made."""
        lines = [self.source, "#include <stdio.h>", "int main(void) {"]
        for name, members in sorted(self.structs.items()):
            lines.append(f'printf("struct {name}: %zu bytes, aligned to %zu\\n", sizeof({name}), _Alignof({name}));')
            for declaration in members:
                member = self.member_name(declaration)
                lines.append(f'printf("  {name} %3zu: {declaration}, %zu bytes\\n", offsetof({name}, {member}), '
                             f'sizeof((({name}*)0)->{member}));')
        for name in self.enumerators:
            lines.append(f'printf("value {name} = %lld\\n", (long long){name});')
        lines += ["return 0;", "}"]
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "layout")
            subprocess.run([*self.command, "-xc", "-", "-o", program], input="\n".join(lines), text=True, check=True)
            return run(program).splitlines()


def symbols(library):
    """The exported symbols, with the version of each."""
    found = []
    for line in run("readelf", "--dyn-syms", "-W", library).splitlines():
        cells = line.split()
        if len(cells) == 8 and cells[4] in ("GLOBAL", "WEAK") and cells[6] != "UND":
            found.append(f"symbol {cells[7]} {cells[3]}")
    return sorted(found)


def table(compiler, includes, library):
    headers = Headers(compiler, includes)
    exported = symbols(library)
    names = {re.sub(r"@.*", "", each.split()[1]) for each in exported if each.endswith(" FUNC")}
    assert names == set(headers.functions), (
        f"exported and not declared, or declared and not exported: {sorted(names ^ set(headers.functions))}")
    lines = [*exported, *(f"function {each}" for _, each in sorted(headers.functions.items())),
             *(f"type {each}" for _, each in sorted(headers.types.items())), *headers.layout(),
             *(f"macro {name} = {value}" for name, value in sorted(headers.macros.items()))]
    return HEAD + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--include", nargs="+", default=[])
    parser.add_argument("--library")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.build:
        args.library = args.library or os.path.join(args.build, "libregroup.so")
        args.include = args.include or [os.path.join(ROOT, "worker_sdk/include"), os.path.join(args.build, "include")]
    new = table(args.compiler, args.include, args.library)
    if args.update:
        with open(TABLE, "w", encoding="utf-8") as stream:
            stream.write(new)
        return
    with open(TABLE, encoding="utf-8") as stream:
        old = stream.read()
    if old == new:
        return
    diff = [line for line in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
            if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    print("\n".join(diff))
    if any(line.startswith("-") for line in diff):
        print("The lines with - are gone from the interface for C, or have changed: programs that were compiled with "
              "it break. docs/compatibility.md says which release may do that, and CHANGELOG.md must say it. Only a "
              "struct that begins with struct_bytes may grow at its end: then its size alone changes.")
    else:
        print("The interface for C has grown, which breaks no program.")
    build = args.build or os.path.dirname(args.library)
    print(f"If this is wanted: python3 tests/embedding/abi_test.py {os.path.relpath(build, ROOT)} --update")
    sys.exit(1)


if __name__ == "__main__":
    main()
