#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The recording of README.md: examples/elastic trains with four workers. After a second, one of them
# is killed with SIGKILL. The three others keep their processes, and a new process takes the place of
# the fourth. At the end, the same training runs undisturbed in one process, for comparison.
#
#     examples/recording.sh BUILD_DIR
set -euo pipefail

build=${1:?usage: examples/recording.sh BUILD_DIR}
regroup=$build/launcher/regroup
elastic=$build/examples/elastic/elastic
steps=600

for program in "$regroup" "$elastic"; do
    [ -x "$program" ] || { echo "recording: $program is missing; run: make build" >&2; exit 1; }
done

# Shows a command as it would be typed, with the names of its programs alone.
show() { printf '$ %s\n' "$1"; }

# Without this variable, the launcher sets it and prints a note.
export OMP_NUM_THREADS=1

show "regroup run --nproc-per-node=4 --max-restarts=3 elastic --steps=$steps --step-ms=5"
"$regroup" run --nproc-per-node=4 --max-restarts=3 --log-dir=/dev/null \
    "$elastic" --steps=$steps --step-ms=5 2>&1 < /dev/null |
    while IFS= read -r line; do
        printf '%s\n' "$line"
        case $line in
            *"] round 1: rank 3 of 4, pid "*)
                victim=${line##*pid }
                victim=${victim%%,*}
                (sleep 1 && show "kill -9 $victim" && kill -9 "$victim") &
                ;;
        esac
    done

show "elastic --steps=$steps"
"$elastic" --steps=$steps | tail -n 1
