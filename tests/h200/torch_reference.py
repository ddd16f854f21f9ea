#!/usr/bin/env python3
"""What PyTorch reaches on this machine, for every figure of warptop's probes that has such a thing beside it.

    torch_reference.py [--rows hbm,pcie,kvload,launch,gemm,soak,moe,hostmem,p2p] [--seconds 0.2] [--soak-seconds 60]

One JSON object on standard output: `figures`, each {"probe", "id", "unit", "value" (median), "n", "lo", "hi", "better",
"method"}, and `errors` for the rows that did not work. Where several ways lead to one figure, all are there as ID.WAY
and ID is the best of them. Random data, warm-up, CUDA events unless the method says otherwise.
"""
import argparse, ctypes, json, os, statistics, subprocess, sys, tempfile, time, traceback

import torch

MIB = 1 << 20
FIGURES = []
ARGS = None


def figure(probe, name, unit, values, better, method):
    """Keeps the median of `values` with its extremes."""
    row = dict(probe=probe, id=name, unit=unit, value=statistics.median(values), n=len(values), lo=min(values),
               hi=max(values), better=better, method=method)
    FIGURES.append(row)
    return row


def best(probe, name, rows):
    """The best of several ways under its own name."""
    rows = [row for row in rows if row]
    if rows:
        pick = max if rows[0]["better"] == "higher" else min
        won = pick(rows, key=lambda row: row["value"])
        FIGURES.append(dict(won, id=name, method=f"best of {len(rows)}: {won['id']}: {won['method']}"))


