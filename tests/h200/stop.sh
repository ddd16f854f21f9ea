#!/usr/bin/env bash
# How long it takes until a probe's device memory is back, and whether anything of it is left, when the probe is stopped
# (Ctrl-C), its parent is killed (kill -9) and its child is killed.
#
#   stop.sh WARPTOP [PROBE ARGUMENTS...]     # hbm --seconds 20, unless others are given
set -u
warptop=$(realpath "$1"); shift
[ $# -gt 0 ] || set -- hbm --seconds 20
export XDG_STATE_HOME=$(mktemp -d)
# Nothing else may be on that GPU: every MiB above what was used before is the probe's.
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0; }
now() { date +%s%3N; }
before=$(used)
for how in ctrl-c kill-parent kill-child; do
  "$warptop" probe "$@" --yes --json >/dev/null 2>"$XDG_STATE_HOME/err" &
  parent=$!
  for _ in $(seq 100); do sleep 0.1; [ "$(used)" -gt $((before + 1000)) ] && break; done
  sleep 1
  child=$(pgrep -P $parent | head -1)
  holds=$(used); from=$(now)
  case $how in
    ctrl-c) kill -INT $parent;;
    kill-parent) kill -KILL $parent;;
    kill-child) kill -KILL "$child";;
  esac
  while [ "$(used)" -gt $((before + 50)) ] && [ $(($(now) - from)) -lt 10000 ]; do :; done
  to=$(now)
  wait $parent 2>/dev/null; code=$?
  echo "$how: $before MiB before, $holds while it ran, $(used) after $((to - from)) ms; exit $code; $(pgrep -fc __probe-child) children left; $(tail -1 "$XDG_STATE_HOME/err")"
  sleep 3
done
