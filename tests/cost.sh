#!/usr/bin/env bash
# What warptop costs beside nvtop, nvitop, btop and `nvidia-smi dmon`, in one run: see cost/measure.py.
#
#   tests/cost.sh WARPTOP OUT [arguments of measure.py]
#
# A tool that is not installed is left out, with a word. Something should serve on this machine while it runs; what was
# running is part of what is kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
exec python3 "$here/cost/measure.py" "$(realpath "$1")" "$(realpath "$2")" "${@:3}"
