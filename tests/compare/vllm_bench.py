#!/usr/bin/env python3
"""`vllm bench serve` that stays loaded: importing it takes longer than many a run of it.

Reads the arguments of a run from each line of its standard input, runs it with vLLM's own code, and answers with its exit
status. What vLLM prints goes to standard error.
"""
import os
import shlex
import sys
import traceback

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from vllm.benchmarks.serve import add_cli_args, main  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402

parser = FlexibleArgumentParser()
add_cli_args(parser)
print("ready", file=answers, flush=True)
for line in sys.stdin:
    try:
        main(parser.parse_args(shlex.split(line)))
        status = 0
    except SystemExit as end:
        status = end.code
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    print(status, file=answers, flush=True)
