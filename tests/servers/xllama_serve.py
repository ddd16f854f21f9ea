#!/usr/bin/env python3
"""Runs llama.cpp's own HTTP server, which the wheel xllamacpp holds, on the CPU until SIGTERM."""
import argparse
import os
import signal
import threading

import xllamacpp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", required=True)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--parallel", type=int, default=4, help="slots")
parser.add_argument("--ctx-size", type=int, default=8192, help="context of all slots together")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--api-key")
parser.add_argument("--lives-with", type=int, help="end when the process with this id has ended")
options = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = options.model
params.hostnames = [options.host]
params.port = options.port
params.n_parallel = options.parallel
params.n_ctx = options.ctx_size
params.endpoint_metrics = True
params.endpoint_slots = True
params.endpoint_props = True
params.n_gpu_layers = 0
params.cpuparams.n_threads = options.threads
params.cpuparams_batch.n_threads = options.threads
# Each stream holds one of these; with fewer than there are clients the rest would wait where no metric sees them.
params.n_threads_http = 32
if options.api_key:
    params.api_keys = [options.api_key]

server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)

end = threading.Event()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: end.set())
while not end.wait(1):
    if options.lives_with and not os.path.exists(f"/proc/{options.lives_with}"):
        break
