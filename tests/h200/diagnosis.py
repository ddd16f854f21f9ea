#!/usr/bin/env python3
"""Injects causes of slowness into servers one after another while warptop records, and writes down what was done when.

    diagnosis.py run WARPTOP WORK [--budget 1400] [--only main,kv] [--weights FOLDER] [--serve COMMAND] [--url …] [--model …]
    diagnosis.py collect WORK OUT SECONDS        # waits so long at most, then packs what has been finished since the last time

The plan is diagnosis_plan.py. WORK/SERVER gets: warptop.jsonl.gz (`warptop record` at its defaults from the moment the server
is healthy), labels.json (a phase each: name, cause, first, within, calm, from_ms, to_ms, note, client), requests.jsonl.gz (client
truth), server.json (options, start-up time, what was skipped and why, the fix applied and what warptop said), live/ (snapshot, check
and both screens shortly before each phase's end), cost.json, dmon.txt, server.log. `run` outlives the call that starts it when it is
started with setsid.
"""
import argparse, array, gzip, json, math, os, shlex, shutil, signal, socket, subprocess, sys, tarfile, tempfile, threading, time, urllib.request

from diagnosis_plan import SERVERS

HERE = os.path.dirname(os.path.abspath(__file__))
VLLM = "python3 -m vllm.entrypoints.openai.api_server --model {weights} --served-model-name {model} --load-format dummy --host 127.0.0.1 --port {port}"
SCREENS = {"large": (140, 45), "small": (80, 24)}
# With the start of the clients a phase begins 5 s after the last answer of the one before.
PAUSE, SETTLE, WORKERS = 3.5, 2.0, 4


class Skip(Exception):
    """This machine cannot do it; the reason."""


def quantile(values, q):
    """Nearest rank: a value that was measured."""
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(q * len(ordered)) - 1)], 2) if ordered else None


def client_view(rows, gaps, start, end):
    """What clients saw of start..end (Unix s). A request cut or still silent counts with the time it had waited by then: a lower bound."""
    sent = [row for row in rows if start <= row["start_ms"] / 1000 < end and not row["err"]]
    # An event may carry several tokens.
    chunks, tokens = sum(row["chunks"] for row in sent), sum(row["tokens"] for row in sent if row["e2e_ms"] and not row["cut"])
    whole = sum(row["chunks"] for row in sent if not row["cut"])
    firsts = [row["ttft_ms"] if row["ttft_ms"] is not None else row["e2e_ms"] for row in sent]
    itl = [gap for at, gap in gaps if start <= at < end]
    came = sum(1 for row in rows if row["ttft_ms"] is not None and start <= (row["start_ms"] + row["ttft_ms"]) / 1000 < end)
    out = dict(requests=len(sent), errors=sum(1 for row in rows if row["err"]), cut=sum(row["cut"] for row in sent),
               tok_s=round((len(itl) + came) * (tokens / whole if whole else 1) / (end - start), 1), chunks=chunks)
    for name, values in (("ttft", firsts), ("itl", itl), ("e2e", [row["e2e_ms"] for row in sent if not row["cut"]])):
        out[f"{name}_p50_ms"], out[f"{name}_p99_ms"] = quantile(values, 0.5), quantile(values, 0.99)
    return out


def promised(diagnosis, flag):
    """What warptop says of a flag: its first finding that has a fix for it."""
    for rank, finding in enumerate(diagnosis or [], 1):
        for fix in finding.get("fixes") or []:
            if fix.get("flag") == flag:
                return dict(rank=rank, cause=finding.get("cause"), headline=finding.get("headline"), **fix)
    return None


def descendants(pid):
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents.setdefault(int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1]), []).append(int(entry))
        except OSError:
            pass
    found, new = [pid], [pid]
    while new:
        new = [child for one in new for child in parents.get(one, [])]
        found += new
    return found


def engine_of(pids):
    """The process that runs the model; the server itself where all is one process."""
    for pid in pids:
        with open(f"/proc/{pid}/cmdline") as file:
            if "EngineCore" in file.read():
                return pid
    return pids[0]


def signal_all(pids, what):
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass


def wait_until(moment):
    time.sleep(max(0.0, moment - time.time()))


