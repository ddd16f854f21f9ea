#!/usr/bin/env bash
# Every probe and PyTorch's figures beside it, twice in turn, in one session on one GPU.
#
#   probes.sh WARPTOP OUT [PROBE...]
#
# OUT gets probes.tar.gz with the reports (ID-1.json, ID-2.json), pages, what was said on the way, PyTorch's JSON
# SOAK_SECONDS (60) is how long each soak takes, COOL_S (20) how long the GPU is watched cooling after it, LIMIT_S (555)
# when nothing new is begun any more, ROUNDS (2) how often.
# SOAK_SECONDS (60) is how long each soak takes, COOL_S (20) how long the GPU is watched cooling after it, LIMIT_S (555) when nothing new is begun any more, ROUNDS (2) how often.
set -u
warptop=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); shift 2
here=$(cd "$(dirname "$0")" && pwd)
work=$out/work; mkdir -p "$work"
export XDG_STATE_HOME=$work/state
soak=${SOAK_SECONDS:-60}; cool=${COOL_S:-20}; limit=${LIMIT_S:-555}; rounds=${ROUNDS:-2}
began=$SECONDS
smi() { nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE,ECC,MEMORY >"$work/nvidia-smi-$1.txt" 2>&1; }
left() { echo $((limit - SECONDS + began)); }
smi before
nvidia-smi -q >"$work/nvidia-smi-q.txt" 2>&1; nvidia-smi topo -m >"$work/topo.txt" 2>&1; lscpu >"$work/lscpu.txt" 2>&1
"$warptop" --version >"$work/version.txt"

# Parameters that differ from a probe's defaults.
parameters() {
  [ "$1" = soak ] && echo --minutes "$(python3 -c "print($soak / 60)")" --cool "$cool"
}

# PyTorch's row beside a probe; nothing where there is none.
beside() {
  case $1 in
    hbm | pcie | kvload | launch | gemm | soak | moe | hostmem | p2p) echo "$1";;
  esac
}

torch() {  # row or rows, file
  timeout $(($(left) + 25)) python3 "$here/torch_reference.py" --rows "$1" --soak-seconds "$soak" >"$work/$2.json" 2>"$work/$2.err"
}

# Within its cool-down the same request is the same run by design: asked again until it is a new one.
probe() {  # id, round
  local id=$1 name=$1-$2 code run
  while :; do
    timeout $(($(left) + 25)) "$warptop" probe "$id" --yes --json $(parameters "$id") >"$work/$name.json" 2>"$work/$name.err"
    code=$?
    echo "$name exit $code, $((SECONDS - began)) s" >>"$work/log.txt"
    grep -q "measured already or just now" "$work/$name.err" && [ "$(left)" -gt 30 ] || break
    sleep 8
  done
  run=$(sed -n 's/^  "run": "\(.*\)",$/\1/p' "$work/$name.json" | head -1)
  [ -n "$run" ] && "$warptop" probe show "$run" >"$work/$name.md" 2>/dev/null
  [ $code = 0 ] || { echo "$name: exit $code"; tail -3 "$work/$name.err"; }
}

all=$("$warptop" probe list --json | python3 -c 'import json, sys; print(*sorted((p["probe"] for p in json.load(sys.stdin)), key="soak".__eq__))')
gpus=$(nvidia-smi -L | wc -l)
for round in $(seq 1 "$rounds"); do
  for id in ${*:-$all}; do
    [ "$(left)" -lt "$([ "$id" = soak ] && echo $((soak + cool + 15)) || echo 15)" ] && { echo "$id-$round: no time left" | tee -a "$work/log.txt"; continue; }
    probe "$id" "$round"
    row=$(beside "$id")
    [ "$id" = p2p ] && [ "$gpus" -lt 2 ] && row=
    [ "$id" = soak ] && [ "$(left)" -lt $((soak + 15)) ] && { echo "torch-soak-$round: no time left" | tee -a "$work/log.txt"; row=; }
    [ -n "$row" ] || continue
    torch "$row" "torch-$id-$round"
    # What was busy a moment ago still reads as busy: the guard would refuse.
    sleep 2
  done
done
smi after
python3 "$here/probes_table.py" "$work" | tee "$work/table.txt"
tar -C "$out" -czf "$out/probes.tar.gz" work && rm -rf "$work"
ls -la "$out"
