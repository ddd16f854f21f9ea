"""What a snapshot should say of the machine and its processes."""

import re

from captured import Window, newest, rate, rows

HOST_VALID_MS = 3500
SAME_MOMENT_MS = 500


class Proc:
    def __init__(self, folder):
        self.rows = rows(folder, "proc")
        self.times = [row["unix_ms"] for row in self.rows]

    def pairs(self, window):
        return [(a, b) for a, b in zip(self.rows, self.rows[1:]) if window.holds(b["unix_ms"])]

    def rate(self, window, of):
        return rate((a["unix_ms"], of(a), b["unix_ms"], of(b)) for a, b in self.pairs(window))

    def measured(self, window, of):
        known = [(a, b) for a, b in self.pairs(window) if of(a) is not None and of(b) is not None]
        return sum(b["unix_ms"] - a["unix_ms"] for a, b in known) / 1000.0

    def level(self, at, of):
        i = newest(self.times, at)
        return None if i is None or at - self.times[i] > HOST_VALID_MS else of(self.rows[i])

    def server(self, at):
        """Process ids of the server as they were last seen by then; both are read in the same moment."""
        pids = [server(row["procs"]) for row in self.rows if row["unix_ms"] <= at + SAME_MOMENT_MS]
        return next((found for found in reversed(pids) if found), set())


def server(procs):
    first = next((p for p in procs if "vllm.entrypoints" in p["cmd"] or "vllm serve" in p["cmd"]), None)
    pids = {first["pid"]} if first else set()
    for _ in procs:
        pids |= {p["pid"] for p in procs if p.get("ppid", first and first["pid"]) in pids}
    return pids


def stalled(of):
    def total(row):
        found = re.search(r"^some .*total=(\d+)", row.get("pressure", {}).get(of, ""), re.M)
        return float(found.group(1)) if found else None

    return total


def kib(row, name):
    text = row.get("mem", {}).get(name)
    return float(text.split()[0]) * 1024 if text else None


def less(row, all_of, free):
    a, b = kib(row, all_of), kib(row, free)
    return None if None in (a, b) else max(a - b, 0.0)


def host(proc, window, put):
    for key, unit, of in (
        ("pgmajfault_per_s", 1.0, lambda row: row["vmstat"].get("pgmajfault")),
        ("tcp_retrans_per_s", 1.0, lambda row: row.get("tcp_retrans")),
        ("psi_mem_some_pct", 1e-4, stalled("memory")),
        ("psi_cpu_some_pct", 1e-4, stalled("cpu")),
        ("psi_io_some_pct", 1e-4, stalled("io")),
    ):
        value = proc.rate(window, of)
        put(key, None if value is None else value * unit)
        put("measured_s/" + key, proc.measured(window, of))
    shares = [(a, b, busy_share(a, b)) for a, b in proc.pairs(window)]
    known = [(a["unix_ms"], b["unix_ms"], share) for a, b, share in shares if share is not None]
    mean = sum(share for _, _, share in known) / len(known) if known else None
    ms = sum(b - max(a, b - HOST_VALID_MS, window.start) for a, b, _ in known)
    if not shares:
        # Nothing was read in a short window: the newest reading still holds.
        before = proc.pairs(Window(window.end, HOST_VALID_MS + 1))
        mean = busy_share(*before[-1]) if before else None
        ms = window.ms if mean is not None else 0
    put("cpu_busy_pct", mean)
    put("measured_s/cpu_busy_pct", ms / 1000.0)
    put("mem_total_bytes", proc.level(window.end, lambda row: kib(row, "MemTotal")), whole=True)
    put("mem_used_bytes", proc.level(window.end, lambda row: less(row, "MemTotal", "MemAvailable")), whole=True)
    put("swap_used_bytes", proc.level(window.end, lambda row: less(row, "SwapTotal", "SwapFree")), whole=True)


def busy_share(a, b):
    """Share of the time of all CPUs between two readings that was neither idle nor waiting for a disk, %."""
    if "stat" not in a or "stat" not in b:
        return None
    was, now = ([float(ticks) for ticks in row["stat"][0][1:9]] for row in (a, b))
    grown = [y - x for x, y in zip(was, now)]
    return 100.0 * (1 - (grown[3] + grown[4]) / sum(grown)) if sum(grown) > 0 else None


class Table:
    """The processes at a moment, and on which GPU they hold memory."""

    def __init__(self, proc, gpus, at):
        self.rows = []
        i = newest(proc.times, at)
        self.known = i is not None and at - proc.times[i] <= HOST_VALID_MS
        if not self.known:
            return
        row, before = proc.rows[i], proc.rows[i - 1] if i else None
        held = memory(gpus, row["unix_ms"])
        for p in row["procs"]:
            old = next((q for q in before["procs"] if q["pid"] == p["pid"]), None) if before else None
            on = [(index, bytes_held, share) for index, pid, bytes_held, share in held if pid == p["pid"]]
            self.rows.append((p, old, row["unix_ms"] - (before["unix_ms"] if before else 0), on))


def memory(gpus, at):
    """GPU, process, bytes and share of time of each process with device memory, as listed last: a list for each GPU."""
    out, seen = [], []
    for index, g in gpus.items():
        listed = [row for row in g.rows if "procs" in row]
        seen += [(row["unix_ms"], index, row) for row in listed]
    past = [entry for entry in sorted(seen, key=lambda entry: entry[0]) if entry[0] <= at]
    # What was read a moment after stands in where nothing had been read.
    past = past or sorted(seen, key=lambda entry: entry[0])[:1]
    newest_of = {index: row for _, index, row in past}
    # The list of the GPU that was read last comes last.
    for _, index, row in [entry for entry in past if newest_of.get(entry[1]) is entry[2]]:
        shares = {u["pid"]: u["sm"] for u in row.get("proc_util", [])}
        out += [(index, pid, size, shares.get(pid)) for pid, size in row["procs"]]
    return out


def processes(table, put):
    if not table.known:
        return put("processes", [], whole=False)
    place = 0
    for p, old, ms, on in table.rows:
        grown = lambda name: None if old is None or p[name] < old[name] else (p[name] - old[name]) * 1000.0 / ms
        ticks = lambda q: q["utime"] + q["stime"]
        cpu = None if old is None else (ticks(p) - ticks(old)) * 10 / ms * 100
        threads = []
        for i, (total, tid, name) in enumerate(sorted(p.get("top", ()), key=lambda t: t[1] != p["pid"])):
            was = next((t for t, id_, _ in old.get("top", ()) if id_ == tid), None) if old else None
            share = None if was is None or total < was else (total - was) * 10 / ms * 100
            threads.append((-1.0 if share is None else share, -i, name, share))
        busiest = max(threads)[2:] if threads else None
        for index, size, share in on or [(None, None, None)]:
            key = f"processes/{place}/"
            put(key + "pid", p["pid"], whole=True)
            put(key + "gpu", index, whole=True)
            put(key + "gpu_mem_bytes", size, whole=True)
            put(key + "gpu_share_pct", share)
            put(key + "cpu_pct", cpu)
            put(key + "majflt_per_s", grown("majflt"))
            put(key + "rss_bytes", kilobytes(p.get("VmRSS")), whole=True)
            put(key + "page_table_bytes", kilobytes(p.get("VmPTE")), whole=True)
            put(key + "busiest_thread/name", busiest[0] if busiest else None)
            put(key + "busiest_thread/cpu_pct", busiest[1] if busiest else None)
            place += 1
    put(f"processes/{place}", None)


def kilobytes(text):
    return float(text.split()[0]) * 1024 if text else None