def timed_us(do, times=1):
    """Time of `times` calls between two events, µs."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        do()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def repeat_us(do, seconds=None, pass_us=3000.0, least=5):
    """Times of one call, µs: passes of about `pass_us` until `seconds` are over."""
    for _ in range(3):
        do()
    torch.cuda.synchronize()
    times = max(1, min(1000, int(pass_us / max(timed_us(do), 1.0))))
    out, until = [], time.perf_counter() + (seconds or ARGS.seconds)
    while len(out) < least or time.perf_counter() < until:
        out.append(timed_us(do, times) / times)
    return out


def wall_us(do, n, warm=20):
    """Host times of `n` calls, each with what it waits for, µs."""
    for _ in range(warm):
        do()
    out = []
    for _ in range(n):
        begin = time.perf_counter_ns()
        do()
        out.append((time.perf_counter_ns() - begin) / 1e3)
    return out


def rates(size, times_us):
    """GB/s of `size` bytes."""
    return [size / us / 1e3 for us in times_us]


def random_like(count, dtype, device="cuda"):
    # A float32 at a time: 2 GiB of float64 need no more than the array and half as much.
    out = torch.empty(count, dtype=dtype, device=device)
    for piece in out.split(1 << 26):
        piece.copy_(torch.rand(piece.numel(), device=device) + 1)
    return out


# ---- hbm: bytes as STREAM counts them -------------------------------------------------------------------------------

def hbm():
    found = {name: [] for name in ("read", "write", "copy", "triad")}
    names = {torch.float64: "float64", torch.float32: "float32", torch.bfloat16: "bfloat16"}
    for mib in (512, 2048):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            size = mib * MIB
            count = size // dtype.itemsize
            a = torch.full((count,), -1.0, dtype=dtype, device="cuda")
            b, c = random_like(count, dtype), random_like(count, dtype)

            def add(name, arrays, do, what):
                way = f"{name}.{names[dtype]}_{mib}mib"
                found[name].append(figure("hbm", way, "GB/s", rates(arrays * size, repeat_us(do)), "higher", what))

            if dtype != torch.bfloat16:
                add("read", 1, lambda: torch.sum(b), "torch.sum")
                add("triad", 3, lambda: torch.add(b, c, alpha=0.4, out=a), "torch.add(b, c, alpha=0.4, out=a)")
                if not torch.allclose(a[:4096], b[:4096] + 0.4 * c[:4096]):
                    raise RuntimeError("the triad is wrong")
            add("write", 1, lambda: a.fill_(0.4), "fill_")
            add("copy", 2, lambda: a.copy_(b), "copy_")
            if not torch.equal(a, b):
                raise RuntimeError("the copy is wrong")
            del a, b, c
    torch.cuda.empty_cache()
    for name, rows in found.items():
        best("hbm", name, rows)


# ---- pcie -----------------------------------------------------------------------------------------------------------

def pcie():
    size = 256 * MIB
    there = [torch.randint(0, 255, (size,), dtype=torch.uint8, device="cuda") for _ in range(2)]
    pinned = [torch.empty(size, dtype=torch.uint8, pin_memory=True).copy_(data) for data in there]
    plain = torch.empty(size, dtype=torch.uint8).copy_(there[1])
    there[0].zero_()

    def add(name, bytes_, do, what):
        figure("pcie", name, "GB/s", rates(bytes_, repeat_us(do, max(ARGS.seconds, 0.3), 1.0, 10)), "higher", what)

    add("h2d", size, lambda: there[0].copy_(pinned[0], non_blocking=True), "256 MiB, pinned, copy_(non_blocking)")
    if not torch.equal(there[0].cpu(), pinned[0]):
        raise RuntimeError("the copy is wrong")
    add("d2h", size, lambda: pinned[1].copy_(there[1], non_blocking=True), "256 MiB, pinned, copy_(non_blocking)")

    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def both():
        up.wait_stream(torch.cuda.current_stream())
        down.wait_stream(torch.cuda.current_stream())
        for _ in range(4):
            with torch.cuda.stream(up):
                there[0].copy_(pinned[0], non_blocking=True)
            with torch.cuda.stream(down):
                pinned[1].copy_(there[1], non_blocking=True)
        torch.cuda.current_stream().wait_stream(up)
        torch.cuda.current_stream().wait_stream(down)

    add("both", 8 * size, both, "256 MiB four times each way on two streams, pinned; the sum of both ways")

    def paged(name, do):
        times = wall_us(lambda: (do(), torch.cuda.synchronize()), 12, 2)
        figure("pcie", name, "GB/s", rates(size, times), "higher", "256 MiB, pageable, host's clock, until done")

    paged("h2d_pageable", lambda: there[0].copy_(plain))
    paged("d2h_pageable", lambda: plain.copy_(there[0]))

    for bytes_, size_ in ((4, "4b"), (4096, "4kib"), (65536, "64kib")):
        for way in ("h2d", "d2h"):
            host = torch.empty(bytes_, dtype=torch.uint8, pin_memory=True).fill_(7)
            gpu = torch.empty(bytes_, dtype=torch.uint8, device="cuda")
            into, source = (gpu, host) if way == "h2d" else (host, gpu)
            stream = torch.cuda.current_stream()
            times = wall_us(lambda: (into.copy_(source, non_blocking=True), stream.synchronize()), 2000)
            figure("pcie", f"{way}_latency" + ("" if bytes_ == 4 else f"_{size_}"), "µs", times, "lower",
                   f"{bytes_} bytes, pinned, copy_ and synchronize, host's clock, through Python")
            rows = []
            for _ in range(30):
                # The host hands all in while the large one runs.
                there[0][:64 * MIB].copy_(pinned[0][:64 * MIB], non_blocking=True)
                rows.append(timed_us(lambda: into.copy_(source, non_blocking=True), 128) / 128)
            figure("pcie", f"{way}_device_{size_}", "µs", rows, "lower", f"{bytes_} bytes, pinned, 128 in a row behind a large copy")


# ---- kv: one block from host to GPU ---------------------------------------------------------------------------------

KV = dict(load_128kib=128 << 10, load_1200kib=1200 << 10, load_16mib=16 << 20, load_1gib=1 << 30)


def kvload():
    most, stream = 1 << 30, torch.cuda.current_stream()
    gpu = torch.randint(0, 255, (most,), dtype=torch.uint8, device="cuda")
    host = torch.empty(most, dtype=torch.uint8, pin_memory=True).copy_(gpu)
    for name, size in KV.items():
        places = most // size
        turn = [0]

        def load():
            # Another block each time: none comes from the host's caches.
            at = (turn[0] * 7919 % places) * size
            turn[0] += 1
            gpu[:size].copy_(host[at:at + size], non_blocking=True)

        n = 12 if size == most else 300
        done = [timed_us(load) for _ in range(n + 3)][3:]
        figure("kvload", name + "_device", "µs", done, "lower", f"{size} bytes, pinned, one block, between two events")
        waits = wall_us(lambda: (load(), stream.synchronize()), n, 3)
        figure("kvload", name, "µs", waits, "lower", f"{size} bytes, pinned, one block, host's clock until done, through Python")


# ---- launch ---------------------------------------------------------------------------------------------------------

EMPTY = r"""
#include <time.h>
__global__ void empty() {}
__global__ void quarter(double *to, const double *from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i] * 0.25;
}
static long long now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
extern "C" void give(cudaStream_t s, int n) { for (int i = 0; i < n; i++) empty<<<1, 1, 0, s>>>(); }
extern "C" void give_small(cudaStream_t s, int n, double *to, const double *from) {
    for (int i = 0; i < n; i++) quarter<<<8, 512, 0, s>>>(to, from);
}
extern "C" long long burst(cudaStream_t s, int n) { long long t = now(); give(s, n); return now() - t; }
extern "C" long long until_done(cudaStream_t s, int n) {
    long long t = now(); give(s, n); cudaStreamSynchronize(s); return now() - t;
}
extern "C" int failed() { return cudaDeviceSynchronize() | cudaGetLastError(); }
"""


def empty_kernel():
    """An empty kernel and loops around it, in C++: what Python costs is not the machine's."""
    folder = tempfile.mkdtemp()
    major, minor = torch.cuda.get_device_capability()
    with open(f"{folder}/empty.cu", "w") as file:
        file.write(EMPTY)
    subprocess.run(["nvcc", "-O2", "-shared", "-Xcompiler", "-fPIC", f"-arch=sm_{major}{minor}", "-o",
                    f"{folder}/empty.so", f"{folder}/empty.cu"], check=True, stdout=sys.stderr)
    lib = ctypes.CDLL(f"{folder}/empty.so")
    for name in ("burst", "until_done"):
        getattr(lib, name).restype = ctypes.c_longlong
    for name in ("give", "burst", "until_done"):
        getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.c_int]
    lib.give_small.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return lib


