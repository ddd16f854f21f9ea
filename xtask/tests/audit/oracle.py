"""What `warptop snapshot` should say, worked out from captured files alone.

    oracle.py DIR MOMENTS      prints a JSON list: moment, window and {JSON pointer: value} for each

Nothing of warptop is used: bodies of /metrics, rows of NVML and of /proc are read here, and every figure is written out
as docs/snapshot.md defines it. Levels are the newest reading, while it is valid; rates and quantiles rest on the
intervals between two readings of one life of the server that end in the window; means are of the readings in it.
`null` means that there is no figure.
"""

import json
import sys

from captured import Engine, Window, rows
from energy import energy
from engine import engine
from gpus import Gpu, gpu
from machine import Proc, Table, host, processes


def moments(first, last, count, turns):
    """Evenly spread, at odd distances to the readings; and around each turn of the server's life."""
    windows = (700, 2_000, 5_000, 10_000, 30_000, 60_000)
    step = (last - first - 2_000) / count
    for k in range(count):
        yield int(first + 2_000 + (k + 1) * step - 137 * (k % 7)), windows[k % len(windows)]
    for at in turns:
        for k, after in enumerate((-1, 0, 500, 1_000, 2_700, 6_000)):
            yield at + after, windows[(k + 1) % len(windows)]


class Figures(dict):
    """Figures of one moment by JSON pointer, each with how it is compared."""

    def below(self, prefix):
        def put(key, value, whole=False, inside=False):
            self[prefix + key] = "whole" if whole else "inside" if inside else "value", value

        return put


def main(folder, count):
    server, machine = Engine(folder), Proc(folder)
    table = rows(folder, "gpu")
    indices = sorted({row.get("gpu", 0) for row in table})
    gpus = {index: Gpu([row for row in table if row.get("gpu", 0) == index]) for index in indices}
    times = server.times + machine.times + [row["unix_ms"] for row in table]
    out = []
    for at, ms in moments(min(times), max(times), count, server.turns()):
        window, want = Window(at, ms), Figures()
        engine(server, window, want.below("/engines/0/"))
        energy(server, machine, gpus, window, want.below("/engines/0/"))
        for place, index in enumerate(indices):
            gpu(gpus[index], window, want.below(f"/gpus/{place}/"))
        host(machine, window, want.below("/host/"))
        processes(Table(machine, gpus, at), want.below("/"))
        out.append({"at": at, "window_ms": ms, "want": want})
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
