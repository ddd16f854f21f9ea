#!/usr/bin/env python3
"""Makes evidence that is small enough to keep of what probes.sh and beside_vllm.sh brought back.

    keep_evidence.py probes.tar.gz [PROBE...]    into docs/evidence/probes: reports with a result, PyTorch's figures
    keep_evidence.py beside.json                 into docs/evidence/beside.json

Figures stay as they are. Of the single measurements as many are kept as fit; the others are counted in
`samples_left_out`. The machine's name and folders are left out. Then: UPDATE_TIDY=1 cargo test --test evidence
"""
import io, json, os, re, sys, tarfile

MOST = 56 << 10
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "evidence")


def clean(value):
    """Without folders of the machine: the file's own name stays."""
    if isinstance(value, str):
        return re.sub(r"(?<![\w/.])/(?:[\w.+-]+/)+", "", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    return value


def text(document):
    """JSON with a line for each field, and one for each list entry of any depth."""
    out = io.StringIO()
    out.write("{\n")
    for i, (key, value) in enumerate(document.items()):
        out.write(f"{',' * bool(i)}{chr(10) * bool(i)} {json.dumps(key)}: ")
        if isinstance(value, list) and value:
            out.write("[\n  " + ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in value) + "\n ]")
        else:
            out.write(json.dumps(value, ensure_ascii=False))
    out.write("\n}\n")
    return out.getvalue()


def small(report):
    """The report with as many samples of each series as fit."""
    report = dict(clean(report), host="")
    every = report["samples"]
    if len(text(report).encode()) <= MOST:
        return report
    series = {}
    for sample in every:
        series.setdefault(sample["series"], []).append(sample)
    for most in (200, 100, 50, 30, 20, 10, 5, 0):
        kept = {id(sample) for samples in series.values() for sample in samples[:most]}
        report["samples"] = [sample for sample in every if id(sample) in kept]
        report["samples_left_out"] = len(every) - len(report["samples"])
        if len(text(report).encode()) <= MOST:
            break
    return report


def keep(name, document):
    path = os.path.normpath(os.path.join(ROOT, name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text(document))
    print(f"{os.path.getsize(path):8} {name}")


def main():
    source, only = sys.argv[1], sys.argv[2:]
    if source.endswith(".json"):
        with open(source) as file:
            keep("beside.json", clean(json.load(file)))
        return
    with tarfile.open(source) as tar:
        for member in sorted(tar.getmembers(), key=lambda member: member.name):
            found = re.fullmatch(r"work/(torch-)?([a-z0-9]+)-(\d)\.json", member.name)
            if not found or only and found[2] not in only:
                continue
            try:
                document = json.load(tar.extractfile(member))
            except ValueError:
                print(f"{member.name}: nothing")
                continue
            name = f"probes/{os.path.basename(member.name)}"
            if found[1]:
                keep(name, clean({key: value for key, value in document.items() if key != "states"}))
            elif document["ending"] == "done":
                keep(name, small(document))
            else:
                print(f"{member.name}: {document['ending']}: {document['why']}")


if __name__ == "__main__":
    main()
