#!/usr/bin/env python3
"""Prints what probes.sh left in FOLDER: a line a figure that PyTorch has beside it or that has a reference; every headline."""
import glob, json, os, sys

folder = sys.argv[1]


def read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


torch = {}
for path in sorted(glob.glob(f"{folder}/torch-*.json")):
    found = read(path)
    if found is None:
        with open(path[:-4] + "err") as file:
            print(f"{os.path.basename(path)}: nothing:", *file.read().splitlines()[-1:])
        continue
    for where, why in found["errors"].items():
        print(f"{os.path.basename(path)}: {where}: {why[:120]}")
    for row in found["figures"]:
        torch.setdefault((row["probe"], row["id"]), []).append(row)

print(f"{'figure':<26}{'warptop':<27}{'unit':<8}{'torch':<18}{'% torch':<9}{'% ref':<7}% sheet")
seen = {}
for path in sorted(glob.glob(f"{folder}/*-[0-9].json")):
    report = None if os.path.basename(path).startswith("torch-") else read(path)
    if report:
        seen.setdefault(report["probe"], []).append(report)
for probe, reports in seen.items():
    ids = list(dict.fromkeys(figure["id"] for report in reports for figure in report["results"]))
    for place, name in enumerate(ids):
        ours = [figure for report in reports for figure in report["results"] if figure["id"] == name]
        beside = torch.get((probe, name), [])
        if place > 0 and not beside and ours[0]["reference"] is None:
            continue
        values, theirs = [row["value"] for row in ours], [row["value"] for row in beside]
        share = ""
        if theirs:
            ratio = (sum(values) / len(values)) / (sum(theirs) / len(theirs))
            share = f"{(1 / ratio if ours[0]['better'] == 'lower' else ratio) * 100:.1f}"
        pct = lambda key: "" if ours[-1][key] is None else f"{ours[-1][key]:.1f}"
        print(f"{probe + ' ' + name:<26.25}{' '.join(f'{v:.5g}' for v in values):<27.26}{ours[0]['unit']:<8}"
              f"{' '.join(f'{v:.5g}' for v in theirs):<18.17}{share:<9}{pct('pct_of_reference'):<7}{pct('pct_of_datasheet')}")
    for report in reports:
        wrong = [check["what"] for check in report["checks"] if not check["passed"]]
        why = f": {report['why']}" if report["why"] else ""
        print(f"  {probe}: {report['ending']}{why}; verdict {report['verdict']['level']}; checks {len(report['checks'])}, wrong {wrong}"[:200])
