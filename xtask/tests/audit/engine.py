"""What a snapshot should say of an engine: queue, rates, KV memory, latencies."""

from captured import ENOUGH, Body, Window, ratio

# Of what the store keeps in 32 bits.
ROUNDED = 2e-7


def engine(e, window, put):
    put("state", e.state(window.end))
    named = lambda name, **only: lambda body: body.gauge(name, **only)
    running, waiting = named("num_requests_running"), named("num_requests_waiting")
    finished = named("request_success_total")
    put("requests_running", e.level(window.end, running), whole=True)
    put("requests_waiting", e.level(window.end, waiting), whole=True)
    for reason in ("capacity", "deferred"):
        of = named("num_requests_waiting_by_reason", reason=reason)
        put("waiting_by_reason/" + reason, e.level(window.end, of), whole=True)
    put("requests_cap", e.log.max_num_seqs, whole=True)
    for key, of in (
        ("preemptions_per_s", named("num_preemptions_total")),
        ("prompt_tokens_per_s", named("prompt_tokens_total")),
        ("generation_tokens_per_s", named("generation_tokens_total")),
        ("requests_per_s", finished),
        ("failed_per_s", Body.failed),
    ):
        put(key, e.rate(window, of))
        put("measured_s/" + key, e.measured(window, of))
    put("drain_s", drain(e, window, e.level(window.end, waiting), finished))
    for span, of in (("window", window), ("kept", Window(window.end, window.end))):
        for name, gauge in (("running", running), ("waiting", waiting)):
            value, at = e.peak(of, gauge)
            put(f"high_water/{span}/{name}", value, whole=True)
            put(f"high_water/{span}/{name}_unix_ms", at, whole=True)
    kv(e, window, put)
    for key, name in LATENCIES:
        latency(*e.lives(window, name), "latency/" + key, put)
    for key, name in MEANS:
        found = e.quantiles(window, name)
        put("latency/" + key, found.mean() if found else None)
        put("latency/measured_s/" + key, e.measured(window, lambda body: body.histogram(name)))
    api_server(e, window, put)


LATENCIES = (
    ("ttft_s", "time_to_first_token_seconds"),
    ("e2e_s", "e2e_request_latency_seconds"),
    ("itl_s", "inter_token_latency_seconds"),
    ("queue_s", "request_queue_time_seconds"),
    ("tpot_s", "request_time_per_output_token_seconds"),
    ("prefill_s", "request_prefill_time_seconds"),
    ("decode_s", "request_decode_time_seconds"),
)
MEANS = (
    ("e2e_mean_s", "e2e_request_latency_seconds"),
    ("queue_mean_s", "request_queue_time_seconds"),
    ("prefill_mean_s", "request_prefill_time_seconds"),
    ("decode_mean_s", "request_decode_time_seconds"),
)


def api_server(e, window, put):
    """What the API server adds to a mean request, where the counts of both resolve it."""
    own = e.quantiles(window, "e2e_request_latency_seconds")
    requests, seconds = (lambda body, i=i: body.api_server()[i] for i in (0, 1))
    per_s = e.rate(window, requests)
    part = None
    if own and own.n and per_s:
        whole = e.rate(window, seconds) / per_s
        served = round(per_s * own.seconds)
        resolves = (abs(served - own.n) + 1) * max(own.mean(), whole) / own.n
        part = whole - own.mean() if served > 0 and whole - own.mean() >= resolves else None
    if part is None:
        return put("latency/api_server_mean_s", None)
    # A small difference of two means, of which each is rounded.
    put("latency/api_server_mean_s", [part - ROUNDED * whole, part + ROUNDED * whole], inside=True)


def drain(e, window, waiting, finished):
    """Waiting over leaving: of the last 10 s where 8 or more finished, else of the window."""
    if waiting is None:
        return None
    if waiting <= 0:
        return 0.0
    present = Window(window.end, min(window.ms, 10_000))
    leaving = e.rate(present, finished)
    if leaving is None or leaving * present.ms / 1000.0 < 8:
        leaving = e.rate(window, finished)
    return waiting / leaving if leaving else None


def latency(found, restarts, since_restart, key, put):
    put(key + "/window_s", found.seconds if found else None)
    put(key + "/restarts", restarts if found else None, whole=True)
    put(key + "/since_restart", since_restart if found else None)
    put(key + "/n", found.n if found else None, whole=True)
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        bounds = found.bounds(q) if found else None
        if bounds is None:
            put(f"{key}/{name}", None)
            continue
        put(f"{key}/{name}/lo", bounds[0])
        put(f"{key}/{name}/hi", bounds[1])
        put(f"{key}/{name}/enough", found.n >= dict(ENOUGH)[q])
        put(f"{key}/{name}/value", list(bounds), inside=True)


