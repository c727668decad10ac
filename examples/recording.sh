#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The recording of README.md: its program trains with two workers. After three seconds, one of them is
# killed with SIGKILL. The other one keeps its process, and a new process takes the place of the first.
# Runs the `regroup` that the PATH names, with the Python package beside it:
#
#     pip install build/wheel/regroup-*.whl && bash examples/recording.sh
set -euo pipefail

command -v regroup >/dev/null || { echo "recording: no regroup on the PATH; run: make wheel, and install it" >&2; exit 1; }
page=$(cd "$(dirname "$0")/.." && pwd)/README.md
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed -n '/^```python$/,/^```$/p' "$page" | sed '/^```/d' >"$folder/train.py"
cd "$folder"

# Without this variable, the launcher sets it and prints a note.
export OMP_NUM_THREADS=1

echo '$ regroup run --standalone --nproc-per-node=2 --max-restarts=3 train.py'
regroup run --standalone --nproc-per-node=2 --max-restarts=3 --log-dir=/dev/null train.py 2>&1 </dev/null |
    while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in
            "["*":1] pid "*" begins")
                [ -z "${victim-}" ] || continue
                victim=${line##*pid }
                victim=${victim%% *}
                (sleep 3 && echo "$ kill -9 $victim" && kill -9 "$victim") &
                ;;
        esac
    done
