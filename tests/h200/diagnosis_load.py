#!/usr/bin/env python3
"""The clients of one phase of diagnosis.py: one process's share of them, and what they saw by their own clock.

    diagnosis_load.py SPEC.json OUT

SPEC: url, model, phase, start and end (Unix s), drain (s that requests under way get after the end; those left are cut),
and kinds of clients, any of
  closed: {"users", "prompt", "output", "shared", "think"}   each asks, waits for the whole answer, thinks, asks again
  open:   {"rate", "prompt", "output"}                       requests a second, at random moments, whatever comes back
  long:   {"every", "prompt", "output"}                      one long prompt every so many seconds
Lengths are tokens and vary by 30 % unless the spec's spread says otherwise; of a prompt, `shared` tokens are the same for all.
OUT.requests gets one JSON line a request (times in ms), OUT.gaps pairs of doubles: Unix s and ms since the event before.
"""
import array, asyncio, json, random, sys, time


def body(spec, prompt, output, shared=0):
    spread = spec.get("spread", 0.3)
    prompt, output = (max(1, round(n * random.uniform(1 - spread, 1 + spread))) for n in (prompt, output))
    same = random.Random(7)
    ids = [same.randint(10, 18000) for _ in range(shared)] + [random.randint(10, 18000) for _ in range(prompt)]
    return dict(model=spec["model"], prompt=ids, max_tokens=output, ignore_eos=True, stream=True,
                stream_options=dict(include_usage=True))


class Clients:
    def __init__(self, spec, session):
        self.spec, self.session, self.rows, self.gaps = spec, session, [], array.array("d")

    async def one(self, kind):
        """One request. A row is kept however it ends, and when it is cut at the phase's end too."""
        asked = body(self.spec, kind["prompt"], kind["output"], kind.get("shared", 0))
        sent, first, last = time.time(), None, None
        row = dict(phase=self.spec["phase"], start_ms=round(sent * 1000, 1), prompt=len(asked["prompt"]), tokens=0, chunks=0,
                   ttft_ms=None, e2e_ms=None, itl_max_ms=None, err=None, cut=True)
        self.rows.append(row)
        try:
            async with self.session.post(self.spec["url"] + "/v1/completions", json=asked) as reply:
                if reply.status != 200:
                    raise RuntimeError(f"{reply.status} {(await reply.text())[:200]}")
                async for line in reply.content:
                    now = time.time()
                    if not line.startswith(b"data: {"):
                        continue
                    event = json.loads(line[5:])
                    row["tokens"] = (event.get("usage") or {}).get("completion_tokens", row["tokens"])
                    if not event.get("choices"):
                        continue
                    row["chunks"] += 1
                    if first is None:
                        first, row["ttft_ms"] = now, round((now - sent) * 1000, 2)
                    else:
                        gap = (now - last) * 1000
                        self.gaps.extend((now, gap))
                        row["itl_max_ms"] = round(max(row["itl_max_ms"] or 0, gap), 2)
                    last = now
            row.update(cut=False, e2e_ms=round((time.time() - sent) * 1000, 2))
        except asyncio.CancelledError:
            row["e2e_ms"] = round((time.time() - sent) * 1000, 2)
            raise
        except Exception as problem:
            row.update(cut=False, err=repr(problem)[:200], e2e_ms=round((time.time() - sent) * 1000, 2))
            await asyncio.sleep(0.25)

    async def closed(self, kind):
        think = kind.get("think", 0)
        while time.time() < self.spec["end"]:
            await self.one(kind)
            if think:
                await asyncio.sleep(think * random.uniform(0.7, 1.3))

    async def at_moments(self, kind, pause):
        under_way = []
        try:
            while time.time() < self.spec["end"]:
                under_way.append(asyncio.ensure_future(self.one(kind)))
                await asyncio.sleep(min(pause(), max(0.0, self.spec["end"] - time.time())))
            await asyncio.gather(*under_way)
        finally:
            for request in under_way:
                request.cancel()

    def all(self):
        for kind in self.spec.get("closed", []):
            yield from (self.closed(kind) for _ in range(kind["users"]))
        for kind in self.spec.get("open", []):
            yield self.at_moments(kind, lambda kind=kind: random.expovariate(kind["rate"]))
        for kind in self.spec.get("long", []):
            yield self.at_moments(kind, lambda kind=kind: kind["every"])


async def main(spec, out):
    import aiohttp
    limit = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as session:
        clients = Clients(spec, session)
        await asyncio.sleep(max(0.0, spec["start"] - time.time()))
        tasks = [asyncio.ensure_future(task) for task in clients.all()]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=max(0.0, spec["end"] + spec["drain"] - time.time()))
            for task in left:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    with open(out + ".requests", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in clients.rows)
    with open(out + ".gaps", "wb") as file:
        clients.gaps.tofile(file)


if __name__ == "__main__":
    asyncio.run(main(json.load(open(sys.argv[1])), sys.argv[2]))
