#!/usr/bin/env python3
"""What a forced probe does to a serving engine: 32 clients stream tokens while probes run beside, by their own clock.

    beside_vllm.py WARPTOP OUT [--url http://127.0.0.1:8000] [--model dummy-8b] [--clients 32] [--seconds 20] [--rounds 1]

Phases of --seconds each, the load never pausing: nothing, then each probe of --probes forced at each --duty, then
nothing again. OUT gets beside.json, beside.md and tokens.json.gz (when every token came). Times are the client's: a
token counts when its bytes arrive. The first --settle seconds of a phase, in which the probe starts, do not count.
"""
import argparse, asyncio, bisect, gzip, json, math, os, random, signal, statistics, sys, time

# A token: when it came, time since the one before in its stream (None for the first), tokens in its chunk.
# A first token: when it came, time since its request was sent.


def quantile(ordered, q):
    """Nearest rank: a value that was measured."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None


def spread(values, scale=1000.0):
    """Median, P90, P99 and largest in ms, and how many."""
    ordered = sorted(values)
    out = dict(n=len(ordered))
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)):
        value = quantile(ordered, q)
        out[name] = None if value is None else round(value * scale, 3)
    return out


def within(rows, start, end):
    """Rows, ordered by their time, of [start, end)."""
    at = lambda row: row[0]
    return rows[bisect.bisect_left(rows, start, key=at):bisect.bisect_left(rows, end, key=at)]


def analyse(phases, tokens, firsts, settle):
    """Each phase with its figures. Times in s of one clock."""
    tokens, firsts = sorted(tokens, key=lambda row: row[0]), sorted(firsts, key=lambda row: row[0])
    out = []
    for phase in phases:
        start, end = phase["start"] + settle, phase["end"]
        # A probe may have ended before anything counts.
        seen, seconds = within(tokens, start, end), max(0.0, end - start)
        rate = round(sum(row[2] for row in seen) / seconds, 1) if seconds else None
        out.append(dict(phase, seconds=round(seconds, 3), tok_s=rate,
                        itl_ms=spread([row[1] for row in seen if row[1] is not None]),
                        ttft_ms=spread([row[1] for row in within(firsts, start, end)])))
    return out


def alone(phases):
    """The phases without a probe, taken together: median of each figure."""
    idle = [phase for phase in phases if phase["probe"] is None]
    middle = lambda of: statistics.median(of(phase) for phase in idle)
    return dict(tok_s=middle(lambda p: p["tok_s"]), **{
        f"{what}_{q}": middle(lambda p: p[f"{what}_ms"][q]) for what in ("itl", "ttft") for q in ("p50", "p90", "p99")})


def table(phases):
    """As Markdown; in brackets against the phases without a probe."""
    base = alone(phases)
    rows = ["| beside | tokens/s | ITL median, ms | ITL P90, ms | ITL P99, ms | TTFT median, ms | TTFT P99, ms | tokens | requests |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for phase in phases:
        def cell(value, name, digits):
            if value is None:
                return "–"
            change = "" if phase["probe"] is None else f" ({round((value / base[name] - 1) * 100):+d} %)"
            return f"{value:.{digits}f}{change}"

        itl, ttft = phase["itl_ms"], phase["ttft_ms"]
        cells = [phase["name"], cell(phase["tok_s"], "tok_s", 0), cell(itl["p50"], "itl_p50", 2), cell(itl["p90"], "itl_p90", 2),
                 cell(itl["p99"], "itl_p99", 2), cell(ttft["p50"], "ttft_p50", 1), cell(ttft["p99"], "ttft_p99", 1),
                 f"{itl['n']}", f"{ttft['n']}"]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def of_report(text):
    """What a probe's report says about the run, small enough to keep."""
    try:
        report = json.loads(text)
    except ValueError:
        return dict(text=text[:300])
    series = {}
    for sample in report.get("samples", []):
        series.setdefault((sample["series"], sample["unit"]), []).append(sample["value"])
    return dict(
        run=report["run"], ending=report["ending"], why=report["why"], forced=report["forced"], duty_pct=report["duty_pct"],
        company=report["environment"]["company"], inputs=report["inputs"],
        samples={name: dict(unit=unit, n=len(values), median=statistics.median(values)) for (name, unit), values in series.items()})


