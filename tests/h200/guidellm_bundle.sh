#!/usr/bin/env bash
# Packs guidellm 0.8.1 and what it needs for a machine without a network that has Python 3.12, torch, transformers and a
# vLLM with its packages: one archive of about 40 MB, small enough to be carried along. About a minute; needs pip here.
#
#   guidellm_bundle.sh FOLDER     # FOLDER, which git should ignore, gets guide.tar.xz
#
# PYTHON=3.11 packs it for another Python. There: mkdir -p /tmp/guide && tar -C /tmp/guide -xJf guide.tar.xz, and /tmp/guide first in PYTHONPATH.
set -euo pipefail
mkdir -p "$1"; out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# All that guidellm wants beside torch, transformers, numpy, aiohttp, pydantic and what those bring along.
cat >"$work/need.txt" <<'N'
guidellm==0.8.1
aiofiles==25.1.0
aiologic==0.17.1
anyio==4.16.0
certifi
click==8.4.2
culsans==0.10.0
datasets==5.2.0
dill==0.4.1
eval_type_backport==0.4.0
faker==40.63.0
fsspec==2026.9.0
ftfy==6.3.1
h11==0.16.0
h2==4.4.1
hpack==4.2.0
html5tagger==2.0.0
httpcore==1.0.9
httptools==0.8.0
httpx==0.28.1
hyperframe==6.1.0
idna==3.20
loguru==0.7.3
markdown-it-py==4.3.0
mdurl==0.1.2
more-itertools==11.2.1
msgpack==1.2.4
multidict==6.9.1
multiprocess==0.70.19
pandas==3.1.1
pyarrow==26.0.1
pygments==2.21.0
python-dateutil==4.0.0
pyyaml==6.0.4
rich==15.0.0
sanic==25.12.1
sanic-routing==23.12.0
sniffio==1.3.1
tabulate==0.10.0
tracerite==2.6.5
tzdata==2026.6
ujson==6.1.0
uvloop==0.23.0
wcwidth==0.9.4
wrapt==2.5.2
xxhash==4.1.0
N
platforms=$(printf -- '--platform manylinux_2_%s_x86_64 ' 5 12 17 24 26 27 28 31 34 35; printf -- '--platform manylinux1_x86_64 --platform manylinux2014_x86_64')
# shellcheck disable=SC2086
python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --no-deps --no-compile --only-binary=:all: \
  --python-version "${PYTHON:-3.12}" --implementation cp $platforms --target "$work/site" -r "$work/need.txt"
cd "$work/site"
# What a load never uses. (libarrow_substrait is linked to by the rest.)
rm -rf bin pyarrow/{include,src,tests} pyarrow/libarrow_{flight,s3}* pyarrow/{_flight,_s3fs,_pyarrow_cpp_tests}*.so pyarrow/lib*python_flight* \
  pandas/tests faker/sphinx
for lib in pyarrow/libarrow_python.so pyarrow/libarrow_python.so.*.*.*; do ln -sf libarrow_python.so.2600 "$lib"; done
# Names and texts in other languages than the one that guidellm asks for.
find faker/providers -mindepth 2 -maxdepth 2 -type d ! -name 'en*' ! -name 'la' ! -name '__pycache__' -prune -print0 |
  while IFS= read -r -d '' dir; do case ${dir##*/} in ??_??|??_??_*|???_??|??) rm -rf "$dir";; esac; done
find . -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' | xargs rm -f
tar -cf - . | xz -T2 -3 >"$out/guide.tar.xz"
du -sh "$work/site" "$out/guide.tar.xz"
