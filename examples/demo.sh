#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The main job, on one machine: byte_lm trains data-parallel on two agents with two workers each.
# While it runs, the script kills one worker, then a whole agent, and starts that agent again. At
# the end it compares the loss with that of an undisturbed single process on the same data.
#
#     examples/demo.sh BUILD_DIR
set -u

build=${1:?usage: examples/demo.sh BUILD_DIR}
regroup=$build/launcher/regroup
byte_lm=$build/examples/byte_lm/byte_lm
steps=700
worker_dies_at=150
agent_dies_at=300
agent_returns_at=400
tolerance=0.0001

for program in "$regroup" "$byte_lm"; do
    [ -x "$program" ] || { echo "demo: $program is missing; run: make build" >&2; exit 1; }
done
regroup=$(realpath "$regroup")
byte_lm=$(realpath "$byte_lm")

work=$(mktemp -d)
started=()
cleanup() {
    for pid in "${started[@]}"; do kill -9 "$pid" && wait "$pid"; done 2>/dev/null
    exec 3>&-
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

cd "$work" || exit 1
licences=/usr/share/common-licenses
cat $licences/GPL-2 $licences/GPL-3 $licences/LGPL-2.1 $licences/Apache-2.0 \
    $licences/MPL-2.0 $licences/Artistic > text 2>/dev/null
echo "=== training text: $(wc -c < text) bytes of licences from $licences"

echo "=== a rendezvous daemon, then two agents with two workers each"
"$regroup" serve --listen 127.0.0.1:0 2> serve.log &
started+=($!)
for _ in $(seq 100); do
    port=$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' serve.log)
    [ -n "$port" ] && break
    sleep 0.05
done
[ -n "$port" ] || { cat serve.log >&2; exit 1; }

# The agents print whole lines to one pipe, which the loop below reads.
mkfifo screen
exec 3<>screen
agent() {
    "$regroup" run --nnodes=1:2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-id=demo \
        --rdzv-endpoint="127.0.0.1:$port" --local-addr="$1" --max-restarts=3 \
        --last-call=5 --grow-after=1 --shutdown-timeout=5 --log-dir="$work/runs" \
        "$byte_lm" --data "$work/text" --steps $steps --log-every 25 --step-delay-ms 25 \
        --checkpoint "$work/checkpoint" --checkpoint-every 20 \
        < /dev/null > screen 2>&1 3>&- &
    last_agent=$!
    started+=("$last_agent")
}
agent 127.0.0.2
first_agent=$last_agent
agent 127.0.0.3
second_agent=$last_agent

now_ms() { local t=$EPOCHREALTIME; echo $(( ${t%.*} * 1000 + 10#${t#*.} / 1000 )); }

# The last event, its time, and whether its new round has been announced.
event=
event_at=0
round_begun=no
happens() { event=$1; event_at=$(now_ms); round_begun=no; printf '=== %s\n' "$1"; }

stage=0
victim=
loss=
recoveries=()
begin=$(now_ms)
quiet=0
while [ $quiet -lt 60 ]; do
    if ! IFS= read -r -t 1 line <&3; then
        # All output has been read once the agents have ended and the pipe is empty.
        kill -0 "$first_agent" 2>/dev/null || break
        quiet=$((quiet + 1))
        continue
    fi
    quiet=0
    printf '%6.1fs %s\n' "$(( $(now_ms) - begin ))e-3" "$line"
    case $line in
        *"rank 3 of 4 "*"(pid "*)
            victim=${line##*(pid }
            victim=${victim%%)*}
            ;;
        "regroup: round "*)
            round_begun=yes
            ;;
        *"] step "*)
            step=${line##*] step }
            step=${step%%/*}
            if [ -n "$event" ] && [ $round_begun = yes ]; then
                took="$(( $(now_ms) - event_at )) ms"
                recoveries+=("$event: first step of the new round after $took")
                echo "=== training again: $took from \"$event\" to the first step after it"
                event=
            fi
            if [ -z "$event" ]; then
                if [ $stage = 0 ] && [ "$step" -ge $worker_dies_at ]; then
                    stage=1
                    kill -9 "$victim"
                    happens "kill -9 of one worker (rank 3, pid $victim)"
                elif [ $stage = 1 ] && [ "$step" -ge $agent_dies_at ]; then
                    stage=2
                    disown "$second_agent"
                    kill -9 "$second_agent"
                    happens "kill -9 of one whole agent (node 127.0.0.3, pid $second_agent)"
                elif [ $stage = 2 ] && [ "$step" -ge $agent_returns_at ]; then
                    stage=3
                    agent 127.0.0.3
                    happens "the agent of node 127.0.0.3 comes back"
                fi
            fi
            ;;
        *"evaluation loss "*)
            loss=${line##*evaluation loss }
            ;;
    esac
done
wait "$first_agent"
code=$?
if [ $code != 0 ] || [ -z "$loss" ] || [ $stage != 3 ]; then
    echo "=== the demo failed: exit code $code, loss '${loss:-none}', stage $stage of 3" >&2
    exit 1
fi

echo "=== the same training in one undisturbed process"
"$byte_lm" --data text --steps $steps --log-every $steps | tee alone
alone=$(sed -n 's/^evaluation loss //p' alone)

echo
for recovery in "${recoveries[@]}"; do echo "  $recovery"; done
echo "  evaluation loss: $loss with a worker and an agent lost, $alone undisturbed"
awk -v a="$loss" -v b="$alone" -v tolerance=$tolerance 'BEGIN {
    difference = a > b ? a - b : b - a
    agree = b != "" && difference <= tolerance * b
    printf "  verdict: they %s (difference %.6f, tolerance %g of the loss)\n",
           agree ? "AGREE" : "DO NOT AGREE", difference, tolerance
    exit !agree
}'
