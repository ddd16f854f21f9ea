#!/usr/bin/env bash
# On a machine with an H200 where vLLM serves on port 8000: the same load by three clients, and a whole sweep.
#
#   sweep.sh WARPTOP OUT [compare] [sweep]      # both, unless one is named
#
# compare  warptop, vllm bench serve and guidellm in turn (../compare/run.sh) with 1, 8 and 32 users: about 7 min
# sweep    `warptop probe sweep` from 1 to 64 users, `warptop record` beside it: about 6 min
#
# Before: the vocabulary of a made-up model must be what its tokenizer knows. With more, it says ids that are no text, and two of
# the three clients take events without text for none:   sweep.sh vocabulary MODEL_FOLDER      (before vLLM starts)
#
# vLLM is to be started with --gpu-memory-utilization 0.25 --max-model-len 32768 --max-num-seqs 32. 64 users of 1024 + 128 tokens hold
# 74,000 of that KV pool's 166,000 tokens, so nothing but the 32 sequences makes a queue: none up to 32 users, 16 and 32 requests at
# 48 and 64, and throughput that grows no more; both are levels, so that the flat part has a line of its own. With 256 sequences
# nothing queues below 64 users; with 48 a single level would be above the limit.
#
# Environment: MODEL (dummy-8b), TOKENIZER (/tmp/model), LIMIT_S (540) when the comparison begins no more runs, VLLM_PATH and
# GUIDELLM_PATH (PYTHONPATH of vLLM and of guidellm: guidellm_bundle.sh), and those of ../compare/run.sh.
# OUT gets compare.tar.gz, table.md, sweep.json, sweep.md, sweep.jsonl.gz, log.tar.gz.
set -u
if [ "${1:-}" = vocabulary ]; then
  exec python3 - "$2" <<'P'
import json, sys
config = sys.argv[1] + "/config.json"
known = len(json.load(open(sys.argv[1] + "/tokenizer.json"))["model"]["vocab"])
fields = json.load(open(config))
print("vocabulary of the model", fields["vocab_size"], "of the tokenizer", known)
json.dump({**fields, "vocab_size": min(known, fields["vocab_size"])}, open(config, "w"))
P
fi
[ $# -ge 2 ] || { sed -n '2,8p' "$0"; exit 2; }
warptop=$(realpath "$1"); mkdir -p "$2/logs"; out=$(realpath "$2"); shift 2
here=$(cd "$(dirname "$0")" && pwd)
url=http://127.0.0.1:8000; model=${MODEL:-dummy-8b}
began=$SECONDS
step() { echo "$((SECONDS - began)) s: $*" | tee -a "$out/logs/steps.txt"; }
curl -sf "$url/health" >/dev/null || { echo "nothing serves at $url"; exit 1; }
curl -s "$url/version" >"$out/logs/vllm-version.json"; nvidia-smi >"$out/logs/nvidia-smi.txt" 2>&1; "$warptop" --version >"$out/logs/version.txt"
cat /proc/loadavg >"$out/logs/loadavg.txt"

compare() {
  step "comparison begins"
  LOADS=${LOADS:-1:16 8:120 32:384} LIMIT_S=${LIMIT_S:-540} \
    "$here/../compare/run.sh" "$warptop" "$url" "$model" "${TOKENIZER:-/tmp/model}" "$out/compare" || step "comparison: exit $?"
  cp "$out/compare/table.md" "$out/" 2>/dev/null
  tar -C "$out" -czf "$out/compare.tar.gz" compare && rm -rf "$out/compare"
  step "comparison is over"
}

sweep() {
  export XDG_STATE_HOME=$out/state
  "$warptop" record -o "$out/sweep.jsonl.gz" --engine "$url" 2>"$out/logs/record.err" &
  local recorder=$!
  curl -s "$url/metrics" >"$out/logs/metrics-before.prom"
  sleep 3
  step "sweep begins"
  # shellcheck disable=SC2086
  "$warptop" probe sweep --engine "$url" --yes --json --model "$model" --levels "${LEVELS:-1,2,4,8,16,24,32,48,64}" \
    --prompt "${PROMPT:-1024}" --output "${OUTPUT:-128}" --seconds "${SECONDS_A_LEVEL:-20}" --samples 368 --most-seconds "${MOST_S:-42}" \
    --slo "${SLO:-ttft:500,tpot:20}" --seed 1 --tokens 20000000 --minutes 8 ${SWEEP_ARGS:-} >"$out/sweep.json" 2>"$out/logs/sweep.err"
  step "sweep: exit $?"
  sleep 3
  curl -s "$url/metrics" >"$out/logs/metrics-after.prom"
  kill -INT $recorder; wait $recorder; step "record: exit $?"
  "$warptop" probe show last:sweep >"$out/sweep.md" 2>>"$out/logs/sweep.err"
  tail -3 "$out/logs/sweep.err"
}

for part in ${*:-compare sweep}; do "$part"; done
tar -C "$out" -czf "$out/log.tar.gz" logs $([ -d "$out/state" ] && echo state) && rm -rf "$out/logs" "$out/state"
ls -la "$out"