def usage(pid):
    """CPU s used so far, and RSS in MB."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    rss = next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), rss / 1024


def cost(pids, seconds):
    before, started = {name: usage(pid)[0] for name, pid in pids.items()}, time.time()
    time.sleep(seconds)
    took = time.time() - started
    after = {name: usage(pid) for name, pid in pids.items()}
    return dict(seconds=round(took, 2), **{
        name: dict(cpu_pct=round((cpu - before[name]) / took * 100, 3), rss_mb=round(rss, 1)) for name, (cpu, rss) in after.items()})


def pin(pids):
    """All threads on the last CPU, with two busy loops there."""
    cpu, before = max(os.sched_getaffinity(0)), os.sched_getaffinity(pids[0])

    def confine(cpus):
        for pid in pids:
            for thread in os.listdir(f"/proc/{pid}/task"):
                try:
                    os.sched_setaffinity(int(thread), cpus)
                except ProcessLookupError:
                    pass

    confine({cpu})
    loops = [beside("spin", cpu=cpu) for _ in range(2)]

    def undo():
        for loop in loops:
            loop.kill()
            loop.wait()
        confine(before)
    return undo


def quota(pids):
    """All processes in a cgroup that may use 40 % of one CPU."""
    new, old = "/sys/fs/cgroup/warptop-lab", "/sys/fs/cgroup"
    try:
        if not os.path.exists(f"{old}/cgroup.controllers"):
            new, old = "/sys/fs/cgroup/cpu/warptop-lab", "/sys/fs/cgroup/cpu"
            os.makedirs(new, exist_ok=True)
            write(f"{new}/cpu.cfs_period_us", "100000")
            write(f"{new}/cpu.cfs_quota_us", "40000")
        else:
            # Processes go back to where they came from.
            old += open(f"/proc/{pids[0]}/cgroup").read().rsplit("::", 1)[1].strip().rstrip("/")
            write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
            os.makedirs(new, exist_ok=True)
            write(f"{new}/cpu.max", "40000 100000")
        for pid in pids:
            write(f"{new}/cgroup.procs", str(pid))
    except OSError as problem:
        raise Skip(f"no cgroup to write: {problem}") from problem

    def undo():
        for pid in pids:
            write(f"{old}/cgroup.procs", str(pid))
        os.rmdir(new)
    return undo


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def beside(kind, cpu=None):
    """A program of disturb.py, once it disturbs."""
    argument = [next(folder for folder in (tempfile.gettempdir(), HERE) if on_disk(folder))] if kind == "faults" else []
    confine = None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})
    child = subprocess.Popen([sys.executable, f"{HERE}/disturb.py", kind, *argument], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=confine)
    if child.stdout.readline() != b"ready\n":
        child.kill()
        raise Skip(f"{kind}: {child.stderr.read().decode(errors='replace').strip().splitlines()[-1:]}")
    return child


def on_disk(folder):
    """Whether its files are not in memory."""
    mounts = [line.split()[1:3] for line in open("/proc/mounts")]
    return max((len(place), kind) for place, kind in mounts if folder.startswith(place))[1] not in ("tmpfs", "ramfs")


class Server:
    """One server from start to end, with warptop beside it."""

    def __init__(self, args, plan, mended):
        self.args, self.plan, self.mended = args, plan, mended
        self.out = f"{args.work}/{plan['name']}"
        os.makedirs(f"{self.out}/live", exist_ok=True)
        self.labels, self.rows, self.facts = [], [], dict(options=plan["options"], skipped={}, **(mended or {}))
        self.tmux = ["tmux", "-u", "-L", "lab"]

    def command(self):
        port = int(self.args.url.rsplit(":", 1)[1])
        line = shlex.split(self.args.serve.format(weights=self.args.weights, model=self.args.model, port=port))
        return line if self.args.plain else line + self.plan["options"]

    def start(self):
        self.log, began = open(f"{self.out}/server.log", "w"), time.time()
        self.server = subprocess.Popen(self.command(), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.out)
        while time.time() < began + 300 and self.server.poll() is None:
            try:
                urllib.request.urlopen(self.args.url + "/health", timeout=2).read()
                break
            except OSError:
                time.sleep(0.5)
        else:
            raise Skip("the server did not become healthy: " + open(f"{self.out}/server.log").read()[-1500:])
        self.pids = descendants(self.server.pid)
        self.facts.update(healthy_after_s=round(time.time() - began, 1), command=self.command(), processes=len(self.pids))
        self.recorder = subprocess.Popen([self.args.warptop, "record", "-o", f"{self.out}/warptop.jsonl.gz"], stderr=open(f"{self.out}/record.err", "w"))
        self.dmon = shutil.which("nvidia-smi") and subprocess.Popen(
            ["nvidia-smi", "dmon", "-s", "pucm", "-d", "1", "-o", "DT"], stdout=open(f"{self.out}/dmon.txt", "w"), stderr=subprocess.DEVNULL)
        for screen in SCREENS:
            self.open_screen(screen)
        time.sleep(3)

    def open_screen(self, name):
        wide, high = SCREENS[name]
        subprocess.run([*self.tmux, "new-session", "-d", "-s", name, "-x", str(wide), "-y", str(high), f"exec {shlex.quote(self.args.warptop)}"])

    def close_screen(self, name):
        subprocess.run([*self.tmux, "kill-session", "-t", name], stderr=subprocess.DEVNULL)

    def screen_pid(self, name):
        return int(subprocess.check_output([*self.tmux, "list-panes", "-t", name, "-F", "#{pane_pid}"]))

    def stop(self):
        for screen in SCREENS:
            self.close_screen(screen)
        self.recorder.send_signal(signal.SIGINT)
        try:
            self.facts["record_exit"] = self.recorder.wait(15)
        except subprocess.TimeoutExpired:
            self.recorder.kill()
        if self.dmon:
            self.dmon.terminate()

    def kill(self):
        signal_all(self.pids if hasattr(self, "pids") else descendants(self.server.pid), signal.SIGKILL)
        self.server.wait()
        # The next server wants the port and the GPU's memory.
        host, port = self.args.url.split("//")[1].split(":")
        for _ in range(40):
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) and not any(os.path.exists(f"/proc/{pid}/exe") for pid in getattr(self, "pids", [])):
                    break
            time.sleep(0.25)

    def save(self):
        write(f"{self.out}/labels.json", json.dumps(self.labels, indent=1))
        write(f"{self.out}/server.json", json.dumps(self.facts, indent=1))
        with gzip.open(f"{self.out}/requests.jsonl.gz", "wt", compresslevel=6) as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows)

    def act(self, what):
        """Does it, and says how to undo it."""
        nothing = lambda: None
        if what in ("stop-engine", "stop-api"):
            target = [engine_of(self.pids)] if what == "stop-engine" else [self.pids[0]]
            signal_all(target, signal.SIGSTOP)
            return lambda: signal_all(target, signal.SIGCONT)
        if what == "kill":
            signal_all(self.pids, signal.SIGKILL)
            self.server.wait()
            return nothing
        return {"pin": pin, "quota": quota, None: lambda _: nothing}[what](self.pids)

    def clients(self, phase, start, end):
        """One process for the open and long loads, WORKERS for the users."""
        base = dict(url=self.args.url, model=self.args.model, phase=phase["name"], start=start, end=end, drain=phase.get("drain", 4))
        shares = []
        for load in phase.get("closed", []):
            for i in range(WORKERS):
                if users := (load["users"] + i) // WORKERS:
                    shares.append(dict(closed=[dict(load, users=users)]))
        shares += [{kind: phase[kind]} for kind in ("open", "long") if kind in phase]
        children = []
        for i, share in enumerate(shares):
            path = f"{self.out}/clients-{i}"
            write(f"{path}.json", json.dumps(dict(base, **share)))
            children.append((subprocess.Popen([sys.executable, f"{HERE}/diagnosis_load.py", f"{path}.json", path]), path))
        return children

    def gather(self, children):
        rows, gaps = [], []
        for child, path in children:
            try:
                child.wait(20)
                rows += [json.loads(line) for line in open(f"{path}.requests")]
                pairs = array.array("d", open(f"{path}.gaps", "rb").read())
                gaps += zip(pairs[::2], pairs[1::2])
            except (OSError, subprocess.TimeoutExpired) as problem:
                child.kill()
                print("clients lost:", problem, flush=True)
            for end in (".json", ".requests", ".gaps"):
                if os.path.exists(path + end):
                    os.remove(path + end)
        return rows, gaps

    def look(self, name, end):
        """Live verdicts and screens shortly before the phase's end, each in a thread: nothing waits for a slow one."""
        def ask(what, *arguments):
            try:
                got = subprocess.run([self.args.warptop, *arguments], capture_output=True, timeout=20)
                write(f"{self.out}/live/{name}-{what}.json", got.stdout.decode(errors="replace"))
                if got.returncode or got.stderr:
                    write(f"{self.out}/live/{name}-{what}.exit", f"{got.returncode}\n{got.stderr.decode(errors='replace')}")
            except subprocess.TimeoutExpired:
                write(f"{self.out}/live/{name}-{what}.exit", "no answer within 20 s")

        def later(moment, work, *arguments):
            thread = threading.Timer(max(0.0, moment - time.time()), work, arguments)
            thread.start()
            return thread

        looks = [later(end - 2.8, ask, "snapshot", "snapshot", "--json"), later(end - 0.8, self.capture, name)]
        if self.args.checks:
            looks.append(later(end - 9.5, ask, "check", "check", "--for", "8s", "--json"))
        return looks

    def capture(self, name):
        for screen, (wide, high) in SCREENS.items():
            got = subprocess.run([*self.tmux, "capture-pane", "-p", "-t", screen], capture_output=True)
            write(f"{self.out}/live/{name}-{wide}x{high}.txt", got.stdout.decode(errors="replace"))

    def measure(self, begin):
        """The screen's cost beside the recorder, nothing else of warptop running but them."""
        self.close_screen("small")
        wait_until(begin + 1.5)
        write(f"{self.out}/cost.json", json.dumps(dict(cost(dict(screen=self.screen_pid("large"), record=self.recorder.pid), 30), load="32 users")))
        self.open_screen("small")

    def sweep(self):
        """One tiny request: vLLM's gauges stay at what they were when the last client left until a request comes."""
        ask = urllib.request.Request(self.args.url + "/v1/completions", headers={"content-type": "application/json"}, data=json.dumps(
            dict(model=self.args.model, prompt=[11, 12], max_tokens=1)).encode())
        try:
            urllib.request.urlopen(ask, timeout=5).read()
        except OSError as problem:
            print("sweep:", problem, flush=True)

    def phase(self, phase):
        name, programs, undo, children = phase["name"], [], lambda: None, []
        try:
            programs = [beside(kind) for kind in phase.get("beside", [])]
            begin = time.time() + 1.5 + phase.get("lead", 0)
            end = begin + phase["s"]
            children = self.clients(phase, begin - phase.get("lead", 0), begin if phase.get("load_ends") == "start" else end)
            wait_until(begin)
            undo = self.act(phase.get("do"))
            begun = time.time()
            looks = self.look(name, end)
            if phase.get("cost"):
                self.measure(begun)
            wait_until(end)
            ended = time.time()
        except BaseException:
            for child, _ in children:
                child.kill()
            raise
        finally:
            try:
                undo()
            except OSError as problem:  # the server may be gone
                print(f"{name}: not undone: {problem}", flush=True)
            for program in programs:
                program.kill()
                program.wait()
        rows, gaps = self.gather(children)
        for look in looks:
            look.join()
        label = {key: phase[key] for key in ("name", "cause", "first", "within", "calm", "pair", "note") if key in phase}
        label.setdefault("first", [phase["cause"]])
        label.update(from_ms=round(begun * 1000), to_ms=round(ended * 1000), client=client_view(rows, gaps, begun + SETTLE, ended), phase=phase)
        self.labels.append(label)
        self.rows += rows
        self.save()
        print(f"{self.plan['name']}/{name} {phase['s']} s", json.dumps(label["client"]), flush=True)
        if phase.get("do") != "kill" and name != "idle":
            self.sweep()

    def run(self, left):
        """All phases for which there is time; `left` says how many seconds there are."""
        for phase in self.plan["phases"]:
            needs = phase["s"] + phase.get("lead", 0) + 5
            try:
                if left() < needs:
                    raise Skip(f"needs {needs} s, {left():.0f} s left")
                self.phase(phase)
            except Exception as why:  # one phase that fails costs no other
                self.facts["skipped"][phase["name"]] = repr(why)
                print(f"{self.plan['name']}/{phase['name']} skipped: {why!r}", flush=True)
            if phase is not self.plan["phases"][-1]:
                time.sleep(PAUSE)

    def said(self, name, flag):
        """What warptop says at the phase's end, from the recording: the fix for this flag."""
        label = next((label for label in self.labels if label["name"] == name), None)
        if label is None:
            return None
        recording = f"{self.out}/warptop.jsonl.gz"
        with gzip.open(recording, "rt") as file:
            start = json.loads(file.readline())["start"]
        at = (label["to_ms"] - start) / 1000 - 1
        got = subprocess.run([self.args.warptop, "snapshot", "--json", "--replay", recording, "--at", f"{at:.1f}"], capture_output=True, timeout=60)
        write(f"{self.out}/said-{name}.json", got.stdout.decode(errors="replace"))
        try:
            return promised(json.loads(got.stdout).get("diagnosis"), flag)
        except ValueError:
            return None


