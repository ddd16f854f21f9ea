"""What a snapshot should say of tokens and joules: both counted over the same time."""

from captured import Window, ratio
from machine import Table

# A window without a reading of the energy counter is made this long.
LEAST_MS = 21_000


class Counter:
    """A total over time: readings in stretches within which its growth is known."""

    def __init__(self, stretches):
        self.stretches = stretches

    def cut(self, start, end):
        """Stretches of the readings whose intervals end after `start` and not after `end`."""
        for stretch in self.stretches:
            kept = [i for i in range(1, len(stretch)) if start < stretch[i][0] <= end]
            if kept:
                yield stretch[kept[0] - 1 : kept[-1] + 1]

    def near(self, moment):
        """The reading nearest to a moment: those of all GPUs are taken in one round."""
        return min((r for stretch in self.stretches for r in stretch), key=lambda r: abs(r[0] - moment))[1]

    def at(self, moment):
        """Its value between two readings."""
        for stretch in self.stretches:
            for (t0, a), (t1, b) in zip(stretch, stretch[1:]):
                if t0 <= moment <= t1:
                    return a + (b - a) * (moment - t0) / (t1 - t0)
        raise ValueError("not read there")

    def peak(self, start, end):
        """The greatest growth a second of an interval that ends in between."""
        pairs = [pair for stretch in self.cut(start, end) for pair in zip(stretch, stretch[1:])]
        return max((b - a) * 1000.0 / (t1 - t0) for (t0, a), (t1, b) in pairs)

    def newest(self, moment):
        times = [t for stretch in self.stretches for t, _ in stretch if t <= moment]
        return max(times, default=None)


def tokens_of(server, name):
    stretches, stretch, start = [], [], None
    for t, body in zip(server.times, server.bodies):
        now = body.sum("process_start_time_seconds") if body else None
        if stretch and (body is None or now != start):
            stretches.append(stretch)
            stretch = []
        if body is not None and body.gauge(name) is not None:
            stretch.append((t, body.gauge(name)))
        start = now
    return Counter(stretches + [stretch])


def joules_of(gpu):
    return Counter([[(t, mj / 1e3) for t, mj in gpu.series(None, "energy_mj")]])


def energy(server, machine, gpus, window, put):
    keys = ("tokens_per_joule", "joules_per_token", "energy")
    own = server.pids(machine, window.end)
    table = Table(machine, gpus, window.end)
    on = sorted({index for p, _, _, held in table.rows if p["pid"] in own for index, _, _ in held})
    made, powers = tokens_of(server, "generation_tokens_total"), [joules_of(gpus[index]) for index in on]
    found = joint(server, powers, window) if on else None
    if found is None:
        return [put(key, None) for key in keys]
    seconds, joules, generated, prompt = found
    plain = in_common(made, powers, window)
    # The readings nearest to each other stand in for those of one moment: what a tenth of the time may hold can be off.
    off = made.peak(window.start - LEAST_MS, window.end) * seconds / 10 / joules
    assert plain is None or abs(generated / joules - plain) <= off, (window.end, generated / joules, plain)
    others = [p for p, _, _, held in table.rows if p["pid"] not in own and any(index in on for index, _, _ in held)]
    put("energy/gpus", on)
    put("energy/basis", "shared" if others else "exclusive")
    put("energy/other_processes", len(others), whole=True)
    put("energy/window_s", seconds)
    put("energy/watts", joules / seconds)
    # What was made just before the window is not its.
    if not server.rate(window, lambda body: body.gauge("generation_tokens_total")):
        generated = 0.0
    if not server.rate(window, lambda body: body.gauge("prompt_tokens_total")):
        prompt = 0.0
    put("tokens_per_joule", generated / joules)
    put("joules_per_token", ratio(joules, generated))
    put("energy/all_tokens_per_joule", (prompt + generated) / joules)


def joint(server, counters, window):
    """Seconds, joules, generated and prompt tokens of the time over which all of them are known."""
    if server.rate(window, lambda body: body.gauge("generation_tokens_total")) is None:
        return None
    last = lambda at: min((t for t in (c.newest(at) for c in counters) if t is not None), default=None)
    end = last(window.end)
    if end is None:
        return None
    start = window.start if end > window.start else window.end - LEAST_MS
    start = last(start) or start
    generated, prompt = (tokens_of(server, name + "_tokens_total") for name in ("generation", "prompt"))
    total = [0.0, 0.0, 0.0, 0.0]
    apart = 0
    for power in counters[0].cut(start, end):
        for made in generated.cut(start, window.end):
            piece = common([t for t, _ in power], [t for t, _ in made])
            if piece is None:
                continue
            edges = [min((t for t, _ in made), key=lambda t: abs(t - at)) for at in piece]
            if edges[0] >= edges[1]:
                continue
            apart += abs(edges[0] - piece[0]) + abs(edges[1] - piece[1])
            ms = piece[1] - piece[0]
            scale = ms / (edges[1] - edges[0])
            total[0] += ms / 1000.0
            total[1] += sum(grown(counter, *piece) for counter in counters)
            total[2] += grown(generated, *edges) * scale
            total[3] += grown(prompt, *edges) * scale
    return total if total[0] and apart * 10 <= total[0] * 1000 else None


def in_common(made, powers, window):
    """Tokens per joule of the time over which all are known, with totals taken to grow evenly between two readings."""
    start, end = (min(c.newest(at) or window.start for c in powers) for at in (window.start, window.end))
    if end <= window.start:
        return None
    tokens = joules = 0.0
    for stretch in made.cut(start, window.end):
        ends = [c.stretches[0] for c in powers] + [stretch]
        first, last = max([start] + [s[0][0] for s in ends]), min([end] + [s[-1][0] for s in ends])
        if first < last:
            tokens += made.at(last) - made.at(first)
            joules += sum(c.at(last) - c.at(first) for c in powers)
    return tokens / joules if joules else None


def common(power, made):
    """The readings of energy nearest to where both are known, no farther outside than the interval of a scrape."""
    start, end = max(power[0], made[0]), min(power[-1], made[-1])
    if end <= start:
        return None
    first = [t for t in power if t >= start - (made[1] - made[0])]
    last = [t for t in power if t <= end + (made[-1] - made[-2])]
    if not first or not last:
        return None
    piece = min(first, key=lambda t: abs(t - start)), min(last, key=lambda t: abs(t - end))
    return piece if piece[1] > piece[0] else None


def grown(counter, start, end):
    return counter.near(end) - counter.near(start)
