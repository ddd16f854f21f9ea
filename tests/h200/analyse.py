#!/usr/bin/env python3
"""Prints the tables of docs/h200.md from what round.sh left in a folder: analyse.py OUT"""
import glob, gzip, json, os, re, statistics, sys, time

out = sys.argv[1]
path = lambda name: os.path.join(out, name)


def lines(name):
    opener = gzip.open if name.endswith(".gz") else open
    with opener(path(name), "rt") as file:
        return [json.loads(line) for line in file]


def phases(name):
    return [row for row in lines(name) if "end_ms" in row]


def mean(values):
    values = [v for v in values if isinstance(v, (int, float))]
    return (statistics.mean(values), len(values)) if values else (float("nan"), 0)


def dmon():
    """(unix ms, {column: value}) of each row; `nvidia-smi dmon` names its columns in a comment line."""
    names, rows = [], []
    for line in open(path("dmon.txt")):
        words = line.replace("#", " ").split()
        if line.startswith("#"):
            if "gpu" in words:
                names = words
            continue
        if len(words) < len(names) or not words:
            continue
        row = dict(zip(names, words))
        stamp = next(v for k, v in row.items() if k.lower() == "date") + " " + next(v for k, v in row.items() if k.lower() == "time")
        at = time.mktime(time.strptime(stamp, "%Y%m%d %H:%M:%S")) * 1000
        rows.append((at, {k: float(v) for k, v in row.items() if re.fullmatch(r"-?[\d.]+", v)}))
    return names, rows


def second_opinion():
    names, rows = dmon()
    print("dmon columns:", names)
    mine = []
    for batch in lines("run.jsonl.gz")[1:]:
        gpu = batch.get("s", {}).get("gpu0", {})
        if "sm_active_pct" in gpu:
            mine.append((batch["t"], gpu))
    # The four GPM columns come last, in the order asked for: SM, occupancy, any tensor, DRAM.
    columns = list(zip(names[-4:], ["sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct"]))
    print("| phase | metric | warptop (n) | dmon (n) | difference |\n| --- | --- | --- | --- | --- |")
    for phase in phases("requests.jsonl"):
        a, b = phase["start_ms"] + 3000, phase["end_ms"] - 1000
        for theirs, ours in columns:
            m, n = mean(g.get(ours) for t, g in mine if a < t <= b)
            d, k = mean(r.get(theirs) for t, r in rows if a < t <= b)
            print(f"| {phase['phase']} | {ours} | {m:.1f} ({n}) | {d:.1f} ({k}) | {m - d:+.1f} |")


def watching():
    print("\n| monitor | median ITL ms | P99 ITL ms | tokens/s | CPU % of a core | RSS MB |\n| --- | --- | --- | --- | --- | --- |")
    base = {}
    for kind in ("none", "default", "fast"):
        files = sorted(glob.glob(path(f"watch-{kind}[0-9].jsonl")))
        runs = [phases(os.path.basename(f))[0] for f in files]
        costs = [json.load(open(f)) for f in sorted(glob.glob(path(f"cost-{kind}[0-9].json"))) if os.path.getsize(f)]
        row = {k: statistics.mean(r[k] for r in runs) for k in ("itl_p50_ms", "itl_p99_ms", "tok_s")}
        base = base or row
        cpu = f"{mean(c['cpu_pct'] for c in costs)[0]:.2f}" if costs else ""
        rss = f"{max(c['rss_mb'] for c in costs):.1f}" if costs else ""
        change = lambda k: f"{row[k]:.3f} ({(row[k] / base[k] - 1) * 100:+.2f} %)"
        print(f"| {kind} | {change('itl_p50_ms')} | {row['itl_p99_ms']:.2f} | {change('tok_s')} | {cpu} | {rss} |")
        print("  runs:", ", ".join(f"{r['itl_p50_ms']:.3f} ms {r['tok_s']:.0f}/s" for r in runs), file=sys.stderr)
    record = path("cost-record.json")
    if os.path.exists(record) and os.path.getsize(record):
        print("record:", open(record).read().strip())


second_opinion()
watching()
print("\nrecording:", os.path.getsize(path("run.jsonl.gz")), "bytes;", open(path("record.err")).read().strip())
