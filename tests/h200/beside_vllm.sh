#!/usr/bin/env bash
# What a forced probe does to a serving vLLM at 32 clients, with its duty cycle and without: see beside_vllm.py.
#
#   beside_vllm.sh WARPTOP OUT [arguments of beside_vllm.py]
#
# vLLM answers on port 8000. Eight phases of 20 s and what lies between them take four minutes.
set -u
warptop=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); shift 2
here=$(cd "$(dirname "$0")" && pwd)
export XDG_STATE_HOME=$out/state
curl -sf http://127.0.0.1:8000/health >/dev/null || { echo "nothing serves on port 8000"; exit 1; }
curl -s http://127.0.0.1:8000/version >"$out/vllm-version.json"
nvidia-smi >"$out/nvidia-smi.txt" 2>&1
nvidia-smi dmon -s pucm -d 1 -o DT >"$out/dmon.txt" 2>&1 &
dmon=$!
# Long enough that one kernel lasts through a phase.
python3 "$here/beside_vllm.py" "$warptop" "$out" \
  --more '{"hbm": ["--seconds", "60"], "soak": ["--minutes", "1"], "pcie": ["--seconds", "60"]}' "$@" 2>&1 | tee "$out/beside.log"
kill $dmon
tar -C "$out" -czf "$out/reports.tar.gz" state && rm -rf "$out/state"
ls -la "$out"