class Load:
    """Closed-loop clients that never pause until told."""

    def __init__(self, args):
        self.args, self.tokens, self.firsts, self.errors, self.go = args, [], [], [], True

    async def one(self, session):
        args = self.args
        prompt, output = (round(n * random.uniform(1 - args.spread, 1 + args.spread)) for n in (args.prompt, args.output))
        body = dict(model=args.model, prompt=[random.randint(10, 18000) for _ in range(prompt)], max_tokens=output,
                    ignore_eos=True, stream=True, stream_options=dict(include_usage=True, continuous_usage_stats=True))
        sent, last, count = time.perf_counter(), None, 0
        try:
            async with session.post(args.url + "/v1/completions", json=body) as reply:
                if reply.status != 200:
                    raise RuntimeError(f"{reply.status} {(await reply.text())[:200]}")
                async for line in reply.content:
                    now = time.perf_counter()
                    if not line.startswith(b"data: {"):
                        continue
                    event = json.loads(line[5:])
                    if not event.get("choices"):
                        continue
                    total = (event.get("usage") or {}).get("completion_tokens", count + 1)
                    if last is None:
                        self.firsts.append((now, now - sent))
                    self.tokens.append((now, None if last is None else now - last, total - count))
                    last, count = now, total
        except Exception as problem:
            self.errors.append((time.perf_counter(), repr(problem)[:200]))
            await asyncio.sleep(0.1)

    async def client(self, session):
        while self.go:
            await self.one(session)


async def beside(args, phase):
    """Runs the phase's probe, if it has one, until the phase is over."""
    seconds = args.settle + args.seconds
    phase["start_unix_ms"], phase["start"] = round(time.time() * 1000), time.perf_counter()
    phase["end"] = phase["start"] + seconds
    if phase["probe"] is None:
        await asyncio.sleep(seconds)
        return
    # One kernel through the whole phase: what comes first in the probe.
    command = [args.warptop, "probe", phase["probe"], "--force", "--duty", str(phase["duty"]), "--yes", "--json", *args.more.get(phase["probe"], [])]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    saying = asyncio.ensure_future(child.communicate())
    await asyncio.wait([saying], timeout=phase["end"] - time.perf_counter())
    phase["ended_early"] = saying.done() and round(phase["end"] - time.perf_counter(), 1)
    if saying.done():
        # What comes after the probe is no effect of it.
        phase["end"] = time.perf_counter()
    else:
        child.send_signal(signal.SIGINT)
    out, err = await saying
    said = "" if child.returncode in (0, 130) else err.decode(errors="replace")[-300:]
    phase.update(exit=child.returncode, said=said, report=of_report(out.decode(errors="replace")))


async def main():
    import aiohttp
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warptop")
    parser.add_argument("out")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="dummy-8b")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--spread", type=float, default=0.5, help="by what share lengths vary, so that clients do not march in step")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--settle", type=float, default=5)
    parser.add_argument("--pause", type=float, default=3, help="between phases, not counted")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--probes", default="hbm,soak,pcie")
    parser.add_argument("--duty", default="10,100")
    parser.add_argument("--more", type=json.loads, default={}, help='arguments of probes: {"hbm": ["--seconds", "40"]}')
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    plan = [dict(name="nothing", probe=None, duty=None)]
    plan += [dict(name=f"`{probe}`, duty cycle {duty} %", probe=probe, duty=int(duty)) for probe in args.probes.split(",") for duty in args.duty.split(",")]
    plan.append(dict(plan[0], name="nothing again"))
    phases = [dict(phase, round=i + 1) for i in range(args.rounds) for phase in plan]
    load = Load(args)
    limit = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as session:
        clients = [asyncio.ensure_future(load.client(session)) for _ in range(args.clients)]
        await asyncio.sleep(5)
        for phase in phases:
            await beside(args, phase)
            print(phase["name"], phase.get("exit", ""), phase.get("said", "").strip().splitlines()[-1:], flush=True)
            await asyncio.sleep(args.pause)
        load.go = False
        await asyncio.wait(clients, timeout=20)
    found = analyse(phases, load.tokens, load.firsts, args.settle)
    settings = {key: value for key, value in vars(args).items() if key not in ("warptop", "out")}
    with open(f"{args.out}/beside.json", "w") as file:
        json.dump(dict(schema="warptop.beside/1", settings=settings, phases=found, errors=len(load.errors),
                       first_errors=load.errors[:5]), file, indent=1)
    with open(f"{args.out}/beside.md", "w") as file:
        file.write(table(found))
    zero = phases[0]["start"]
    with gzip.open(f"{args.out}/tokens.json.gz", "wt", compresslevel=5) as file:
        json.dump([[round((at - zero) * 1e3, 2), gap and round(gap * 1e3, 2), n] for at, gap, n in load.tokens], file)
    print(table(found), f"errors: {len(load.errors)}", load.errors[:2])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
