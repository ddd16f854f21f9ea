"""Makes crash/ of a capture of two GPUs: what the audit needs of it, with a crash and a restart put in.

    compose.py DIR OUT [NO_ANSWER DOWN UP]

DIR is a capture (gpu, metrics and proc.jsonl.gz as `cargo xtask import` takes them); crash/ is of vLLM 0.25.1 with
--tensor-parallel-size 2 on two H200s, 69 s. One scrape gets no answer. Later the server is gone for ten seconds; what comes
back is another process, with other ids, a later start, and totals that begin at 0. What GPUs and machine say goes on. The
arguments are these moments, in seconds from the start. The outcome is a function of the input: no clock, no random numbers.
"""

import gzip
import json
import os
import re
import sys

FILES = ("gpu", "metrics", "proc")
MOMENTS_S = 13, 31, 41
OTHER_PID = 10_000
START = "process_start_time_seconds"

READ = (
    START,
    "http_requests_total",
    "http_request_duration_seconds",
    "vllm:cache_config_info",
    "vllm:num_requests",
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions",
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:prefix_cache",
    "vllm:request_success",
    "vllm:time_to_first_token",
    "vllm:inter_token_latency",
    "vllm:request_time_per_output_token",
    "vllm:e2e_request_latency",
    "vllm:request_queue_time",
    "vllm:request_prefill_time",
    "vllm:request_decode_time",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
)
LEFT_OUT = re.compile(r"[^{]*_created|http_request_duration_seconds_bucket")
GPU = (
    "unix_ms gpu util_gpu util_mem mem_used mem_total temp power_mw sm_mhz mem_mhz event_reasons gpm energy_mj mem_temp "
    "viol_power_ns viol_thermal_ns procs proc_util"
).split()
GPM = (
    "sm_util sm_occupancy any_tensor_util dram_bw_util pcie_tx_per_sec pcie_rx_per_sec nvlink_total_rx_per_sec "
    "nvlink_total_tx_per_sec"
).split()
PROCESS = "pid ppid cmd utime stime majflt VmRSS VmPTE cpus top".split()
MEMORY = "MemTotal MemAvailable SwapTotal SwapFree".split()


def read(folder, name):
    with gzip.open(os.path.join(folder, name + ".jsonl.gz"), "rt") as lines:
        return [json.loads(line) for line in lines]


def write(folder, name, rows):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name + ".jsonl.gz")
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        for row in rows:
            packed.write((json.dumps(row, separators=(",", ":")) + "\n").encode())


def only(row, keys):
    return {key: row[key] for key in keys if key in row}


def slim(gpu, metrics, proc):
    """Leaves out what nothing reads, and where the model lay."""
    gpu = [only(row, GPU) | {"gpm": only(row["gpm"], GPM)} for row in gpu]
    metrics = [only(row, ("unix_ms", "scrape_ms", "body")) for row in metrics]
    for row in metrics:
        lines = row["body"].split("\n")
        kept = [line for line in lines if line.removeprefix("# TYPE ").startswith(READ) and not LEFT_OUT.match(line)]
        row["body"] = "\n".join(kept) + "\n"
    machine = []
    for row in proc:
        procs = [only(p, PROCESS) | {"cmd": p["cmd"].replace("/tmp/", "")} for p in row["procs"]]
        machine.append(
            {
                "unix_ms": row["unix_ms"],
                "procs": procs,
                "vmstat": only(row["vmstat"], ["pgmajfault"]),
                "stat": row["stat"][:1] + [cpu[:1] for cpu in row["stat"][1:]],
                "mem": only(row["mem"], MEMORY),
                "pressure": {of: text.split("\n")[0] + "\n" for of, text in row["pressure"].items()},
                "tcp_retrans": row["tcp_retrans"],
            }
        )
    return gpu, metrics, machine


def totals(body):
    """Series that only grow, by their name and labels."""
    kinds, out = {}, {}
    for line in body.split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            kinds[name] = kind
        elif line:
            series, value = line.rsplit(" ", 1)
            name = series.split("{")[0]
            stem = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            if kinds.get(name) == "counter" or kinds.get(stem) == "histogram":
                out[series] = float(value)
    return out


def restarted(body, base, start_s):
    """The same body of a process that started at `start_s`, when `base` had been counted."""
    counted, lines = totals(body), []
    for line in body.split("\n"):
        series = line.rsplit(" ", 1)[0]
        if series in counted:
            line = f"{series} {counted[series] - base.get(series, 0.0)!r}"
        elif line.startswith(START):
            line = f"{START} {start_s!r}"
        lines.append(line)
    return "\n".join(lines)


def crash(gpu, metrics, proc, moments):
    first = min(rows[0]["unix_ms"] for rows in (gpu, metrics, proc))
    silent, down, up = (first + seconds * 1000 for seconds in moments)
    server = {p["pid"] for p in proc[0]["procs"]}
    base = totals([row for row in metrics if row["unix_ms"] < down][-1]["body"])
    no_answer = next(row for row in metrics if row["unix_ms"] >= silent)

    def other(pid):
        return pid + OTHER_PID if pid in server else pid

    for row in (row for row in metrics if row["unix_ms"] >= down):
        if row["unix_ms"] < up:
            row["body"], row["error"] = None, "connection refused"
        else:
            row["body"] = restarted(row["body"], base, up / 1000.0)
    no_answer["body"], no_answer["error"] = None, "no answer within 2 s"
    for row in (row for row in proc if row["unix_ms"] >= down):
        row["procs"] = [p for p in row["procs"] if row["unix_ms"] >= up or p["pid"] not in server]
        for p in row["procs"]:
            p["pid"], p["ppid"] = other(p["pid"]), other(p["ppid"])
            p["top"] = [[ticks, other(tid), name] for ticks, tid, name in p["top"]]
    for row in (row for row in gpu if row["unix_ms"] >= down and "procs" in row):
        there = lambda pid: row["unix_ms"] >= up or pid not in server
        row["procs"] = [[other(pid), size] for pid, size in row["procs"] if there(pid)]
        row["proc_util"] = [share | {"pid": other(share["pid"])} for share in row.get("proc_util", ()) if there(share["pid"])]


def main(folder, out, *moments):
    captured = slim(*(read(folder, name) for name in FILES))
    crash(*captured, tuple(map(int, moments)) or MOMENTS_S)
    for name, rows in zip(FILES, captured):
        write(out, name, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
