"""Captured files of a server: its answers, its start-up log, and what grew between two answers."""

import gzip
import json
import math
import os
import re
from bisect import bisect_right
from collections import defaultdict

ENGINE_VALID_MS = 3500
ENOUGH = ((0.99, 368), (0.95, 72), (0.5, 6))


def rows(folder, name):
    path = os.path.join(folder, name + ".jsonl.gz")
    if not os.path.exists(path):
        return []
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


GENERATE = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")
LINE = re.compile(r"^([^{\s]+)(?:\{(.*)\})?\s+(\S+)$")
LABEL = re.compile(r'([^=,]+)="((?:[^"\\]|\\.)*)"')


class Body:
    """One answer of /metrics."""

    def __init__(self, text):
        self.samples = defaultdict(list)
        for line in text.split("\n"):
            found = None if line.startswith("#") else LINE.match(line)
            if found:
                name, labels, value = found.groups()
                self.samples[name].append((dict(LABEL.findall(labels or "")), float(value)))

    def sum(self, name, **only):
        values = [v for labels, v in self.samples.get(name, ()) if all(labels.get(k) == w for k, w in only.items())]
        return sum(values) if values else None

    def gauge(self, name, **only):
        return self.sum("vllm:" + name, **only)

    def histogram(self, name):
        """Edges, counts of the buckets up to each, and the sum."""
        found = self.samples.get("vllm:" + name + "_bucket")
        if not found:
            return None
        buckets = defaultdict(float)
        for labels, value in found:
            buckets[float(labels["le"])] += value
        edges = sorted(buckets)
        return edges, [buckets[edge] for edge in edges], self.gauge(name + "_sum")

    def failed(self):
        """Refused or failed: as the engine counts them, or as its API server answered, whichever is more."""
        own = [self.gauge("admission_rejections_total"), self.gauge("request_success_total", finished_reason="error")]
        answers = self.samples.get("http_requests_total")
        if answers:
            bad = [v for l, v in answers if l.get("method") == "POST" and l.get("status", "").startswith("5")]
            own = [sum(x for x in own if x is not None), sum(bad)] if any(x is not None for x in own) else [sum(bad)]
            return max(own)
        own = [x for x in own if x is not None]
        return sum(own) if own else None

    def api_server(self):
        """Requests to generate text that the API server answered, and its seconds for them; none before the first."""
        found = []
        for part in ("count", "sum"):
            samples = self.samples.get("http_request_duration_seconds_" + part, ())
            found.append(sum(v for l, v in samples if l.get("method") == "POST" and l.get("handler") in GENERATE))
        return found if found[0] > 0 else (None, None)

    def pool(self):
        """Tokens that the KV memory holds, and the size of a block."""
        for labels, _ in self.samples.get("vllm:cache_config_info", ()):
            block = number(labels.get("block_size"))
            tokens = number(labels.get("kv_cache_size_tokens"))
            if tokens is None and block is not None and number(labels.get("num_gpu_blocks")) is not None:
                tokens = (number(labels["num_gpu_blocks"]) - 1) * block
            return tokens, block
        return None, None


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def ratio(a, b):
    return None if None in (a, b) or b <= 0 else a / b


class Log:
    """What the start-up log says that the metrics do not."""

    def __init__(self, folder):
        text = ""
        for name in ("vllm-start.log", "vllm.log"):
            if not text and os.path.exists(os.path.join(folder, name)):
                with open(os.path.join(folder, name)) as file:
                    text = file.read()

        def after(mark):
            found = re.search(re.escape(mark) + r"([^\s,)}]+)", text)
            return number(found.group(1)) if found else None

        self.max_model_len, self.max_num_seqs = after("max_seq_len="), after("'max_num_seqs': ")
        tokens = re.search(r"GPU KV cache size: ([\d,]+) tokens", text)
        gib = after("Available KV cache memory: ")
        gpus = (after("tensor_parallel_size=") or 1) * (after("pipeline_parallel_size=") or 1)
        self.bytes_per_token = None
        if tokens and gib is not None:
            self.bytes_per_token = gpus * gib * 2**30 / float(tokens.group(1).replace(",", ""))


class Window:
    def __init__(self, end, ms):
        self.end, self.start, self.ms = end, end - ms, ms

    def holds(self, at):
        return self.start < at <= self.end


def newest(times, at):
    """Index of the newest of rising times at or before `at`."""
    i = bisect_right(times, at) - 1
    return i if i >= 0 else None


def rate(intervals, key=lambda row: row):
    """Growth a second over pairs (ms, value before, ms, value after)."""
    grown = seconds = 0.0
    for t0, a, t1, b in intervals:
        if a is not None and b is not None:
            grown += b - a
            seconds += (t1 - t0) / 1000.0
    return grown / seconds if seconds else None