def launch():
    side = torch.cuda.Stream()
    tiny = torch.zeros(1, device="cuda")
    ways = [("torch_sleep0", lambda: torch.cuda._sleep(0), "torch.cuda._sleep(0) from Python"),
            ("torch_add", lambda: tiny.add_(1), "add_ of one float from Python")]
    try:
        import cupy
        kernel = cupy.RawKernel('extern "C" __global__ void empty() {}', "empty")
        stream = cupy.cuda.ExternalStream(side.cuda_stream)

        def raw():
            kernel((1,), (1,), ())
        stream.use()
        ways.append(("cupy", raw, "empty kernel, cupy.RawKernel from Python"))
    except Exception as problem:
        note("launch: cupy", problem)
    with torch.cuda.stream(side):
        for name, do, what in ways:
            bursts = []
            for _ in range(7):
                torch.cuda.synchronize()
                begin = time.perf_counter_ns()
                for _ in range(10_000):
                    do()
                torch.cuda.synchronize()
                bursts.append((time.perf_counter_ns() - begin) / 1e7)
            figure("launch", f"plain.{name}", "µs", bursts[1:], "lower", f"10 000 until done: {what}")
            waits = wall_us(lambda: (do(), side.synchronize()), 2000)
            figure("launch", f"sync.{name}", "µs", waits, "lower", f"one and synchronize: {what}")
        lib, s = empty_kernel(), side.cuda_stream
        lib.until_done(s, 1000)
        if lib.failed():
            raise RuntimeError("the empty kernel does not run")
        how = "empty kernel, CUDA runtime in C++"
        figure("launch", "plain", "µs", [lib.until_done(s, 10_000) / 1e7 for _ in range(15)], "lower", f"10 000 until done: {how}")
        host = []
        for _ in range(50):
            host.append(lib.burst(s, 500) / 5e5)
            side.synchronize()
        figure("launch", "plain_host", "µs", host, "lower", f"host's time to hand in each of 500: {how}")
        device = [held_us(lambda: lib.give(s, 500)) / 500 for _ in range(30)]
        figure("launch", "plain_device", "µs", device, "lower", f"each of 500 between two events, handed in while the GPU was busy: {how}")
        figure("launch", "sync", "µs", [lib.until_done(s, 1) / 1e3 for _ in range(2000)], "lower", f"one and synchronize: {how}")
        graphs(lib, side)


