#!/usr/bin/env python3
"""Holds warptop's diagnosis against what was injected: diagnosis_table.py WARPTOP FOLDER... [--every 1]

Each FOLDER has labels.json and warptop.jsonl.gz, as diagnosis.py writes them. From the tenth second of each phase on, every
second is asked for by `snapshot --replay --at`. Printed: a line a phase (the first three causes at its end with levels, share of
seconds right, changes of the first cause), the confusion table by seconds, and phases before and after a fix side by side.
"""
import argparse, collections, concurrent.futures, gzip, json, os, subprocess, sys

FROM = 10


def right(label, causes, level):
    """Whether these causes, the most harmful first, are a true verdict on the phase."""
    ranked = label["cause"] in causes[:label.get("within", 1)]
    named = bool(causes) and causes[0] in label.get("first", [label["cause"]]) or ranked
    return named and not (label.get("calm") and level == "act")


def findings(warptop, recording, at):
    got = subprocess.run([warptop, "snapshot", "--json", "--replay", recording, "--at", f"{at:.2f}"], capture_output=True, text=True)
    try:
        return json.loads(got.stdout).get("diagnosis", [])
    except ValueError:
        return [dict(cause=f"exit {got.returncode}", level="?", headline=got.stderr[-200:])]


def judge(label, series):
    """A phase's row from its findings second by second; the last entry is its end."""
    causes = [[finding["cause"] for finding in found] for found in series]
    levels = ["act" if any(finding["level"] == "act" for finding in found) else "" for found in series]
    firsts = [row[0] if row else "nothing" for row in causes]
    ok = [right(label, row, level) for row, level in zip(causes, levels)]
    return dict(label=label, end=series[-1], end_right=ok[-1], share=sum(ok) / len(ok), seconds=len(ok), firsts=firsts,
                changes=sum(a != b for a, b in zip(firsts, firsts[1:])))


def phases(warptop, folder, every, pool):
    recording = f"{folder}/warptop.jsonl.gz"
    with gzip.open(recording, "rt") as file:
        start = json.loads(file.readline())["start"]
    for label in json.load(open(f"{folder}/labels.json")):
        begin, end = (label[key] / 1000 - start / 1000 for key in ("from_ms", "to_ms"))
        moments, at = [], begin + FROM
        while at < end - 0.5:
            moments.append(at)
            at += every
        moments.append(end - 0.2)
        yield judge(label, list(pool.map(lambda at: findings(warptop, recording, at), moments)))


def table(head, rows):
    wide = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, wide)).rstrip())
    print()


def named(finding):
    return f"{finding['cause']} ({finding['level']})"


def pairs(rows):
    """Phases that repeat another's load, beside it."""
    by_name = {row["label"]["name"]: row["label"] for row in rows}
    keys = ["ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms", "e2e_p50_ms", "e2e_p99_ms", "tok_s", "requests", "cut"]
    for label in by_name.values():
        if label.get("pair") in by_name:
            for name in (label["pair"], label["name"]):
                yield [name, *(by_name[name]["client"][key] for key in keys)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warptop")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--every", type=float, default=1, help="seconds between the moments asked for")
    args = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = [row for folder in args.folders for row in phases(args.warptop, folder, args.every, pool)]
    table(["phase", "cause", "at its end", "second", "third", "right", "seconds", "changes"], [
        [row["label"]["name"], row["label"]["cause"], *([named(finding) for finding in row["end"][:3]] + ["-"] * 3)[:3],
         "yes" if row["end_right"] else "NO", f"{row['share']:.0%} of {row['seconds']}", row["changes"]] for row in rows])
    confusion = collections.defaultdict(collections.Counter)
    for row in rows:
        confusion[row["label"]["cause"]].update(row["firsts"])
    table(["injected", "named first (seconds)"], [[cause, ", ".join(f"{name} {n}" for name, n in named.most_common())]
                                                  for cause, named in sorted(confusion.items())])
    beside = list(pairs(rows))
    if beside:
        table(["phase", "TTFT P50", "P99", "ITL P50", "P99", "E2E P50", "P99 ms", "tok/s", "requests", "cut"], beside)
    ends, seconds = sum(row["end_right"] for row in rows), sum(row["seconds"] for row in rows)
    print(f"at phase ends {ends} of {len(rows)} right; {sum(row['share'] * row['seconds'] for row in rows):.0f} of {seconds} seconds right")
    return 0 if ends == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