def mend(plan, done):
    """The plan with the value that warptop said, or the plan's own when it said none that can be taken."""
    had = lambda server: any(phase["name"] == plan["mends"] for phase in server.plan["phases"])
    before, flag = next(filter(had, done.values()), None), plan["flag"]
    fix = before and before.said(plan["mends"], flag)
    value = fix and fix.get("try")
    taken = isinstance(value, (int, float, str)) and not isinstance(value, bool) and str(value).replace(".", "", 1).isdigit()
    options, value = list(plan["options"]), str(value) if taken else plan["fallback"]
    options[options.index(flag) + 1] = value
    return dict(plan, options=options), dict(mends=plan["mends"], said=fix, taken=taken, value=value)


def run(args):
    args.warptop, args.work, args.weights = (os.path.abspath(path) for path in (args.warptop, args.work, args.weights))
    args.checks = subprocess.run([args.warptop, "check", "--help"], capture_output=True).returncode == 0
    began, done = time.time(), {}
    left = lambda: began + args.budget - time.time()
    for plan in SERVERS:
        if args.only and plan["name"] not in args.only.split(","):
            continue
        shortest = plan["phases"][0]["s"] + 10
        if left() < plan["start_s"] + shortest:
            print(f"{plan['name']} left out: {left():.0f} s left", flush=True)
            continue
        plan, mended = mend(plan, done) if "mends" in plan else (plan, None)
        server = Server(args, plan, mended)
        try:
            server.start()
            print(f"{plan['name']} healthy after {server.facts['healthy_after_s']} s {mended or ''}", flush=True)
            server.run(left)
            server.stop()
            done[plan["name"]] = server
        except Exception as problem:
            server.facts["failed"] = repr(problem)
            print(f"{plan['name']} failed: {problem!r}", flush=True)
            if hasattr(server, "recorder"):
                server.stop()
        finally:
            server.kill()
            server.save()
            write(f"{server.out}/DONE", "")
    write(f"{args.work}/DONE", "")