def held_us(do):
    """Time on the device of what is handed in while it is kept busy, µs."""
    torch.cuda._sleep(8_000_000)
    return timed_us(do)


def captured(side, give):
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side):
        give(torch.cuda.current_stream().cuda_stream)
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    return graph


def until_done_us(side, do, kernels, n=15):
    """Times a kernel from the first call until the device is done, µs."""
    return [us / kernels for us in wall_us(lambda: (do(), side.synchronize()), n, 2)]


def graphs(lib, side):
    """CUDA graphs of empty kernels in a row, captured and replayed by PyTorch; and a kernel that does a little."""
    for name, nodes in (("graph", 100), ("graph_10", 10), ("graph_1000", 1000)):
        graph, batch = captured(side, lambda s: lib.give(s, nodes)), 10_000 // nodes
        how = f"torch.cuda.graph of {nodes} empty kernels"

        def replays(times=batch):
            for _ in range(times):
                graph.replay()

        figure("launch", name, "µs", until_done_us(side, replays, 10_000), "lower", f"a node, {batch} replays in a row until done, host's clock: {how}")
        figure("launch", f"{name}_sync", "µs", until_done_us(side, graph.replay, nodes, 200), "lower", f"a node, one replay until done, host's clock: {how}")
        figure("launch", f"{name}_host", "µs", [us for _ in range(20) for us in handed_us(side, graph.replay)], "lower", f"host's time to hand in a replay: {how}")
        few = max(1, min(10, 2000 // nodes))
        device = [held_us(lambda: replays(few)) / few / nodes for _ in range(30)]
        figure("launch", f"{name}_device", "µs", device, "lower", f"a node, {few} replays between two events, handed in while the GPU was busy: {how}")
        del graph
    to, source = torch.empty(4096, dtype=torch.float64, device="cuda"), torch.rand(4096, dtype=torch.float64, device="cuda")
    small = lambda s, n: lib.give_small(s, n, to.data_ptr(), source.data_ptr())
    what = "kernel of 64 kB, CUDA runtime in C++"
    figure("launch", "small", "µs", until_done_us(side, lambda: small(side.cuda_stream, 10_000), 10_000), "lower", f"10 000 until done: {what}")
    graph = captured(side, lambda s: small(s, 1000))
    figure("launch", "small_graph", "µs", until_done_us(side, lambda: [graph.replay() for _ in range(10)], 10_000), "lower", f"a node, 10 replays of torch.cuda.graph of 1000: {what}")
    if not torch.equal(to, source * 0.25):
        raise RuntimeError("the kernel is wrong")


def handed_us(side, do, n=5):
    """Host times of handing in, µs, into an empty queue."""
    out = []
    for _ in range(n):
        side.synchronize()
        begin = time.perf_counter_ns()
        do()
        out.append((time.perf_counter_ns() - begin) / 1e3)
    side.synchronize()
    return out


# ---- gemm and soak --------------------------------------------------------------------------------------------------

N = 8192
FLOP = 2 * N ** 3


def products():
    """Name, and three products whose operands are others each time: none is in L2."""
    torch.set_float32_matmul_precision("high")

    def plain(dtype):
        sets = [[torch.randn(N, N, device="cuda").to(dtype) for _ in range(2)] for _ in range(3)]
        out = torch.empty(N, N, device="cuda", dtype=dtype)
        return [lambda a=a, b=b: torch.mm(a, b, out=out) for a, b in sets]

    def fp8(fast):
        one = torch.ones((), device="cuda")
        sets = [[torch.randn(N, N, device="cuda").to(torch.float8_e4m3fn) for _ in range(2)] for _ in range(3)]
        # The second operand has to lie by columns.
        return [lambda a=a, b=b: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
                                                  use_fast_accum=fast) for a, b in sets]

    yield "bf16", lambda: plain(torch.bfloat16), "torch.mm"
    yield "fp16", lambda: plain(torch.float16), "torch.mm"
    yield "tf32", lambda: plain(torch.float32), "torch.mm of float32, set_float32_matmul_precision('high')"
    yield "fp8", lambda: fp8(True), "torch._scaled_mm of e4m3, use_fast_accum"
    yield "fp8_exact_accum", lambda: fp8(False), "torch._scaled_mm of e4m3, no use_fast_accum"


def gemm():
    for name, make, what in products():
        try:
            sets = make()
            for do in sets:
                do()
            torch.cuda.synchronize()
            times, first = [], []
            for _ in range(2):
                # Cold: after a rest, and over before the power limit is felt for long.
                time.sleep(1.5)
                for do in sets:
                    do()
                burst = max(18, int(ARGS.seconds * 1e6 / timed_us(sets[0])))
                events = [torch.cuda.Event(enable_timing=True) for _ in range(burst + 1)]
                events[0].record()
                for i in range(burst):
                    sets[i % 3]()
                    events[i + 1].record()
                torch.cuda.synchronize()
                took = [FLOP / a.elapsed_time(b) / 1e9 for a, b in zip(events, events[1:])]
                times, first = times + took, first + took[:18]
            how = f"{N}³, random data, operands rotated, 2 bursts of {ARGS.seconds:g} s after a rest: {what}"
            figure("gemm", name, "TFLOP/s", times, "higher", how)
            figure("gemm", f"{name}_first", "TFLOP/s", first, "higher", "the first 18 of each burst: " + how)
            del sets
            torch.cuda.empty_cache()
        except Exception as problem:
            note(f"gemm: {name}", problem)


def soak():
    sets = next(make for name, make, _ in products() if name == "bf16")()
    for do in sets:
        do()
    torch.cuda.synchronize()
    time.sleep(2)
    began, series = time.perf_counter(), []
    while (at := time.perf_counter() - began) < ARGS.soak_seconds:
        ms = timed_us(lambda: [do() for do in sets], 20) / 1e3
        series.append((at, 60 * FLOP / ms / 1e9))
    first = [rate for at, rate in series if at < 3]
    last = [rate for at, rate in series if at >= ARGS.soak_seconds * 2 / 3]
    what = f"{N}³ bf16, torch.mm without a pause for {ARGS.soak_seconds:g} s, 60 products each"
    figure("soak", "first", "TFLOP/s", first, "higher", what + "; first 3 s")
    figure("soak", "bf16", "TFLOP/s", last, "higher", what + "; last third")
    figure("soak", "loss", "%", [(1 - statistics.median(last) / statistics.median(first)) * 100], "lower", what)


# ---- moe ------------------------------------------------------------------------------------------------------------

def moe():
    def route(logits, k, count):
        weights, chosen = torch.topk(torch.softmax(logits, dim=-1), k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, chosen, count(chosen.flatten())

    for experts in (8, 64, 128, 256):
        ones = torch.ones(4096 * 8, dtype=torch.int64, device="cuda")
        for k in (2, 8):
            for tokens in (1, 32, 256, 4096):
                logits = torch.randn(tokens, experts, device="cuda")
                name = f"e{experts}_k{k}_t{tokens}"

                def counted(flat):
                    # bincount waits for the device and cannot be captured; this can.
                    return torch.zeros(experts, dtype=torch.int64, device="cuda").scatter_add_(0, flat, ones[:flat.numel()])

                def eager():
                    return route(logits, k, lambda flat: torch.bincount(flat, minlength=experts))

                if not torch.equal(eager()[2], route(logits, k, counted)[2]):
                    raise RuntimeError("the counts differ")
                times = wall_us(lambda: (eager(), torch.cuda.current_stream().synchronize()), 60, 5)
                figure("moe", f"eager_{name}", "µs", times, "lower", "softmax, topk, renormalise, bincount, until done, host's clock")
                row = repeat_us(lambda: route(logits, k, counted), 0.03, 1000.0, 10)
                figure("moe", f"unfused_stream_{name}", "µs", row, "lower", "softmax, topk, renormalise, scatter_add, launched one after another from Python, each")
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for _ in range(20):
                        route(logits, k, counted)
                done = [us / 20 for us in repeat_us(graph.replay, 0.03, 1000.0, 10)]
                what = "softmax, topk, renormalise, scatter_add; 20 in a CUDA graph, each"
                figure("moe", f"unfused_{name}", "µs", done, "lower", what)
                # PyTorch has nothing fused: this is what a fused one replaces.
                figure("moe", f"fused_{name}", "µs", done, "lower", "not fused: " + what)
                del graph


# ---- host memory ----------------------------------------------------------------------------------------------------

def hostmem():
    count = 512 * MIB // 8
    a, b, c = (torch.rand(count, dtype=torch.float64) for _ in range(3))
    nodes = [name for name in os.listdir("/sys/devices/system/node") if name.startswith("node")]
    # The probe measures node by node; PyTorch's threads go where they like.
    where = "node0" if len(nodes) < 2 else "all"
    how = f"512 MiB arrays of float64, {torch.get_num_threads()} threads on {len(nodes)} nodes: "

    def add(name, arrays, do, what):
        figure("hostmem", f"{where}_{name}", "GB/s", rates(arrays * count * 8, wall_us(do, 10, 2)), "higher", how + what)

    add("read", 1, lambda: torch.sum(b), "torch.sum")
    add("write", 1, lambda: a.fill_(0.4), "fill_")
    add("copy", 2, lambda: a.copy_(b), "copy_")
    add("triad", 3, lambda: torch.add(b, c, alpha=0.4, out=a), "torch.add(b, c, alpha=0.4, out=a)")


# ---- several GPUs ---------------------------------------------------------------------------------------------------

def p2p():
    gpus = torch.cuda.device_count()
    if gpus < 2:
        raise RuntimeError("one GPU: nothing to measure between")
    size = 256 * MIB
    for i in range(gpus):
        for j in range(gpus):
            if i != j:
                pair(i, j, size)
    torch.cuda.empty_cache()
    all_reduce(gpus)


def pair(i, j, size):
    def buffers(device):
        return [torch.randint(0, 255, (size,), dtype=torch.uint8, device=f"cuda:{device}") for _ in range(2)]

    here, there = buffers(i), buffers(j)
    torch.cuda.synchronize(i)
    torch.cuda.synchronize(j)
    # A copy between two GPUs takes the current stream of both: each way needs a pair of its own.
    streams = [(torch.cuda.Stream(i), torch.cuda.Stream(j)) for _ in range(2)]

    def on(way, into, source):
        with torch.cuda.stream(streams[way][0]), torch.cuda.stream(streams[way][1]):
            into.copy_(source, non_blocking=True)

    def done():
        torch.cuda.synchronize(i)
        torch.cuda.synchronize(j)

    def one():
        for _ in range(8):
            on(0, there[0], here[0])
        done()

    def two():
        for _ in range(8):
            on(0, there[0], here[0])
            on(1, here[1], there[1])
        done()

    access = "peer access" if torch.cuda.can_device_access_peer(i, j) else "no peer access"
    figure("p2p", f"bw_{i}_{j}", "GB/s", rates(8 * size, wall_us(one, 12, 3)), "higher", f"8 copies of 256 MiB, host's clock, {access}")
    if not torch.equal(there[0].cpu(), here[0].cpu()):
        raise RuntimeError(f"the copy from {i} to {j} is wrong")
    if i < j:
        figure("p2p", f"bi_{i}_{j}", "GB/s", rates(16 * size, wall_us(two, 12, 3)), "higher", "8 copies of 256 MiB each way at once, their sum, host's clock")
    figure("p2p", f"copy_{i}_{j}", "µs", wall_us(lambda: (on(0, there[0][:4], here[0][:4]), done()), 500), "lower",
           "copy of 4 bytes until done, host's clock, through Python")


REDUCE = {"1m": 1 << 20, "64m": 64 << 20, "512m": 512 << 20}


def reduce_worker(rank, gpus, store, out):
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=gpus)
    found = {}
    for name, size in REDUCE.items():
        data = torch.full((size // 4,), float(rank + 1), device="cuda")
        dist.all_reduce(data)
        if not bool((data == gpus * (gpus + 1) / 2).all()):
            raise RuntimeError("the sum is wrong")
        inner, found[name] = 20 if size <= 16 << 20 else 4, []
        for _ in range(16):
            data.normal_()
            found[name].append(timed_us(lambda: dist.all_reduce(data), inner) / inner)
        # The first warms up.
        del found[name][0]
    if rank == 0:
        with open(out, "w") as file:
            json.dump(found, file)
    dist.destroy_process_group()


def all_reduce(gpus):
    import torch.multiprocessing as mp
    folder = tempfile.mkdtemp()
    mp.spawn(reduce_worker, args=(gpus, f"{folder}/store", f"{folder}/out.json"), nprocs=gpus)
    with open(f"{folder}/out.json") as file:
        found = json.load(file)
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    for name, times in found.items():
        how = f"float32, {gpus} GPUs, one process each, NCCL {nccl}, NCCL_NVLS_ENABLE={os.environ['NCCL_NVLS_ENABLE']}"
        figure("p2p", f"allreduce_{name}", "µs", times, "lower", how)
        bus = [REDUCE[name] / us / 1e3 * 2 * (gpus - 1) / gpus for us in times]
        figure("p2p", f"allreduce_{name}_bus", "GB/s", bus, "higher", "bus bandwidth; " + how)


# ---- all of it ------------------------------------------------------------------------------------------------------

ERRORS = {}


def note(where, problem):
    ERRORS[where] = f"{type(problem).__name__}: {problem}"[:500]
    traceback.print_exception(problem, file=sys.stderr)


def state():
    """Clocks, power and heat as nvidia-smi says them."""
    fields = "clocks.sm,clocks.mem,temperature.gpu,power.draw,power.limit,clocks_event_reasons.active,utilization.gpu"
    try:
        ran = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
        return ran.stdout.strip().splitlines()
    except Exception as problem:
        return [str(problem)]


ROWS = dict(hbm=hbm, pcie=pcie, kvload=kvload, launch=launch, gemm=gemm, soak=soak, moe=moe, hostmem=hostmem, p2p=p2p)


def main():
    global ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="hbm,pcie,kvload,launch,gemm,moe,hostmem,soak", help="of " + ",".join(ROWS))
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each figure of hbm and pcie, and a burst of gemm")
    parser.add_argument("--soak-seconds", type=float, default=60)
    ARGS = parser.parse_args()
    rows = ARGS.rows.split(",")
    if wrong := [row for row in rows if row not in ROWS]:
        parser.error(f"no such row: {', '.join(wrong)}")
    # NVLink multicast stays off unless somebody decided otherwise.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.manual_seed(11)
    began, states = time.time(), {}
    for row in rows:
        before, at = state(), time.time()
        try:
            # Streams and settings of one row are not the next one's.
            with torch.cuda.stream(torch.cuda.Stream()):
                ROWS[row]()
        except Exception as problem:
            note(row, problem)
        torch.cuda.empty_cache()
        states[row] = dict(before=before, after=state(), seconds=round(time.time() - at, 1))
    print(json.dumps(dict(
        schema="warptop.torch/1", started_unix_ms=round(began * 1000), ended_unix_ms=round(time.time() * 1000),
        gpus=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())], torch=torch.__version__,
        cuda=torch.version.cuda, figures=FIGURES, errors=ERRORS, states=states), indent=1))
    return 1 if ERRORS and not FIGURES else 0


if __name__ == "__main__":
    sys.exit(main())
