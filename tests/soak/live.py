#!/usr/bin/env python3
"""Watches warptop for a real hour: its memory and CPU, once a minute, as CSV.

    cargo build --release
    tests/soak/live.py --minutes 60 --out soak.csv

Two of them run on pseudo-terminals, beside a driver with 8 GPUs (tests/fake-nvml/fake.c) and 4 engines that are replayed
from a scrape of vLLM: `fast` at --interval 100ms, `default` at the defaults. Engine N starts again every 10 + N minutes,
with its counters at 0. Needs python3, cc, and nothing else; nothing is read from the network but these engines. Says at
the end, and by its exit status, whether both were still there, drew, and left when told to.

How long the same takes in simulated time, and whether what is kept is right, is the business of tests/soak.rs.
"""
import argparse, csv, fcntl, os, pathlib, re, signal, struct, subprocess, sys, tempfile, termios, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRAPE = ROOT / "assets/metrics/vllm-0.25.1-overload.prom"
COUNTER = re.compile(r"^(\S+_(?:total|bucket|count|sum)(?:\{.*\})?) (\S+)$")
TICKS = os.sysconf("SC_CLK_TCK")


class Engine:
    """Serves the scrape with its counters growing as if it had taken 100 s to get there."""

    def __init__(self, number):
        self.again = 600 + 60 * number
        self.lines = [(COUNTER.match(line), line) for line in SCRAPE.read_text().splitlines()]
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                found = self.path == "/metrics"
                body = engine.body() if found else b"{}"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "text/plain" if found else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self):
        return "http://127.0.0.1:%d" % self.server.server_address[1]

    def body(self):
        # The same moment is the same factor for every line, so that buckets, counts and sums stay consistent.
        factor = (time.monotonic() % self.again) / 100
        def line(match, text):
            return text if match is None else "%s %r" % (match[1], int(float(match[2]) * factor))
        return ("\n".join(line(*pair) for pair in self.lines) + "\n").encode()


class Warptop:
    """One warptop on a pseudo-terminal whose output is read and counted."""

    def __init__(self, name, command, env, folder):
        self.name, self.drawn, self.cpu = name, 0, 0
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
        self.errors = folder / (name + ".stderr")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=errors, env=env, start_new_session=True)
        os.close(slave)
        self.master = master
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while chunk := os.read(self.master, 65536):
                self.drawn += len(chunk)
        except OSError:
            pass

    def sample(self, second):
        proc = pathlib.Path("/proc/%d" % self.process.pid)
        try:
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
            fields = (proc / "stat").read_text().rsplit(")", 1)[1].split()
            cpu = (int(fields[11]) + int(fields[12])) * 1000 // TICKS
            row = [second, self.name, *(int(status[k].split()[0]) for k in ("VmRSS", "RssAnon", "Threads")),
                   len(list((proc / "fd").iterdir())), cpu - self.cpu, self.drawn]
        except (OSError, KeyError):
            return None
        self.cpu, self.drawn = cpu, 0
        return row

    def leave(self):
        """Presses q; the exit status, or None where it did not leave within 10 s."""
        os.write(self.master, b"q")
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            return None


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--minutes", type=float, default=60, help="how long (60)")
    ask.add_argument("--every", type=float, default=60, help="seconds between two samples (60)")
    ask.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/warptop")
    ask.add_argument("--gpus", type=int, default=8)
    ask.add_argument("--engines", type=int, default=4)
    ask.add_argument("--out", type=pathlib.Path, default=pathlib.Path("soak.csv"))
    given = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # Linked with `cc` as a test does, but without the layout of the Rust bindings, which only a test can ask for.
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", ROOT / "tests/fake-nvml/fake.c",
                        "-DCONTROL=\"%s\"" % folder, "-DGPUS=%d" % given.gpus], check=True)
        engines = [Engine(number) for number in range(given.engines)]
        env = dict(os.environ, LD_LIBRARY_PATH=str(folder), TERM="xterm-256color", XDG_STATE_HOME=str(folder))
        common = [given.binary, "--no-discover"] + [word for engine in engines for word in ("--engine", engine.url())]
        runs = [Warptop("fast", common + ["--interval", "100ms"], env, folder), Warptop("default", common, env, folder)]
        began, silent = time.monotonic(), []
        with given.out.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow("second name rss_kb anon_kb threads files cpu_ms drawn_bytes".split())
            for n in range(1, int(given.minutes * 60 / given.every) + 1):
                time.sleep(max(0, began + n * given.every - time.monotonic()))
                for run in runs:
                    row = run.sample(round(time.monotonic() - began))
                    if row is None or row[-1] == 0:
                        silent.append("%s at minute %.0f" % (run.name, n * given.every / 60))
                    if row is not None:
                        table.writerow(row)
                file.flush()
        ends = {run.name: run.leave() for run in runs}
        for run in runs:
            sys.stderr.write(run.errors.read_text(errors="replace")[-2000:])
        print("exit status", ends, "; drew nothing:", silent or "never", "; figures in", given.out)
        return 0 if not silent and set(ends.values()) == {0} else 1


if __name__ == "__main__":
    sys.exit(main())
