"""The arithmetic of table.py on made-up results: python3 -m unittest tests/compare/test_table.py"""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import table  # noqa: E402


def warptop(ttft=0.010, itl=0.005, tpot=0.005, e2e=0.1, rate=1000.0):
    p50 = lambda value: {"p50": {"value": value}}
    return {"levels": [{
        "ttft_s": p50(ttft), "itl_s": p50(itl), "tpot_s": p50(tpot), "e2e_s": p50(e2e), "output_tokens_per_s": {"value": rate},
        "requests": {"ok": 9, "measured": 10}, "tokens": {"output": 288}, "client": {"limits": []},
    }]}


def vllm(ttft=10.0, rate=1000.0):
    return {"p50_ttft_ms": ttft, "p50_itl_ms": 5.0, "p50_tpot_ms": 5.0, "p50_e2el_ms": 100.0, "output_throughput": rate,
            "completed": 10, "failed": 0, "total_output_tokens": 320}


def guidellm(ends):
    middle = lambda value: {"successful": {"median": value, "mean": value, "total_sum": value}}
    requests = [{"info": {"timings": {"request_start": 1.0, "last_token_iteration": 1.0 + end}}} for end in ends]
    return {"benchmarks": [{
        "metrics": {
            "time_to_first_token_ms": middle(10.0), "inter_token_latency_ms": middle(5.0), "request_latency": middle(0.2),
            "output_tokens_per_second": middle(1000.0), "output_token_count": middle(320.0),
            "request_totals": {"successful": 10, "errored": 0, "incomplete": 0},
        },
        "requests": {"successful": requests}, "warnings": [{"code": "dataset_incomplete"}],
    }]}


class Tables(unittest.TestCase):
    def read(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                pathlib.Path(folder, name).write_text(content if isinstance(content, str) else json.dumps(content))
            return table.read(folder)

    def test_same_figures_differ_by_nothing(self):
        figures, remarks = self.read({"warptop-c8-1.json": warptop(), "vllm-c8-1.json": vllm(), "guidellm-c8-1.json": guidellm([0.1])})
        rows, open_ends = table.table(figures)
        self.assertEqual(open_ends, [])
        self.assertEqual(rows[2], "| 8 users | TTFT P50, ms | 10.00 | 10.00 | 10.00 | +0.0 % | +0.0 % |")
        self.assertEqual(rows[3], "| 8 users | ITL P50, ms | 5.000 | 5.000 | – | +0.0 % | – |")
        self.assertIn("warptop-c8-1: 9 requests ended well, 1 did not, 288 output tokens", remarks)

    def test_e2e_of_guidellm_ends_with_the_last_token(self):
        figures, _ = self.read({"guidellm-c1-1.json": guidellm([0.09, 0.1, 0.3])})
        self.assertAlmostEqual(figures["c1", "E2E P50", "guidellm"][0], 100.0)
        figures, _ = self.read({"guidellm-c1-1.json": guidellm([])})
        self.assertAlmostEqual(figures["c1", "E2E P50", "guidellm"][0], 200.0)

    def test_more_than_three_per_cent_is_marked_and_overlap_excuses(self):
        self.assertEqual(table.difference([102.9], [100.0]), ("+2.9 %", False))
        self.assertEqual(table.difference([96.0], [100.0]), ("**-4.0 %**", True))
        self.assertEqual(table.difference([90.0, 104.0, 105.0], [99.0, 100.0, 101.0]), ("**+4.0 %** ~", False))
        self.assertEqual(table.difference([], [100.0]), ("–", False))

    def test_medians_over_rounds_with_their_range(self):
        runs = {f"vllm-r4-{n}.json": vllm(ttft=ttft) for n, ttft in enumerate([30.0, 10.0, 20.0])}
        rows, _ = table.table(self.read(runs)[0])
        self.assertTrue(rows[2].startswith("| 4 requests/s | TTFT P50, ms | – | 20.00 (10.00–30.00) | – |"), rows[2])

    def test_what_cannot_be_read_is_said(self):
        figures, remarks = self.read({"warptop-c1-1.json": {"levels": [], "why": "refused"}, "vllm-c1-1.json": "{"})
        self.assertEqual(figures, {})
        self.assertTrue("refused" in remarks[1] and remarks[0].startswith("vllm-c1-1 is left out"), remarks)

    def test_loads_are_in_the_order_of_their_size(self):
        self.assertEqual(sorted(["r4", "c64", "c8", "r0.5"], key=table.in_order), ["c8", "c64", "r0.5", "r4"])


if __name__ == "__main__":
    unittest.main()
