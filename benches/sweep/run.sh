#!/bin/bash
# The sweep of losses.toml on a made-up data set of vessel trees, below 2 GiB: once undisturbed, and once killed ten times on the way.
# Then all results of both are compared byte by byte.
#
#   benches/sweep/run.sh PLIMSOLL FOLDER [KILLS]
#
# PLIMSOLL is the program, FOLDER is made, KILLS is 10 where it is not given.
set -eu
export LC_ALL=C
plimsoll=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
kills=${3:-10}
file=$(realpath "$(dirname "$0")/losses.toml")
cd "$folder"

# The data set is that of the demonstration, which is ended once it is written.
if [ ! -d dataset ]; then
  "$plimsoll" demo --out demo --json >/dev/null 2>&1 &
  demo=$!
  until [ -d demo/run ]; do sleep 0.2; done
  kill "$demo" && wait "$demo" || true
  mv demo/dataset dataset
  rm -r demo
fi

sweep=("$plimsoll" sweep "$file" dataset --ram 2GiB --json --out)

# Where FOLDER was used before, what was not disturbed is there.
if [ ! -f whole.seconds ]; then
  rm -rf whole
  start=$SECONDS
  "${sweep[@]}" whole >whole.json 2>whole.log
  echo $((SECONDS - start)) >whole.seconds
fi
whole=$(cat whole.seconds)
echo "undisturbed: $whole s"

rm -rf killed
start=$SECONDS
resume=
for kill in $(seq "$kills"); do
  "${sweep[@]}" killed $resume >/dev/null 2>>killed.log &
  running=$!
  # At instants that have nothing to do with what happens then.
  sleep "$((1 + whole / (kills + 1))).$((RANDOM % 10))"
  kill -KILL "$running" 2>/dev/null || echo "it had ended before kill $kill"
  wait "$running" 2>/dev/null || true
  if [ -f killed/sweep.json ]; then resume=--resume; fi
done
"${sweep[@]}" killed $resume >killed.json 2>>killed.log
echo "killed $kills times: $((SECONDS - start)) s"

# Everything but times, logs and whole paths.
results() {
  (cd "$1" && find . -type f ! -name events.jsonl ! -name run.json ! -name log.txt ! -name progress.png ! -name arena.svg ! -name lock | sort |
    while read -r name; do echo "$name $(sed "s|$folder/$1|SWEEP|g" "$name" | sha256sum)"; done)
}
results whole >whole.sums
results killed >killed.sums
diff whole.sums killed.sums
echo "$(wc -l <whole.sums) files are the same, byte for byte"
"$plimsoll" sweep "$file" dataset --out killed --resume --ram 2GiB 2>/dev/null | tail -n 6