def collect(args):
    end = time.time() + args.seconds
    while time.time() < end and not os.path.exists(f"{args.work}/DONE"):
        time.sleep(0.5)
    over = os.path.exists(f"{args.work}/DONE")
    for name in (plan["name"] for plan in SERVERS):
        folder = f"{args.work}/{name}"
        if os.path.exists(f"{folder}/DONE" if not args.all else folder) and not os.path.exists(f"{folder}/SENT"):
            with tarfile.open(f"{args.out}/{name}.tar.gz", "w:gz", compresslevel=4) as tar:
                tar.add(folder, arcname=name)
            write(f"{folder}/SENT", "")
    print(open(f"{args.work}/log.txt").read()[-9000:], "\nOVER" if over else "\nSTILL RUNNING", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("warptop")
    one.add_argument("work")
    one.add_argument("--budget", type=float, default=1400, help="seconds for all; what does not fit is left out")
    one.add_argument("--only", help="names of servers")
    one.add_argument("--serve", default=VLLM, help="what starts a server")
    one.add_argument("--plain", action="store_true", help="the server takes none of vLLM's options")
    one.add_argument("--weights", default="model", help="folder with the model's config and tokenizer")
    one.add_argument("--url", default="http://127.0.0.1:8000")
    one.add_argument("--model", default="dummy-8b")
    one.set_defaults(do=run)
    two = commands.add_parser("collect")
    two.add_argument("work")
    two.add_argument("out")
    two.add_argument("seconds", type=float)
    two.add_argument("--all", action="store_true", help="what is under way too")
    two.set_defaults(do=collect)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
