#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# simulate.sh SWARM FROM COUNT PROCESSES
#
# Runs COUNT seeds from FROM on, split among PROCESSES processes, and prints their progress: on a
# terminal in place, otherwise every half minute. The first seed that violates an invariant ends all of them. Its trace and the command
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
        nice "$swarm" --seed $((from + part * share)) --count "$left" --progress 1 \
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
interval=30
begin= end='\n'
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then
    interval=1
    begin=$(printf '\r\033[K') end=
fi

# Seeds that hold, and how many a second, from the last line of each process.
progress() {
    for log in "$scratch"/*.log; do
        grep -E 'seeds hold|all invariants hold' "$log" | tail -n 1
    done | awk -v all="$count" '
        $4 == "of" { done += $3; rate += $8 }
        $2 == "seeds" && $3 == "from" { done += $1 }
        END {
            printf "%d of %d seeds hold", done, all
            if (rate > 0) {
                left = (all - done) / rate
                printf ", %.1f a second, about %s left", rate,
                    left < 120 ? int(left) " s" : left < 7200 ? int(left / 60) " min" : int(left / 3600) " h"
            }
        }'
}
while :; do
    done_count=0
    part=0
    while [ $part -lt $parts ]; do
        if [ -f "$scratch/$part.code" ]; then
            done_count=$((done_count + 1))
            if [ "$(cat "$scratch/$part.code")" != 0 ]; then
                printf '%s' "$begin"
                cat "$scratch/$part.log"
                exit 1
            fi
        fi
        part=$((part + 1))
    done
    [ $done_count -eq $parts ] && break
    sleep 1
    told=$((told + 1))
    if [ $((told % interval)) -eq 0 ]; then
        printf "%s%s$end" "$begin" "$(progress)"
    fi
done
printf '%s' "$begin"
for log in "$scratch"/*.log; do tail -n 2 "$log"; done
echo "$count seeds from $from hold"
