#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says why tests were skipped: a line for each, from the report of `ctest --output-junit REPORT`. A
# test gives its reason in a line that begins with "skipped: ".
#
#     sh tests/skipped.sh REPORT
set -eu

awk '
    function tell() { if (name != "") printf "skipped: %s: %s\n", name, reason }
    /<testcase / {
        name = ""
        if (/status="notrun"/) {
            split($0, parts, "\"")
            name = parts[2]
            reason = "no reason given"
        }
    }
    name != "" && /skipped: / {
        reason = $0
        sub(/.*skipped: /, "", reason)
        gsub(/&quot;/, "\"", reason); gsub(/&apos;/, "\047", reason)
        gsub(/&lt;/, "<", reason); gsub(/&gt;/, ">", reason); gsub(/&amp;/, "\\&", reason)
    }
    /<\/testcase>/ { tell(); name = "" }
' "$1"
