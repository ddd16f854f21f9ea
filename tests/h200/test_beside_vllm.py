"""The arithmetic of beside_vllm.py on made-up tokens: python3 -m unittest tests/h200/test_beside_vllm.py"""
import json, os, sys, unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from beside_vllm import alone, analyse, of_report, quantile, spread, table


def stream(start, end, gap):
    """Tokens of one stream, one each `gap` seconds."""
    out, at = [], start
    while at < end:
        out.append((at, gap if out else None, 1))
        at = start + len(out) * gap
    return out


class Analysis(unittest.TestCase):
    def test_a_quantile_is_a_value_that_was_measured(self):
        values = list(range(1, 101))
        self.assertEqual([quantile(values, q) for q in (0.5, 0.9, 0.99, 1.0)], [50, 90, 99, 100])
        self.assertEqual([quantile([7], 0.5), quantile([7], 0.99), quantile([], 0.5)], [7, 7, None])

    def test_spread_is_in_ms_and_says_how_many(self):
        self.assertEqual(spread([0.004, 0.001, 0.002]), dict(n=3, p50=2.0, p90=4.0, p99=4.0, max=4.0))
        self.assertEqual(spread([]), dict(n=0, p50=None, p90=None, p99=None, max=None))

    def phases(self):
        names = [("nothing", None, None), ("`hbm`, duty cycle 100 %", "hbm", 100), ("nothing again", None, None)]
        return [dict(name=name, probe=probe, duty=duty, start=30.0 * i, end=30.0 * i + 25) for i, (name, probe, duty) in enumerate(names)]

    def found(self):
        # Four streams; while the probe runs every token takes twice as long. In its first seconds there is worse.
        tokens = [token for _ in range(4) for token in stream(0, 30, 0.01) + stream(30, 34, 1.0) + stream(35, 60, 0.02) + stream(60, 90, 0.01)]
        firsts = [(at + 0.5, 0.1 if not 30 <= at < 60 else 0.3) for at in range(90)]
        # Not in order: clients write as they please.
        return analyse(self.phases(), tokens[::-1], firsts[::-1], 5.0)

    def test_each_phase_has_its_own_tokens_and_none_of_the_start(self):
        quiet, probe, again = self.found()
        self.assertEqual((quiet["seconds"], quiet["itl_ms"]["n"], quiet["itl_ms"]["p50"]), (20.0, 8000, 10.0))
        self.assertAlmostEqual(quiet["tok_s"], 400.0, delta=0.5)
        # The first token of a stream has no gap.
        self.assertEqual((probe["itl_ms"]["n"], probe["itl_ms"]["p50"], probe["itl_ms"]["max"]), (3996, 20.0, 20.0))
        self.assertAlmostEqual(probe["tok_s"], 200.0, delta=0.5)
        self.assertEqual([p["ttft_ms"]["p50"] for p in (quiet, probe, again)], [100.0, 300.0, 100.0])
        self.assertEqual(quiet["ttft_ms"]["n"], 20)

    def test_a_chunk_of_several_tokens_counts_as_several(self):
        phase = dict(name="nothing", probe=None, duty=None, start=0.0, end=10.0)
        found = analyse([phase], [(1.0, None, 1), (2.0, 1.0, 3)], [(1.0, 0.5)], 0.0)[0]
        self.assertEqual((found["tok_s"], found["itl_ms"]["n"]), (0.4, 1))

    def test_a_probe_that_ended_at_once_has_no_figures(self):
        phases = self.phases()
        phases[1]["end"] = phases[1]["start"] + 1
        found = analyse(phases, [(10.0, 0.01, 1), (70.0, 0.01, 1)], [(10.0, 0.1), (70.0, 0.1)], 5.0)
        self.assertEqual((found[1]["tok_s"], found[1]["itl_ms"]["n"]), (None, 0))
        self.assertIn("| – | – | – | – | – | – | 0 | 0 |", table(found))

    def test_the_table_states_the_change_against_nothing(self):
        found = self.found()
        self.assertEqual(alone(found)["itl_p50"], 10.0)
        lines = table(found).splitlines()
        self.assertEqual(len({line.count("|") for line in lines}), 1)
        self.assertIn("| nothing | 400 | 10.00 |", lines[2])
        self.assertIn("200 (-50 %) | 20.00 (+100 %)", lines[3])
        self.assertIn("300.0 (+200 %)", lines[3])

    def test_what_a_probe_says_is_kept_small(self):
        report = dict(run="r", ending="stopped", why="by the user", forced=True, duty_pct=10, inputs={},
                      environment=dict(company="on GPU 0 process 1"), results=[],
                      samples=[dict(series="triad", unit="GB/s", value=v) for v in (1.0, 2.0, 3.0)])
        self.assertEqual(of_report(json.dumps(report))["samples"], {"triad": dict(unit="GB/s", n=3, median=2.0)})
        self.assertEqual(of_report("no JSON")["text"], "no JSON")


if __name__ == "__main__":
    unittest.main()
