#!/usr/bin/env python3
"""What diagnosis.py puts beside a server: disturb.py KIND [ARGUMENT]. Says "ready" once it disturbs, and goes on until killed.

copy    copies 1 GiB of GPU memory to another place of it, without end
gemm    multiplies 8192 x 8192 matrices in bf16, without end
h2d     copies 1 GiB of pinned host memory to the GPU, without end
spin    a busy loop
faults  reads a mapped file of 256 MB in FOLDER page by page, drops it from the cache, reads it again: major faults that harm nobody
"""
import mmap, os, sys, tempfile


def with_torch(kind):
    import torch
    gib = 1 << 30
    if kind == "gemm":
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        step = lambda: torch.mm(a, b, out=c)
        c = torch.empty_like(a)
    else:
        source = torch.empty(gib, dtype=torch.uint8, **(dict(pin_memory=True) if kind == "h2d" else dict(device="cuda")))
        target = torch.empty(gib, dtype=torch.uint8, device="cuda")
        step = lambda: target.copy_(source, non_blocking=True)

    def some():
        for _ in range(8):
            step()
        torch.cuda.synchronize()
    return some


def spin():
    for _ in range(10_000_000):
        pass


def faults(folder):
    page, size = 4096, 256 << 20
    file = tempfile.TemporaryFile(dir=folder)
    for _ in range(size >> 20):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())  # a page not yet written cannot be dropped
    view = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
    view.madvise(mmap.MADV_RANDOM)  # no read-ahead: a fault a page

    def some():
        for at in range(0, size, page):
            view[at]
        view.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return some


def main():
    kind = sys.argv[1]
    some = spin if kind == "spin" else faults(sys.argv[2]) if kind == "faults" else with_torch(kind)
    some()
    print("ready", flush=True)
    while True:
        some()


if __name__ == "__main__":
    main()