def kv(e, window, put):
    at = window.end
    level = lambda of: e.level(at, of)
    usage = level(lambda body: body.gauge("kv_cache_usage_perc"))
    pool, block = level(Body.pool) or (None, None)
    running = level(lambda body: body.gauge("num_requests_running"))
    held = usage * pool if None not in (usage, pool) else None
    put("kv/usage_pct", None if usage is None else usage * 100)
    put("kv/pool_tokens", pool, whole=True)
    put("kv/held_tokens", held, whole=True)
    prompt, *life = e.lives(window, "request_prompt_tokens")
    output, *_ = e.lives(window, "request_generation_tokens")
    means = [found.mean() if found else None for found in (prompt, output)]
    length = None if None in means else means[0] + means[1] / 2
    lengths = None if None in (length, running) else running * length
    # Live: what is held less half a block for each running request, or by the lengths of requests where last
    # blocks leave more than a tenth of it open and lengths do not contradict them.
    live = most = None
    if None not in (held, running, block):
        most = running * (block - 1)
        live = max(held - most / 2, 0.0)
        if most / 2 > held * 0.1 and lengths is not None and held - most <= lengths <= held:
            live = lengths
        if held <= 0:
            live = most = 0.0
        elif most <= 0:
            live, most = held, 0.0
    put("kv/live_tokens", live, whole=True)
    put("kv/live_tokens_is", None if live is None else "exact" if most == 0.0 else "estimate")
    tail = None if live is None else held - live
    put("kv/tail_tokens", tail, whole=True)
    put("kv/tail_waste_pct", percent(tail, held))
    put("kv/tail_waste_max_pct", percent(most, held))
    put("kv/idle_tokens", None if held is None else pool - held, whole=True)
    put("kv/idle_pct", None if held is None else percent(pool - held, pool))
    hits = lambda of: percent(
        e.rate(of, lambda body: body.gauge("prefix_cache_hits_total")),
        e.rate(of, lambda body: body.gauge("prefix_cache_queries_total")),
    )
    put("kv/prefix_hit_pct", hits(window))
    put("kv/sharing_x", sharing(lengths, held, hits(window), hits(Window(at, window.ms // 4))))
    preempted = e.rate(window, lambda body: body.gauge("num_preemptions_total"))
    lost = 0.0 if preempted == 0 else None if None in (preempted, length) else preempted * length
    put("kv/recomputed_tokens_per_s", lost)
    put("kv/max_model_len", e.log.max_model_len, whole=True)
    size = e.log.bytes_per_token
    put("kv/bytes_per_token", size, whole=True)
    for key, tokens in (("pool_bytes", pool), ("held_bytes", held), ("tail_bytes", tail)):
        put("kv/" + key, None if None in (tokens, size) else tokens * size, whole=True)
    used = None if None in means else sum(means)
    put("kv/used_mean_tokens", used)
    put("kv/mean_length_requests", ratio(pool, used))
    put("kv/full_length_requests", ratio(pool, e.log.max_model_len))
    used_length(prompt, output, life, e.log.max_model_len, put)
    for key in ("used_length", "used_mean_tokens"):
        put("kv/measured_s/" + key, prompt.seconds if prompt else 0.0)
    for key, of in (
        ("prefix_hit_pct", lambda body: body.gauge("prefix_cache_queries_total")),
        ("recomputed_tokens_per_s", lambda body: body.gauge("num_preemptions_total")),
    ):
        put("kv/measured_s/" + key, e.measured(window, of))


def used_length(prompt, output, life, most, put):
    n = int(min(prompt.n, output.n)) if prompt and output else 0
    q = next((q for q, least in ENOUGH if n >= least), None)
    if q is None:
        return put("kv/used_length", None)
    p, o = prompt.bounds(q), output.bounds(q)
    low = max(p[0] + output.smallest(), o[0] + prompt.smallest())
    tails = [found.bounds(1 - (1 - q) / 2)[1] for found in (prompt, output)]
    high = None if None in tails else sum(tails)
    high = min([x for x in (high, most) if x is not None], default=None)
    put("kv/used_length/quantile", q)
    put("kv/used_length/restarts", life[0], whole=True)
    put("kv/used_length/since_restart", life[1])
    put("kv/used_length/n", n, whole=True)
    put("kv/used_length/lo", low)
    put("kv/used_length/hi", high)
    put("kv/used_length/tokens", [low, high], inside=True)


def sharing(lengths, held, hits, newest_hits):
    """Lengths together over what they hold, between 1 and what the prefix cache found."""
    if None in (lengths, held) or held <= 0:
        return None
    hit = min(x for x in (hits, newest_hits) if x is not None) if hits is not None else None
    most = 1.0 if hit is None else 1 / max(1 - hit / 100, 1e-3)
    return min(max(lengths / held, 1.0), most)


def percent(part, whole):
    share = ratio(part, whole)
    return None if share is None else min(max(share * 100, 0.0), 100.0)
