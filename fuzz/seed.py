"""Writes the first inputs and a dictionary of each target to a folder, from the real bodies in assets/ and docs/evidence.

    seed.py FOLDER      makes FOLDER/TARGET/… and FOLDER/TARGET.dict

What fuzzing added to them lies in fuzz/corpus, packed.
"""
import gzip
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = pathlib.Path(sys.argv[1])
ADAPTERS = re.findall(r"&(\w+)::", (ROOT / "src/engine/mod.rs").read_text().split("ADAPTERS: &[", 1)[1].split("];")[0])


def put(target, data, count={}):
    """Adds an input, cut to what a fuzzer handles well."""
    folder = OUT / target
    folder.mkdir(parents=True, exist_ok=True)
    count[target] = count.get(target, 0) + 1
    (folder / f"seed-{count[target]:03}").write_bytes((data if isinstance(data, bytes) else data.encode())[:16000])


def thin(body):
    """The first three lines of each name: the shape of a body without its length."""
    seen, lines = {}, []
    for line in body.splitlines():
        if line.startswith("#"):
            continue
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        seen[name] = seen.get(name, 0) + 1
        if seen[name] <= 3 or "+Inf" in line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def which_adapter(name):
    name = {"llama.cpp": "llamacpp", "nim-1.prom": "nim"}.get(name, name)
    for index, adapter in enumerate(ADAPTERS):
        if name.startswith(adapter) or adapter.startswith(name.split("-")[0].replace(".", "")):
            return index
    return 1


def seeds():
    for file in sorted((ROOT / "assets").glob("**/*.prom")):
        body = thin(file.read_text(errors="replace"))
        put("exposition", body)
        if "DCGM" in body:
            put("dcgm", body)
        else:
            put("engine", bytes([which_adapter(file.name)]) + (body[:7900] + "\0" + re.sub(r" (\d+)\.0", r" 9\1.0", body[:7900])).encode())
    for file in sorted((ROOT / "assets").glob("**/*.json")):
        if "recordings" not in str(file):
            for target in ("extra", "engine", "answer"):
                put(target, bytes([which_adapter(file.name)]) + file.read_bytes())
    for file in sorted((ROOT / "assets/streams").glob("*.sse")):
        put("stream", b"\x11" + file.read_bytes())
    for file in sorted((ROOT / "assets/recordings").glob("**/*.jsonl.gz")):
        lines = gzip.open(file, "rt").read(60_000).split("\n")[:-1]
        keep, sources = lines[:1], {}
        for line in lines[1:]:
            source = str(json.loads(line).get("src"))
            sources[source] = sources.get(source, 0) + 1
            if sources[source] <= 2 and len(line) < 3000:
                keep.append(line)
        put("recording", "\n".join(keep) + "\n")
        put("recording", gzip.compress("\n".join(keep[:6]).encode(), mtime=0))
    for file in sorted((ROOT / "docs/evidence/probes").glob("*.json")):
        put("report", json.dumps(json.loads(file.read_text())))
    outcome = json.loads((ROOT / "docs/evidence/probes/hbm-1.json").read_text())
    hello = {"is": "hello", "version": 1, "run": "run"}
    for message in (
        {"is": "progress", "done": 0.5, "eta_s": 3, "what": "copying"},
        {"is": "sample", "series": "triad", "unit": "B/s", "value": 4e12},
        {"is": "left_out", "samples": 3},
        {"is": "error", "what": "no CUDA", "why": "x", "do": "y"},
        {"is": "result", **{key: outcome[key] for key in ("figures", "checks", "notes") if key in outcome}},
    ):
        put("protocol", b"\x60" + (json.dumps(hello) + "\n" + json.dumps(message) + "\n").encode())
    source = (ROOT / "src/engine/model_config.rs").read_text()
    for config in re.findall(r'r#"(\{"(?:arch|model).*?\})"#;', source, re.S):
        put("model-config", re.sub(r"\s*\n\s*", "", config))
    for address in ("http://127.0.0.1:8000", "https://[::1]:443/a/b/", "localhost:8000", "http://u:p@h.example:1/x?y=1#z", "h", "http://127.evil.test.:80"):
        put("address", address)
    put("keys", "# keys\nhttp://127.0.0.1:8000 bearer abc\nhttps://h.example/a x-api-key: def\nhttp://[::1] basic u:p\n")
    for text in ("256", "100..900", "normal 500 100", "@lengths.csv", "1,2,4-8", "poisson", "1,0.5,1e3", "ttft=500ms,itl=50ms,e2e=3s", "p99 ttft<1s"):
        put("workload", text)
    for words in (
        "python3 -m vllm.entrypoints.openai.api_server --model m --port 8000 --api-key k --max-num-seqs 8",
        "vllm serve m --port=8001 -tp 2 --kv-cache-dtype fp8 --hf-token t",
        "python -m sglang.launch_server --model-path m --port 30000 --tp 2 --dp 2",
        "llama-server -m m.gguf --port 8080 --parallel 4 -c 8192 --api-key k",
        "text-generation-launcher --model-id m --port 3000",
        "tritonserver --model-repository=/m --http-port 8000 --metrics-port 8002",
        "ollama serve",
    ):
        put("command-line", words.replace(" ", "\0") + "\0")
        put("secrets", words.replace(" ", "\0"))
    for words in ("HF_TOKEN=hf_abc x", "--header 'x-api-key: abc'", "http://u:p@h/?token=t", '--config {"api_key":"abc","n":1}', "Authorization: Bearer abc", "--password=x --tokenizer t"):
        put("secrets", words)
    for text in (
        "cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 1 1 1 0 0 0 0 0 0\nintr 5\n",
        "MemTotal:       65 kB\nMemFree: 3 kB\n",
        "Tcp: MaxConn InSegs RetransSegs\nTcp: -1 5 9\n",
        "some avg10=0.17 avg60=1.76 avg300=1.81 total=32826655\n",
        "7 (a) S 1) R 1 7 7 0 -1 4194304 95 0 0 0 120 30 0 0 20 0 1 0 98765 2703360 379 1844",
        "0-3,8,10-11\n",
        "100000 50000\n",
        "12:cpu,cpuacct:/docker/x\n0::/a/b\n",
        "1234 567 8\n",
        "Main:\n  |-- 10.0.0.2\n     /32 host LOCAL\n",
        "fe80000000000000 02 40 20 80 eth0\n20010db8000000000000000000000001 02 40 00 80 eth0\n",
    ):
        put("proc", text)
    for keys in (b"q", b"\x1b[A\x1b[1;5C", b"\x1b[?2026;2$y", b"\x1b[200~paste\x1b[201~", b"\x1b[<0;3;4M", b"\x1b[I\x1b[O", b"\x1bOP", b"\x1b[97;5u", "é漢".encode(), b"\x1b]11;rgb:00/00/00\x07", b"\x1bP>|tmux\x1b\\"):
        put("terminal", keys)


