"""What a snapshot should say of a GPU."""

import math

from captured import rate

FAST_VALID_MS = 1500
SLOW_VALID_MS = 3500
MIB = 1048576.0

FAST_MEANS = (
    ("sm_active_pct", "gpm", "sm_util", 1.0, False),
    ("sm_occupancy_pct", "gpm", "sm_occupancy", 1.0, False),
    ("tensor_active_pct", "gpm", "any_tensor_util", 1.0, False),
    ("dram_active_pct", "gpm", "dram_bw_util", 1.0, False),
    ("util_gpu_time_pct", None, "util_gpu", 1.0, False),
    ("util_mem_time_pct", None, "util_mem", 1.0, False),
    ("power_w", None, "power_mw", 1e-3, False),
    ("pcie_rx_bytes_per_s", "gpm", "pcie_rx_per_sec", MIB, True),
    ("pcie_tx_bytes_per_s", "gpm", "pcie_tx_per_sec", MIB, True),
    ("nvlink_rx_bytes_per_s", "gpm", "nvlink_total_rx_per_sec", MIB, True),
    ("nvlink_tx_bytes_per_s", "gpm", "nvlink_total_tx_per_sec", MIB, True),
)
FAST_LEVELS = (
    ("mem_used_bytes", "mem_used"),
    ("mem_total_bytes", "mem_total"),
    ("sm_clock_mhz", "sm_mhz"),
    ("mem_clock_mhz", "mem_mhz"),
    ("temp_c", "temp"),
)
REASONS = (
    (0x40, "hw_thermal_slowdown", None),
    (0x80, "hw_power_brake_slowdown", None),
    (0x8, "hw_slowdown", None),
    (0x20, "sw_thermal_slowdown", "viol_thermal_ns"),
    (0x4, "sw_power_cap", "viol_power_ns"),
    (0x10, "sync_boost", None),
    (0x2, "applications_clocks_setting", None),
    (0x100, "display_clock_setting", None),
    (0x1, "gpu_idle", None),
)


class Gpu:
    def __init__(self, table):
        self.rows = table
        self.times = [row["unix_ms"] for row in table]

    def series(self, group, name):
        """Readings with their time; None where the driver gave none."""
        for row in self.rows:
            found = row.get(group, {}) if group else row
            if name in found:
                yield row["unix_ms"], found[name]

    def mean(self, window, group, name):
        values = [v for t, v in self.series(group, name) if window.holds(t) and v is not None]
        return sum(values) / len(values) if values else None

    def measured(self, window, group, name):
        """Seconds that readings stand for: each for the time since the one before."""
        readings = list(self.series(group, name))
        ms, held = 0, None
        for (before, _), (t, value) in zip(readings, readings[1:]):
            if window.holds(t) and value is not None:
                ms += t - max(before, t - FAST_VALID_MS, window.start)
        for t, value in readings:
            held = (t, value) if t <= window.end else held
        if not ms and held and held[1] is not None and window.end - held[0] <= FAST_VALID_MS:
            ms = window.ms
        return ms / 1000.0

    def grown(self, window, name):
        """Seconds between readings of a counter."""
        times = [t for t, _ in self.series(None, name)]
        return sum(b - a for a, b in zip(times, times[1:]) if window.holds(b)) / 1000.0

    def level(self, at, name, valid):
        found = [(t, v) for t, v in self.series(None, name) if t <= at]
        return found[-1][1] if found and at - found[-1][0] <= valid else None

    def rate(self, window, name):
        found = [(t, v) for t, v in self.series(None, name)]
        return rate((a[0], a[1], b[0], b[1]) for a, b in zip(found, found[1:]) if window.holds(b[0]))

    def pieces(self, window, group, name):
        """Means of the window's pieces of 250 ms; a reading stands for the time since the one before."""
        n = window.ms // 250
        width = window.ms / n if n else 0
        sums, weights, alone = [0.0] * n, [0.0] * n, {}
        before = None
        for t, value in self.series(group, name):
            reach = 0 if before is None else min(t - before, FAST_VALID_MS)
            before = t
            if value is None or t > window.end or t <= window.start:
                continue
            left = max((t - reach - window.start) / width, 0.0)
            right = (t - window.start) / width
            if left == right:
                # The very first reading speaks for its piece where nothing else does.
                alone[math.ceil(right) - 1] = value
            for i in range(int(left), min(math.ceil(right), n)):
                part = min(right, i + 1) - max(left, i)
                sums[i] += value * part
                weights[i] += part
        return [s / w if w > 0 else alone.get(i) for i, (s, w) in enumerate(zip(sums, weights))]


def gpu(g, window, put):
    for key, group, name, unit, whole in FAST_MEANS:
        value = g.mean(window, group, name)
        put(key, None if value is None else value * unit, whole=whole)
        put("measured_s/" + key, g.measured(window, group, name))
    for key, name in FAST_LEVELS:
        put(key, g.level(window.end, name, FAST_VALID_MS), whole=True)
    put("mem_temp_c", g.level(window.end, "mem_temp", SLOW_VALID_MS), whole=True)
    energy = g.rate(window, "energy_mj")
    put("energy_w", None if energy is None else energy / 1e3)
    put("measured_s/energy_w", g.grown(window, "energy_mj"))
    put("measured_s/throttled_ms_per_s", max(g.grown(window, name) for _, _, name in REASONS if name))
    held = {name: g.rate(window, name) for _, _, name in REASONS if name}
    held = {name: None if ns is None else min(max(ns / 1e6, 0.0), 1000.0) for name, ns in held.items()}
    known = [ms for ms in held.values() if ms is not None]
    put("throttled_ms_per_s", max(known) if known else None)
    bits = g.level(window.end, "event_reasons", FAST_VALID_MS)
    names = [
        name
        for bit, name, counter in REASONS
        if (bits or 0) & bit or (counter and held[counter] is not None and held[counter] >= 1.0)
    ]
    put("throttle_reasons", names if known or bits is not None else None)
    busy(g, window, put)


def busy(g, window, put):
    busy = [None if x is None else x >= 2.0 for x in g.pieces(window, "gpm", "sm_util")]
    if all(x is None for x in busy):
        busy = [None if x is None else x >= 5.0 for x in g.pieces(window, None, "util_gpu")]
    known = [x for x in busy if x is not None]
    put("busy/share_pct", 100.0 * sum(known) / len(known) if known else None)
    put("measured_s/busy", len(known) * 0.25)
    for key, group, name, unit in (
        ("sm_active_pct", "gpm", "sm_util", 1.0),
        ("tensor_active_pct", "gpm", "any_tensor_util", 1.0),
        ("dram_active_pct", "gpm", "dram_bw_util", 1.0),
        ("sm_clock_mhz", None, "sm_mhz", 1.0),
        ("power_w", None, "power_mw", 1e-3),
    ):
        values = [x for x, is_busy in zip(g.pieces(window, group, name), busy) if is_busy and x is not None]
        put("busy/" + key, unit * sum(values) / len(values) if values else None, whole=key == "sm_clock_mhz")