class Quantiles:
    """What was observed in a window, by bucket."""

    def __init__(self, edges, counts, total, seconds):
        self.edges, self.counts, self.total, self.seconds = edges, counts, total, seconds
        self.n = sum(counts)

    def mean(self):
        return self.total / self.n if self.n and self.total is not None else None

    def bounds(self, q):
        """Edges of the bucket of the observation of rank ceil(q n)."""
        if not self.n:
            return None
        rank = min(max(math.ceil(q * self.n), 1), self.n)
        below = 0
        for i, count in enumerate(self.counts):
            if below + count >= rank:
                break
            below += count
        low = self.edges[i - 1] if i else 0.0
        if math.isfinite(self.edges[i]):
            return low, self.edges[i]
        return low, self.top(rank, below, low)

    def top(self, rank, below, low):
        """The largest n - rank + 1 share what the sum leaves when all others are at their lower edges."""
        if self.total is None:
            return None
        lower = [0.0] + self.edges[:-1]
        least = sum(n * l for n, l in zip(self.counts[:-1], lower)) + (rank - 1 - below) * low
        bound = (self.total - least) / (self.n - rank + 1)
        return bound if bound >= low else None

    def highest(self):
        return next((q for q, least in ENOUGH if self.n >= least), None)

    def smallest(self):
        first = next((i for i, count in enumerate(self.counts) if count), 0)
        return self.edges[first - 1] if first else 0.0


class Engine:
    def __init__(self, folder):
        self.rows = rows(folder, "metrics")
        self.times = [row["unix_ms"] for row in self.rows]
        self.bodies = [Body(row["body"]) if row.get("body") else None for row in self.rows]
        self.log = Log(folder)

    def turns(self):
        """When it stopped answering, and when it answered again."""
        alive = [body is not None for body in self.bodies]
        return [t for t, was, now in zip(self.times[1:], alive, alive[1:]) if was != now]

    def level(self, at, of):
        i = newest(self.times, at)
        if i is None or self.bodies[i] is None or at - self.times[i] > ENGINE_VALID_MS:
            return None
        return of(self.bodies[i])

    def pairs(self, window):
        """Indices of scrapes next to each other, of one process, of which the second lies in the window."""
        for i in range(1, len(self.rows)):
            a, b = self.bodies[i - 1], self.bodies[i]
            if window.holds(self.times[i]) and a and b:
                if a.sum("process_start_time_seconds") == b.sum("process_start_time_seconds"):
                    yield i - 1, i

    def intervals(self, window, of):
        for a, b in self.pairs(window):
            yield self.times[a], of(self.bodies[a]), self.times[b], of(self.bodies[b])

    def rate(self, window, of):
        return rate(self.intervals(window, of))

    def measured(self, window, of):
        """Seconds between scrapes of which the growth is known."""
        known = [t1 - t0 for t0, a, t1, b in self.intervals(window, of) if a is not None and b is not None]
        return sum(known) / 1000.0

    def restarts(self, window):
        """When another process answered for the first time."""
        read = [i for i, body in enumerate(self.bodies) if body]
        start = lambda i: self.bodies[i].sum("process_start_time_seconds")
        changed = [self.times[b] for a, b in zip(read, read[1:]) if start(a) != start(b)]
        return [t for t in changed if window.holds(t)]

    def lives(self, window, name):
        """The newest life's requests where they are enough for a P99, else those of all; restarts between them."""
        whole, restarts = self.quantiles(window, name), self.restarts(window)
        if not restarts or not whole:
            return whole, 0, False
        newest = self.quantiles(Window(window.end, window.end - restarts[-1]), name)
        if newest and 368 <= newest.n < whole.n:
            return newest, 0, True
        before = [self.quantiles(Window(t, t - window.start), name) for t in restarts]
        return whole, sum(1 for b in before if b and 0 < b.n < whole.n), False

    def quantiles(self, window, name):
        edges, counts, total, seconds = None, None, 0.0, None
        for t0, a, t1, b in self.intervals(window, lambda body: body.histogram(name)):
            if a is None or b is None:
                continue
            edges = b[0]
            grown = [new - old for new, old in zip(b[1], a[1])]
            inside = [g - below for g, below in zip(grown, [0.0] + grown)]
            counts = [x + y for x, y in zip(counts, inside)] if counts else inside
            total += b[2] - a[2]
            seconds = (seconds or 0.0) + (t1 - t0) / 1000.0
        return Quantiles(edges, counts, total, seconds) if counts else None

    def peak(self, window, of):
        best = None
        for t, body in zip(self.times, self.bodies):
            if window.holds(t) and body:
                value = of(body)
                if value is not None and (best is None or value > best[0]):
                    best = value, t
        return best or (None, None)

    def pids(self, machine, at):
        """Its processes, as the newest answer by then was of."""
        read = [t for t, body in zip(self.times, self.bodies) if body and t <= at]
        return machine.server(read[-1]) if read else set()

    def state(self, at):
        i = newest(self.times, at)
        return "unreachable" if i is None or self.bodies[i] is None else "ok"
