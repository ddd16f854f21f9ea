#!/usr/bin/env python3
"""Writes NAME.ptx from NAME.cu, for every kernel file here or those that are named.

    pip install nvidia-cuda-nvrtc-cu11==11.8.89 nvidia-cuda-nvrtc-cu12==12.0.140
    python3 regenerate.py [NAME ...]

Needs neither a GPU nor a CUDA toolkit: NVRTC is the compiler as a library. The first line of a .cu says for which
architecture; `a` architectures, which NVRTC 11.8 does not know, go through 12.0. Old compilers on purpose: a driver
takes PTX of its own age or older (11.8 writes ISA 7.8, which drivers from 520 on take; 12.0 writes 8.0, from 525 on).
"""
import ctypes
import pathlib
import re
import sys
import zlib

HERE = pathlib.Path(__file__).parent


def library(arch):
    wheel, soname = ("cu12", "libnvrtc.so.12") if arch.endswith("a") else ("cu11", "libnvrtc.so.11.2")
    for place in sys.path:
        found = list(pathlib.Path(place).glob(f"nvidia/cuda_nvrtc/lib/{soname}"))
        if found:
            # It opens the builtins by name later on.
            for builtins in found[0].parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(found[0]))
    sys.exit(f"no {soname}: pip install nvidia-cuda-nvrtc-{wheel} (see the top of this file)")


def text(nvrtc, program, size, get):
    n = ctypes.c_size_t()
    getattr(nvrtc, size)(program, ctypes.byref(n))
    out = ctypes.create_string_buffer(n.value)
    getattr(nvrtc, get)(program, out)
    return out.value.decode()


def compile_one(path):
    source = path.read_text()
    arch = re.match(r"// ptx: (\w+)", source)[1]
    nvrtc = library(arch)
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), path.name.encode(), 0, None, None)
    options = [f"--gpu-architecture={arch}", f"--include-path={HERE}", "--std=c++17"]
    array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    log = text(nvrtc, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").strip()
    if log:
        print(log, file=sys.stderr)
    if failed:
        sys.exit(f"{path.name}: not compiled")
    ptx = text(nvrtc, program, "nvrtcGetPTXSize", "nvrtcGetPTX")
    # Of the source and what it includes: tests/kernels.rs compares it.
    common = (HERE / "common.cuh").read_bytes()
    stamp = zlib.crc32(common, zlib.crc32(source.encode()))
    ptx = re.sub(r"^//.*\n|^\s*\n", "", ptx, flags=re.M)
    path.with_suffix(".ptx").write_text(f"// written by regenerate.py from {path.name}, crc32 {stamp:08x}\n{ptx}")
    print(path.with_suffix(".ptx").name, len(ptx) // 1024, "KiB")


names = sys.argv[1:] or sorted(p.stem for p in HERE.glob("*.cu"))
for name in names:
    compile_one(HERE / f"{name}.cu")