def dictionaries():
    names, keys, options = set(), set(), set()
    for folder in ("exposition", "dcgm"):
        for file in (OUT / folder).iterdir():
            names |= set(re.findall(rb"[A-Za-z_:][A-Za-z0-9_:.]{3,}", file.read_bytes()))
    for folder in ("extra", "recording", "report", "protocol", "model-config", "stream"):
        for file in (OUT / folder).iterdir():
            keys |= set(re.findall(rb'"[A-Za-z_][A-Za-z0-9_]{1,40}"', file.read_bytes()))
    for source in ("launch", "options", "shown"):
        options |= set(re.findall(rb'"(-[-a-z0-9_]{1,40})"', (ROOT / f"src/engine/{source}.rs").read_bytes()))
    numbers = [b"1e308", b"-1e308", b"5e-324", b"NaN", b"+Inf", b"18446744073709551615", b"9007199254740993", b"-0"]
    words = {"secrets": options | set(re.findall(rb'"([-a-z_]{2,40})"', (ROOT / "src/model/secret/names.rs").read_bytes())), "exposition": names, "dcgm": names, "engine": names | keys, "command-line": options}
    for folder in sorted(OUT.iterdir()):
        if folder.is_dir():
            lines = sorted(words.get(folder.name, keys))[:1500] + numbers
            quote = lambda word: "".join(chr(b) if 32 < b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word)
            (OUT / f"{folder.name}.dict").write_text("".join(f'"{quote(word)}"\n' for word in lines))


seeds()
dictionaries()
