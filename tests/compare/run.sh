#!/usr/bin/env bash
# The same load by warptop, `vllm bench serve` and guidellm, in turn and more than once, on one server. See README.md.
#
#   run.sh WARPTOP URL MODEL TOKENIZER OUT
#
# OUT/runs gets CLIENT-LOAD-ROUND.json; table.py OUT/runs makes the table, which is printed at the end. Environment:
#   LOADS     loads with the number of requests of each run: "1:40 8:160 r4:80" is 1 user, 8 users, 4 requests a second
#   ROUNDS    how often each is measured (3); round 0, a quarter of the first load by each client, is thrown away
#   PROMPT, OUTPUT   tokens of each request (256, 128)
#   CLIENTS   which, in which order (warptop vllm guidellm); the order turns by one from round to round
#   SETTLE_S  pause between runs, s (4); warptop refuses a server that was busy a moment ago
#   LIMIT_S   no run begins later than this, s (none)
#   VLLM_PYTHON, VLLM_PATH      a Python that has vLLM (python3), and its PYTHONPATH
#   GUIDELLM_PYTHON, GUIDELLM_PATH   the same of guidellm
#   GUIDELLM__MAX_WORKER_PROCESSES   guidellm's own: its processes (10), each of which takes seconds to start: 2 on two cores
#   WARPTOP_ARGS   more arguments of warptop's, e.g. "--prompt-as words"
set -u
[ $# = 5 ] || { sed -n '2,5p' "$0"; exit 2; }
warptop=$(realpath "$1"); url=$2; model=$3; tokenizer=$4; mkdir -p "$5/runs"; out=$(realpath "$5")
here=$(cd "$(dirname "$0")" && pwd)
loads=${LOADS:-1:40 8:160 32:320}; rounds=${ROUNDS:-3}; prompt=${PROMPT:-256}; output=${OUTPUT:-128}
read -ra clients <<<"${CLIENTS:-warptop vllm guidellm}"
export XDG_STATE_HOME=$out/state HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 TOKENIZERS_PARALLELISM=false
began=$SECONDS
log() { echo "$((SECONDS - began)) s: $*" | tee -a "$out/log.txt"; }
curl -sf -m 5 "$url/v1/models" >"$out/models.json" || { echo "nothing answers at $url"; exit 1; }

if [[ " ${clients[*]} " == *" vllm "* ]]; then
  coproc VLLM { PYTHONPATH=${VLLM_PATH:-} exec "${VLLM_PYTHON:-python3}" "$here/vllm_bench.py" 2>>"$out/vllm.log"; }
  vllm_in=${VLLM[1]} vllm_out=${VLLM[0]} vllm_pid=$VLLM_PID
  trap 'kill $vllm_pid 2>/dev/null' EXIT
  read -r -t 180 answer <&"$vllm_out" && [ "$answer" = ready ] || { echo "vllm bench does not start:"; tail -5 "$out/vllm.log"; exit 1; }
  log "vllm bench is loaded"
fi

# Each takes: users or rate, whether it is a rate, requests, seed, file.
warptop() {
  local kind=closed; [ "$2" = 1 ] && kind=constant
  # shellcheck disable=SC2086
  "$warptop" probe sweep --engine "$url" --no-discover --yes --json --load $kind --levels "$1" --requests "$3" --model "$model" \
    --prompt "$prompt" --output "$output" --seed "$4" --tokens 100000000 --minutes 10 ${WARPTOP_ARGS:-} >"$5" 2>>"$out/warptop.log"
}
vllm() {
  local how=(--request-rate inf --max-concurrency "$1"); [ "$2" = 1 ] && how=(--request-rate "$1" --burstiness inf)
  local args=(--backend openai --base-url "$url" --endpoint /v1/completions --model "$model" --tokenizer "$tokenizer"
    --dataset-name random --random-input-len "$prompt" --random-output-len "$output" --ignore-eos --num-prompts "$3" "${how[@]}"
    --seed "$4" --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,95,99 --save-result --disable-tqdm
    --result-dir "$(dirname "$5")" --result-filename "$(basename "$5")")
  printf '%q ' "${args[@]}" >&"$vllm_in"; echo >&"$vllm_in"
  local status; read -r -t 600 status <&"$vllm_out" && [ "$status" = 0 ]
}
guidellm() {
  local how="kind=concurrent,streams=$1"; [ "$2" = 1 ] && how="kind=constant,rate=$1"
  PYTHONPATH=${GUIDELLM_PATH:-} "${GUIDELLM_PYTHON:-python3}" -m guidellm run --disable-console \
    --backend "kind=openai_http,target=$url,model=$model,request_format=/v1/completions" --profile "$how" \
    --constraint "kind=max_requests,count=$3" --tokenizer "kind=huggingface_auto,model=$tokenizer" \
    --data "kind=synthetic_text,prompt_tokens=$prompt,output_tokens=$output" --seed "kind=static,value=$4" \
    --output "kind=json,path=$5" >>"$out/guidellm.log" 2>&1
}

one() {  # client, load, requests, seed, file
  [ -n "${LIMIT_S:-}" ] && [ $((SECONDS - began)) -gt "$LIMIT_S" ] && { log "no time left for $5"; return; }
  local size=${2#[cr]} open=0; [ "${2:0:1}" = r ] && open=1
  "$1" "$size" $open "$3" "$4" "$5"
  log "$(basename "$5" .json), $3 requests: exit $?"
  sleep "${SETTLE_S:-4}"
}
name() { case $1 in r*) echo "$1";; *) echo "c$1";; esac; }

first=${loads%% *}
mkdir -p "$out/warm"
for client in "${clients[@]}"; do one "$client" "$(name "${first%:*}")" $(((${first#*:} + 3) / 4)) 7 "$out/warm/$client.json"; done
for round in $(seq 1 "$rounds"); do
  place=0
  for load in $loads; do
    place=$((place + 1))
    # A seed of its own for each run: none finds another's prompts in the prefix cache.
    for client in "${clients[@]}"; do
      one "$client" "$(name "${load%:*}")" "${load#*:}" $((round * 1000 + place)) "$out/runs/$client-$(name "${load%:*}")-$round.json"
    done
  done
  clients=("${clients[@]:1}" "${clients[0]}")
done
python3 "$here/table.py" "$out/runs" | tee "$out/table.md"
