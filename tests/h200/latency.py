#!/usr/bin/env python3
"""Loads an OpenAI-compatible server through phases and keeps what its latency estimate is held against.

    latency.py URL MODEL OUT [SHARE]

OUT gets `metrics.jsonl.gz`, the whole /metrics body once a second with when it was there (Unix ms), `requests.jsonl.gz`, each request by its client's clock, and `gaps.bin.gz`, each gap between two events of
a stream (when it ended, ms from `start_ms` in phases.json, and how long it was, µs; two u32 each). The clients are
spread over processes, so that no client waits for another's bytes to be read. SHARE shortens all phases.
"""
import array, asyncio, gzip, json, multiprocessing, os, random, sys, threading, time, urllib.request

import aiohttp

URL, MODEL, OUT = sys.argv[1:4]
SHARE = float(sys.argv[4]) if len(sys.argv) > 4 else 1.0
WORKERS = 8
MIXED = [64, 128, 256, 1024, 4096]

# name, kind, clients or requests a second, prompt, output, spread of both, seconds.
# closed: each client asks again at once. open: requests come at random times. burst: so many at once every 5 s.
PHASES = [
    ("idle", "closed", 0, 0, 0, 0, 3),
    ("c2", "closed", 2, 512, 128, 0, 12),
    ("c8", "closed", 8, 512, 128, 0, 14),
    ("c32", "closed", 32, 512, 128, 0, 17),
    ("c128", "closed", 128, 512, 128, 0, 18),
    ("c256", "closed", 256, 512, 128, 0, 22),
    ("long4k", "closed", 32, 4096, 128, 0, 16),
    ("long16k", "closed", 16, 16384, 64, 0, 22),
    ("varied48", "closed", 48, 700, 150, 0.8, 18),
    ("open12", "open", 12, None, 120, 0.7, 20),
    ("burst40", "burst", 40, 400, 100, 0.5, 18),
    ("overload", "closed", 600, None, 200, 0, 22),
    ("idle2", "closed", 0, 0, 0, 0, 3),
]


async def one(session, phase, prompt, output, spread, rows, gaps, zero):
    prompt = random.choice(MIXED) if prompt is None else prompt
    prompt, output = (round(n * random.uniform(1 - spread, 1 + spread)) for n in (prompt, output))
    body = dict(model=MODEL, prompt=[random.randint(10, 18000) for _ in range(prompt)], max_tokens=output,
                ignore_eos=True, stream=True, stream_options=dict(include_usage=True))
    body = json.dumps(body).encode()
    sent, first, last, usage, error, mine = time.time(), None, None, None, None, []
    try:
        async with session.post(URL + "/v1/completions", data=body, headers={"Content-Type": "application/json"}) as reply:
            if reply.status != 200:
                error = f"{reply.status} {(await reply.text())[:200]}"
            else:
                async for line in reply.content:
                    now = time.time()
                    if line.startswith(b"data: {") and b'"choices":[{' in line:
                        if first is None:
                            first = now
                        else:
                            mine.append(now - last)
                            gaps.extend((int((now - zero) * 1000), int((now - last) * 1e6)))
                        last = now
                    elif b'"usage":{' in line:
                        usage = json.loads(line[5:])["usage"]
    except Exception as problem:
        error = repr(problem)
    end = time.time()
    mine.sort()
    rows.append(dict(phase=phase, start_ms=round(sent * 1000, 1), ttft=first and first - sent, e2e=end - sent,
                     last=last and last - sent, prompt=prompt, output=output, chunks=len(mine) + 1, usage=usage, err=error,
                     itl_p50=mine[len(mine) // 2] if mine else None, itl_max=mine[-1] if mine else None))


async def worker(index, starts, zero, rows, gaps, barrier):
    random.seed(1000 + index)
    limits = dict(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=300), read_bufsize=2**20)
    async with aiohttp.ClientSession(**limits) as session:
        for name, kind, size, prompt, output, spread, seconds in PHASES:
            seconds *= SHARE
            await asyncio.get_running_loop().run_in_executor(None, barrier.wait)
            start = time.time()
            if index == 0:
                starts.append((name, start))
            ask = lambda: one(session, name, prompt, output, spread, rows, gaps, zero)
            if kind == "closed":
                async def client():
                    while time.time() < start + seconds:
                        await ask()
                clients = size // WORKERS + (index < size % WORKERS)
                await asyncio.gather(*[client() for _ in range(clients)])
                if size == 0:
                    await asyncio.sleep(seconds)
                continue
            tasks = []
            while (left := start + seconds - time.time()) > 0:
                if kind == "open":
                    await asyncio.sleep(min(left, random.expovariate(size / WORKERS)))
                    tasks.append(asyncio.create_task(ask()))
                else:
                    tasks += [asyncio.create_task(ask()) for _ in range(size // WORKERS)]
                    await asyncio.sleep(min(left, 5))
            await asyncio.gather(*tasks)


def work(index, zero, barrier):
    rows, gaps, starts = [], array.array("I"), []
    asyncio.run(worker(index, starts, zero, rows, gaps, barrier))
    with open(f"{OUT}/part{index}.json", "w") as file:
        json.dump(dict(rows=rows, starts=starts), file)
    with open(f"{OUT}/part{index}.bin", "wb") as file:
        gaps.tofile(file)


def scrape(stop):
    with gzip.open(f"{OUT}/metrics.jsonl.gz", "wt") as file:
        due = time.time()
        while not stop.is_set():
            asked = time.time()
            body = urllib.request.urlopen(URL + "/metrics", timeout=10).read().decode()
            there = time.time()
            body = "\n".join(l for l in body.splitlines() if "_created" not in l and not l.startswith(("# HELP", "python_")))
            file.write(json.dumps(dict(unix_ms=round(there * 1000), scrape_ms=round((there - asked) * 1000, 1), body=body)) + "\n")
            due = max(due + 1, time.time())
            time.sleep(max(0, due - time.time()))


def main():
    os.makedirs(OUT, exist_ok=True)
    zero = time.time()
    barrier, stop = multiprocessing.Barrier(WORKERS), threading.Event()
    workers = [multiprocessing.Process(target=work, args=(i, zero, barrier)) for i in range(WORKERS)]
    for process in workers:
        process.start()
    scraper = threading.Thread(target=scrape, args=(stop,))
    scraper.start()
    for process in workers:
        process.join()
    time.sleep(1.5)
    stop.set()
    scraper.join()
    parts = [json.load(open(f"{OUT}/part{i}.json")) for i in range(WORKERS)]
    with gzip.open(f"{OUT}/requests.jsonl.gz", "wt") as file:
        for row in sorted((row for part in parts for row in part["rows"]), key=lambda row: row["start_ms"]):
            file.write(json.dumps(row) + "\n")
    with gzip.open(f"{OUT}/gaps.bin.gz", "wb", 6) as file:
        for i in range(WORKERS):
            file.write(open(f"{OUT}/part{i}.bin", "rb").read())
    json.dump(dict(start_ms=zero * 1000, phases=parts[0]["starts"]), open(f"{OUT}/phases.json", "w"))
    for i in range(WORKERS):
        os.remove(f"{OUT}/part{i}.json")
        os.remove(f"{OUT}/part{i}.bin")
    rows = [row for part in parts for row in part["rows"]]
    for name, _ in parts[0]["starts"]:
        mine = [row for row in rows if row["phase"] == name]
        wrong = [row["err"] for row in mine if row["err"]]
        print(name, len(mine), "requests", len(wrong), "failed", wrong[:1], flush=True)


main()
