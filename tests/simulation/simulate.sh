#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# simulate.sh SWARM FROM COUNT PROCESSES
#
# Runs COUNT seeds from FROM on, split among PROCESSES processes, and prints their progress every
# half minute. The first seed that violates an invariant ends all of them. Its trace and the command
# that replays it are printed, and the exit code is 1.
set -eu
swarm=$1 from=$2 count=$3 processes=$4
scratch=$(mktemp -d)
pids=
stop() {
    for pid in $pids; do kill "$pid" 2>/dev/null || :; done
    rm -rf "$scratch"
}
trap stop EXIT
trap 'exit 130' INT TERM

share=$(((count + processes - 1) / processes))
part=0
while [ $((part * share)) -lt "$count" ]; do
    left=$((count - part * share))
    [ "$left" -gt "$share" ] && left=$share
    {
        nice "$swarm" --seed $((from + part * share)) --count "$left" --progress 30 \
            >"$scratch/$part.log" 2>&1 &
        child=$!
        trap 'kill $child 2>/dev/null; exit 0' TERM
        wait $child || code=$?
        echo "${code:-0}" >"$scratch/$part.code.new"
        mv "$scratch/$part.code.new" "$scratch/$part.code"
    } &
    pids="$pids $!"
    part=$((part + 1))
done

parts=$part
told=0
while :; do
    done_count=0
    part=0
    while [ $part -lt $parts ]; do
        if [ -f "$scratch/$part.code" ]; then
            done_count=$((done_count + 1))
            if [ "$(cat "$scratch/$part.code")" != 0 ]; then
                cat "$scratch/$part.log"
                exit 1
            fi
        fi
        part=$((part + 1))
    done
    [ $done_count -eq $parts ] && break
    sleep 1
    told=$((told + 1))
    if [ $((told % 30)) -eq 0 ]; then
        for log in "$scratch"/*.log; do tail -n 1 "$log"; done
    fi
done
for log in "$scratch"/*.log; do tail -n 2 "$log"; done
echo "$count seeds from $from hold"
