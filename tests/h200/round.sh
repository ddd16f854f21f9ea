#!/usr/bin/env bash
# Measures warptop beside a serving vLLM: see README.md. round.sh WARPTOP OUT
set -u
warptop=$(realpath "$1"); out=$2; here=$(cd "$(dirname "$0")" && pwd)
url=http://127.0.0.1:8000; model=${MODEL:-dummy-8b}
export TERM=xterm-256color LANG=C.UTF-8

mkdir -p "$out"
load() { python3 "$here/load.py" "$url" "$model" "$out/$1" "$2"; }

# CPU of one core (%) and peak RSS (MB) of process $1 over $2 seconds, as JSON.
cost() {
  python3 - "$1" "$2" <<'P'
import json, os, sys, time
pid, seconds = int(sys.argv[1]), float(sys.argv[2])
def ticks():
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
def rss():
    return next(int(l.split()[1]) for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")) / 1024
a, t = ticks(), time.time()
time.sleep(seconds)
b, u = ticks(), time.time()
print(json.dumps(dict(cpu_pct=round((b - a) / os.sysconf("SC_CLK_TCK") / (u - t) * 100, 3), rss_mb=round(rss(), 1), seconds=round(u - t, 1))))
P
}

screen() { tmux capture-pane -p -t watch >"$out/screen-$1.txt"; tmux capture-pane -e -p -t watch >"$out/screen-$1.ansi"; }

# 1. A recording, with the second opinion beside it.
nvidia-smi dmon --gpm-metrics 2,3,5,10 -d 1 -o DT >"$out/dmon.txt" 2>&1 &
dmon=$!
"$warptop" record -o "$out/run.jsonl.gz" 2>"$out/record.err" &
recorder=$!
cost $recorder 140 >"$out/cost-record.json" 2>/dev/null &
load requests.jsonl '[["idle",0,0,0,6],["c1",1,512,128,24,0.5],["c16",16,512,128,28,0.5],["c64",64,512,128,40,0.5],["c256",256,512,128,40,0.5],["idle2",0,0,0,5]]'
kill -INT $recorder; wait $recorder; echo "record exit $?" >>"$out/record.err"
kill $dmon

# 2. The cost of watching. tmux runs warptop as a person would.
watched() {  # name, seconds, arguments of warptop
  local name=$1 seconds=$2; shift 2
  tmux new-session -d -s watch -x 140 -y 45 "exec $warptop $*"
  sleep 1
  local pid; pid=$(tmux list-panes -t watch -F '#{pane_pid}')
  (sleep 3; cost "$pid" $((seconds - 5)) >"$out/cost-$name.json") &
  local measuring=$!
  (sleep $((seconds - 2)); screen "$name") &
  local looking=$!
  load "watch-$name.jsonl" "[[\"$name\",32,512,128,$seconds]]"
  wait $measuring $looking
  tmux send-keys -t watch q; sleep 0.5; tmux kill-session -t watch 2>/dev/null
}
alone() { load "watch-$1.jsonl" "[[\"$1\",32,512,128,$2]]"; }
alone warm 8
for i in 1 2 3; do
  alone "none$i" 18
  watched "default$i" 18 ""
  watched "fast$i" 18 --interval 100ms
done

# 3. The screen at the other sizes, and a snapshot.
load requests-screens.jsonl '[["screens",64,512,128,24,0.5]]' &
loading=$!
sleep 1
"$warptop" snapshot --json >"$out/snapshot.json" 2>"$out/snapshot.err"
for size in 140x45 80x24 40x10; do
  tmux new-session -d -s watch -x "${size%x*}" -y "${size#*x}" "exec $warptop"
  sleep 6; screen "$size"
  tmux send-keys -t watch q; sleep 0.5; tmux kill-session -t watch 2>/dev/null
done
wait $loading
ls -la "$out"
