#!/usr/bin/env python3
"""Closed-loop load for an OpenAI-compatible server, and what its client saw.

    load.py URL MODEL OUT.jsonl '[["c4", 4, 512, 128, 12], …]'

Each phase is name, clients (0: wait), prompt tokens, output tokens, seconds and, if given, by what share the lengths
of prompt and output vary around that: 0.5 keeps clients from marching in step, 0 makes runs alike. OUT gets one line a request and one line a
phase ({"phase", "start_ms", "end_ms", "tok_s", "itl_p50_ms", "itl_p99_ms", "gaps"}). A gap is the time between two
events of one stream, stamped when the bytes arrive and before they are parsed.
"""
import asyncio, json, random, sys, time

import aiohttp

URL, MODEL, OUT, PHASES = sys.argv[1], sys.argv[2], open(sys.argv[3], "w"), json.loads(sys.argv[4])


def quantile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))] if values else None


async def one(session, phase, prompt, output, spread, gaps):
    prompt, output = (round(n * random.uniform(1 - spread, 1 + spread)) for n in (prompt, output))
    body = dict(model=MODEL, prompt=[random.randint(10, 18000) for _ in range(prompt)], max_tokens=output,
                ignore_eos=True, stream=True, stream_options=dict(include_usage=True))
    sent, first, last, usage, error = time.time(), None, None, None, None
    try:
        async with session.post(URL + "/v1/completions", json=body) as reply:
            if reply.status != 200:
                error = f"{reply.status} {(await reply.text())[:200]}"
            else:
                async for line in reply.content:
                    now = time.time()
                    if not line.startswith(b"data: {"):
                        continue
                    event = json.loads(line[5:])
                    usage = event.get("usage") or usage
                    if event.get("choices"):
                        if first is None:
                            first = now
                        else:
                            gaps.append((now, now - last))
                        last = now
    except Exception as problem:
        error = repr(problem)
    OUT.write(json.dumps(dict(phase=phase, start_ms=round(sent * 1000, 1), ttft=first and first - sent,
                              e2e=time.time() - sent, usage=usage, err=error)) + "\n")


async def main():
    connector, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
        for phase, clients, prompt, output, seconds, *rest in PHASES:
            start, gaps = time.time(), []

            async def client():
                while time.time() < start + seconds:
                    await one(session, phase, prompt, output, rest[0] if rest else 0, gaps)

            await (asyncio.gather(*[client() for _ in range(clients)]) if clients else asyncio.sleep(seconds))
            # The first two seconds fill the batch and the last requests drain it: neither counts.
            steady = sorted(gap for at, gap in gaps if start + 2 < at < start + seconds)
            OUT.write(json.dumps(dict(
                phase=phase, start_ms=round(start * 1000), end_ms=round((start + seconds) * 1000), gaps=len(steady),
                tok_s=len(steady) / (seconds - 2), itl_p50_ms=steady and quantile(steady, 0.5) * 1000,
                itl_p99_ms=steady and quantile(steady, 0.99) * 1000)) + "\n")
            OUT.flush()
            print(phase, "done", flush=True)


asyncio.run(main())
