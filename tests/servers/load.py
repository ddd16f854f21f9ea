#!/usr/bin/env python3
"""Streaming chat requests in a closed loop against a server on loopback, and what the client saw of them.

Prints one line of JSON. --out adds a line for each request, by the client's clock."""
import argparse
import http.client
import json
import random
import threading
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--model", default="m")
parser.add_argument("--requests", type=int, default=16)
parser.add_argument("--clients", type=int, default=16)
parser.add_argument("--words", type=int, default=50, help="length of a prompt")
parser.add_argument("--shared-words", type=int, default=0, help="words that all prompts begin with")
parser.add_argument("--max-tokens", type=int, default=64, help="length of an answer: the end of text is ignored")
parser.add_argument("--vary", type=float, default=0, help="both lengths are scaled by up to 1 ± this, at random")
parser.add_argument("--limit", type=float, default=600, help="seconds after which nothing new is sent")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--phase", default="load", help="name in --out")
parser.add_argument("--out", help="file that a line for each request is added to")
options = parser.parse_args()

WORDS = (
    "the license shall be granted to any person who may copy modify and distribute software under these terms "
    "with notice of warranty or liability in source form"
).split()


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(max(1, round(n))))


shared = words(random.Random(options.seed), options.shared_words) + " " if options.shared_words else ""
todo = iter(range(options.requests))
done, lock = [], threading.Lock()
deadline = time.monotonic() + options.limit


def request(number):
    rng = random.Random(options.seed * 100_003 + number)
    scale = lambda: 1 + rng.uniform(-options.vary, options.vary)
    body = {
        "model": options.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": max(2, round(options.max_tokens * scale())),
        "ignore_eos": True,
        "messages": [{"role": "user", "content": shared + words(rng, options.words * scale())}],
    }
    row = {"phase": options.phase, "start_ms": time.time() * 1000, "ttft": None, "chunks": 0, "usage": None, "err": None}
    connection = http.client.HTTPConnection("127.0.0.1", options.port, timeout=600)
    start = time.monotonic()
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"HTTP {answer.status}: {answer.read(300)}")
        for line in answer:
            now = time.monotonic()
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(str(event["error"])[:300])
            row["usage"] = event.get("usage") or row["usage"]
            if event.get("choices") and event["choices"][0].get("delta", {}).get("content"):
                row["chunks"] += 1
                row["ttft"] = row["ttft"] or now - start
        if row["usage"] is None:
            raise RuntimeError("the stream broke off")
    except Exception as error:  # whatever went wrong is the result
        row["err"] = repr(error)
    finally:
        connection.close()
    row["e2e"] = time.monotonic() - start
    return row


def client():
    while time.monotonic() < deadline:
        with lock:
            number = next(todo, None)
        if number is None:
            return
        row = request(number)
        with lock:
            done.append(row)


start_ms = time.time() * 1000
threads = [threading.Thread(target=client, daemon=True) for _ in range(options.clients)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
phase = {"phase": options.phase, "start_ms": start_ms, "end_ms": time.time() * 1000, "clients": options.clients}

if options.out:
    with open(options.out, "a", encoding="utf-8") as file:
        for row in [*sorted(done, key=lambda row: row["start_ms"]), phase]:
            file.write(json.dumps(row) + "\n")
good = [row for row in done if row["err"] is None]
print(
    json.dumps(
        {
            **phase,
            "ok": len(good),
            "failed": len(done) - len(good),
            "first_error": next((row["err"] for row in done if row["err"]), None),
            "prompt_tokens": sum(row["usage"]["prompt_tokens"] for row in good),
            "completion_tokens": sum(row["usage"]["completion_tokens"] for row in good),
        }
    )
)
