#!/usr/bin/env python3
"""CPU time and memory of warptop and of other monitors, each alone on a terminal, in turns.

    measure.py WARPTOP OUT [--seconds 20] [--rounds 3] [--arguments "--engine URL"]

Each program runs with its own defaults on a pseudo-terminal of 140x45 whose output is read. After `--settle` seconds its
CPU time and that of its children is taken over `--seconds`, and its memory at their end; `--rounds` of all of them
alternate, so that what else the machine does hits them alike. Writes OUT/cost.json and OUT/cost.md: medians, and each
program's ratio to warptop.

CPU time is user and system time of /proc/PID/stat, as a share of one core. Memory is RSS, which counts NVIDIA's
libraries in full for each of them, and its anonymous part, which nobody shares.
"""
import argparse, fcntl, json, os, pathlib, shutil, signal, statistics, struct, subprocess, sys, tempfile, termios, threading, time

TICKS = os.sysconf("SC_CLK_TCK")


def programs(warptop, arguments):
    """Name, command and every how many seconds it reads the GPU and draws by default (from its manual or help)."""
    return [
        ("warptop", [warptop, *arguments], "GPU 4 a second, engine 1, frames as needed"),
        ("warptop record", [warptop, "record", "-o", "/dev/null", *arguments], "GPU 4 a second, engine 1, no screen"),
        ("nvtop", ["nvtop"], "1 s"),
        ("nvitop", [sys.executable, "-m", "nvitop"], "1 s"),
        ("btop", ["btop", "--utf-force"], "2 s, no GPU before version 1.3"),
        ("nvidia-smi dmon", ["nvidia-smi", "dmon", "-s", "pucvmet"], "1 s, no screen"),
    ]


def available(command):
    if command[:2] == [sys.executable, "-m"]:
        return subprocess.run([sys.executable, "-c", f"import {command[2]}"], capture_output=True).returncode == 0
    return shutil.which(str(command[0])) is not None


def tree(pid):
    """The process and its descendants."""
    found, parents = [pid], {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    for one in found:
        found.extend(parents.get(one, []))
    return found


def usage(pid):
    """CPU time in seconds, children that were waited for included, and RSS and anonymous memory in KiB."""
    cpu = rss = anonymous = 0
    for one in tree(pid):
        proc = pathlib.Path(f"/proc/{one}")
        try:
            fields = (proc / "stat").read_text().rsplit(")", 1)[1].split()
            cpu += sum(int(field) for field in fields[11:15]) / TICKS
            for line in (proc / "status").read_text().splitlines():
                key, _, value = line.partition(":")
                if key == "VmRSS":
                    rss += int(value.split()[0])
                if key == "RssAnon":
                    anonymous += int(value.split()[0])
        except OSError:
            continue
    return cpu, rss, anonymous


def threads(pid):
    """CPU time of each thread so far, s, by name; threads of one name together."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name, fields = (task / "comm").read_text().strip(), (task / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        found[name] = found.get(name, 0) + (int(fields[11]) + int(fields[12])) / TICKS
    return found


def drain(master, count):
    try:
        while chunk := os.read(master, 65536):
            count[0] += len(chunk)
    except OSError:
        pass


def measure(command, env, settle, seconds):
    """One turn of one program; None where it did not live through it."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 140, 0, 0))
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    drawn = [0]
    threading.Thread(target=drain, args=(master, drawn), daemon=True).start()
    time.sleep(settle)
    cpu, _, _ = usage(process.pid)
    split = threads(process.pid)
    before, began = drawn[0], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    after, rss, anonymous = usage(process.pid)
    alive = process.poll() is None
    split = {name: 100 * (now - split.get(name, 0)) / took for name, now in threads(process.pid).items()} if alive else {}
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(5)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
    os.close(master)
    if not alive:
        return None
    return {"core_pct": 100 * (after - cpu) / took, "rss_mb": rss / 1024, "anonymous_mb": anonymous / 1024,
            "drawn_bytes_per_s": (drawn[0] - before) / took, "threads_pct": split}


def told(command):
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return (answer.stdout or answer.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return ""


def table(rows):
    own = next((row for row in rows if row["name"] == "warptop"), None)
    lines = ["| program | reads and draws every | CPU, % of a core | to warptop | RSS, MB | anonymous, MB | to the terminal, kB/s |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        if "core_pct" not in row:
            lines.append(f"| {row['name']} | {row['pace']} | {row['left_out']} | | | | |")
            continue
        ratio = f"{row['core_pct'] / own['core_pct']:.2f}" if own and own.get("core_pct") else ""
        lines.append(f"| {row['name']} {row['version']} | {row['pace']} | {row['core_pct']:.2f} ({row['core_min']:.2f} to {row['core_max']:.2f}) "
                     f"| {ratio} | {row['rss_mb']:.1f} | {row['anonymous_mb']:.1f} | {row['drawn_bytes_per_s'] / 1000:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("warptop")
    ask.add_argument("out", type=pathlib.Path)
    ask.add_argument("--settle", type=float, default=6)
    ask.add_argument("--seconds", type=float, default=20)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--arguments", default="", help="more words for warptop")
    given = ask.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        env = dict(os.environ, TERM="xterm-256color", LANG="C.UTF-8", HOME=home, XDG_STATE_HOME=home, XDG_CONFIG_HOME=home)
        chosen = [(name, command, pace, available(command)) for name, command, pace in programs(given.warptop, given.arguments.split())]
        turns = {name: [] for name, *_ in chosen}
        for _ in range(given.rounds):
            for name, command, _, there in chosen:
                turn = measure(command, env, given.settle, given.seconds) if there else None
                if turn is not None:
                    turns[name].append(turn)
                    print(f"{name:16} {turn['core_pct']:6.2f} % {turn['rss_mb']:7.1f} MB", flush=True)
    rows = []
    for name, command, pace, there in chosen:
        row = {"name": name, "pace": pace, "turns": turns[name]}
        if turns[name]:
            values = {key: [turn[key] for turn in turns[name]] for key in turns[name][0] if key != "threads_pct"}
            row |= {key: statistics.median(value) for key, value in values.items()}
            row |= {"core_min": min(values["core_pct"]), "core_max": max(values["core_pct"])}
            words = [sys.executable, "-m", "nvitop"] if name == "nvitop" else command[:1]
            row["version"] = told([*words, "--version"]).replace(name, "").replace("version", "").strip(" :")[:24]
        else:
            row["left_out"] = "did not run" if there else "not installed"
        rows.append(row)
    gpu = told(["nvidia-smi", "--query-gpu=name,driver_version,utilization.gpu", "--format=csv,noheader"])
    result = {"gpu": gpu, "kernel": " ".join(os.uname()), "cores": os.cpu_count(), "seconds": given.seconds, "rounds": given.rounds, "programs": rows}
    (given.out / "cost.json").write_text(json.dumps(result, indent=1) + "\n")
    (given.out / "cost.md").write_text(table(rows))
    print(table(rows))
    return 0 if turns["warptop"] else 1


if __name__ == "__main__":
    sys.exit(main())
