#!/usr/bin/env python3
"""Prints what three load clients measured of the same loads, side by side, as Markdown.

    table.py FOLDER [--check]     # FOLDER holds CLIENT-LOAD-ROUND.json as run.sh leaves them

Each cell is the median over the rounds and, in brackets, the smallest and the largest. A difference is warptop's median
against the other's, in %. Beyond 3 % it is bold, with "~" where the ranges of the two overlap, so that the rounds differ by
as much as the clients do. --check exits with 1 where a difference is bold and no range excuses it.

What is compared has the same definition: guidellm calls TPOT "inter-token latency", so it stands beside TPOT; its E2E is taken
from the moment of its last token where the file says so, since what it reports goes on to the end of the stream.
"""
import json
import pathlib
import statistics
import sys

TOLERANCE = 0.03
CLIENTS = ["warptop", "vllm", "guidellm"]
FIGURES = [("TTFT P50", "ms"), ("ITL P50", "ms"), ("TPOT P50", "ms"), ("E2E P50", "ms"), ("output", "tokens/s")]


def of_warptop(report):
    """The figures of a report with one level, and how many requests ended well and did not."""
    levels = report.get("levels") or []
    if len(levels) != 1:
        raise ValueError(f"{len(levels)} levels: {report.get('why') or 'one was expected'}")
    level = levels[0]
    ms = lambda name: (level[name].get("p50") or {}).get("value", float("nan")) * 1000
    found = {f"{what} P50": ms(name) for what, name in
             [("TTFT", "ttft_s"), ("ITL", "itl_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s")]}
    found["output"] = (level.get("output_tokens_per_s") or {}).get("value", float("nan"))
    requests = level["requests"]
    limits = "; ".join(level["client"]["limits"])
    return found, (requests["ok"], requests["measured"] - requests["ok"], level["tokens"].get("output")), limits


def of_vllm(result):
    found = {f"{what} P50": result[f"p50_{name}_ms"] for what, name in
             [("TTFT", "ttft"), ("ITL", "itl"), ("TPOT", "tpot"), ("E2E", "e2el")]}
    found["output"] = result["output_throughput"]
    return found, (result["completed"], result.get("failed", 0), result["total_output_tokens"]), ""


def of_guidellm(report):
    run = report["benchmarks"][0]
    metrics, requests = run["metrics"], (run.get("requests") or {}).get("successful") or []
    middle = lambda name: metrics[name]["successful"]["median"]
    to_last = []
    for request in requests:
        times = request["info"]["timings"]
        if times.get("last_token_iteration") and times.get("request_start"):
            to_last.append((times["last_token_iteration"] - times["request_start"]) * 1000)
    found = {
        "TTFT P50": middle("time_to_first_token_ms"),
        "TPOT P50": middle("inter_token_latency_ms"),
        "E2E P50": statistics.median(to_last) if to_last else middle("request_latency") * 1000,
        "output": metrics["output_tokens_per_second"]["successful"]["mean"],
    }
    total = metrics["request_totals"]
    tokens = metrics["output_token_count"]["successful"]["total_sum"]
    warnings = ", ".join(warning["code"] for warning in run.get("warnings") or [] if warning["code"] != "dataset_incomplete")
    return found, (total["successful"], total["errored"] + total["incomplete"], round(tokens)), warnings


READERS = dict(zip(CLIENTS, [of_warptop, of_vllm, of_guidellm]))


def read(folder):
    """Figures by (load, figure, client), remarks, and what could not be read."""
    figures, remarks = {}, []
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        client, load, number = path.stem.rsplit("-", 2)
        try:
            found, (ok, lost, tokens), words = READERS[client](json.loads(path.read_text()))
        except (ValueError, KeyError, IndexError, TypeError) as problem:
            remarks.append(f"{path.stem} is left out: {problem!r}")
            continue
        for name, value in found.items():
            if value == value:
                figures.setdefault((load, name, client), []).append(value)
        remarks.append(f"{path.stem}: {ok} requests ended well, {lost} did not, {tokens} output tokens" + (f" ({words})" if words else ""))
    return figures, remarks


def short(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}" if value >= 10 else f"{value:.3f}"


def cell(values):
    if not values:
        return "–"
    middle = short(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({short(min(values))}–{short(max(values))})"


def difference(own, other):
    """The cell, and whether it is one that needs an explanation."""
    if not own or not other:
        return "–", False
    share = statistics.median(own) / statistics.median(other) - 1
    words = f"{share * 100:+.1f} %"
    if abs(share) <= TOLERANCE:
        return words, False
    overlap = len(own) > 1 and len(other) > 1 and min(own) <= max(other) and min(other) <= max(own)
    return f"**{words}**" + (" ~" if overlap else ""), not overlap


def in_order(load):
    return load[0], float(load[1:])


def table(figures):
    """The rows, and the differences that need an explanation."""
    rows = ["| load | | warptop | vllm bench serve | guidellm | to vllm | to guidellm |", "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    open_ends = []
    for load in sorted({key[0] for key in figures}, key=in_order):
        words = f"{load[1:]} users" if load[0] == "c" else f"{load[1:]} requests/s"
        words = "1 user" if load == "c1" else words
        for name, unit in FIGURES:
            of = [figures.get((load, name, client), []) for client in CLIENTS]
            if not any(of):
                continue
            beside = [difference(of[0], other) for other in of[1:]]
            cells = [cell(values) for values in of] + [words for words, _ in beside]
            rows.append(f"| {words} | {name}, {unit} | " + " | ".join(cells) + " |")
            open_ends += [f"{words}, {name}: {text} against {client}" for (text, far), client in zip(beside, CLIENTS[1:]) if far]
    return rows, open_ends


def main(arguments):
    figures, remarks = read(arguments[0])
    rows, open_ends = table(figures)
    print("\n".join(rows + [""] + [f"- {remark}" for remark in remarks]))
    return 1 if "--check" in arguments and (open_ends or not figures) else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
