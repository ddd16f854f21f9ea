"""The arithmetic of diagnosis.py and diagnosis_table.py on made-up requests: python3 -m unittest tests/h200/test_diagnosis.py"""
import os, sys, unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from diagnosis import client_view, mend, promised
from diagnosis_plan import SERVERS
from diagnosis_table import judge, right


def row(start_s, ttft=None, e2e=None, tokens=0, chunks=0, cut=False, err=None):
    return dict(start_ms=start_s * 1000, ttft_ms=ttft, e2e_ms=e2e, tokens=tokens, chunks=chunks, cut=cut, err=err)


class ClientView(unittest.TestCase):
    def test_only_requests_and_gaps_of_the_window_count(self):
        rows = [row(9, 5.0, 50.0, 3, 3), row(10, 20.0, 400.0, 3, 3), row(11, 40.0, 600.0, 3, 3)]
        gaps = [(9.9, 99.0), (10.1, 4.0), (10.2, 6.0), (12.0, 99.0)]
        seen = client_view(rows, gaps, 10, 12)
        self.assertEqual((seen["requests"], seen["ttft_p50_ms"], seen["ttft_p99_ms"]), (2, 20.0, 40.0))
        self.assertEqual((seen["itl_p50_ms"], seen["itl_p99_ms"], seen["e2e_p99_ms"]), (4.0, 6.0, 600.0))
        # Two gaps and two first tokens in two seconds.
        self.assertEqual(seen["tok_s"], 2.0)

    def test_events_of_several_tokens_count_all_of_them(self):
        seen = client_view([row(10, 20.0, 400.0, tokens=8, chunks=4)], [(10.1, 4.0), (10.2, 6.0), (10.3, 6.0)], 10, 12)
        self.assertEqual(seen["tok_s"], 4.0)

    def test_a_request_still_silent_counts_with_its_waiting(self):
        seen = client_view([row(10, 20.0, 400.0, 1, 1), row(10, None, 9000.0, cut=True)], [], 10, 20)
        self.assertEqual((seen["ttft_p99_ms"], seen["cut"], seen["e2e_p99_ms"]), (9000.0, 1, 400.0))

    def test_an_error_is_no_latency(self):
        seen = client_view([row(10, None, 3.0, err="refused")], [], 10, 20)
        self.assertEqual((seen["errors"], seen["ttft_p50_ms"], seen["tok_s"]), (1, None, 0.0))


class Fixes(unittest.TestCase):
    class Before:
        plan = dict(phases=[dict(name="seqs6")])

        def __init__(self, fix):
            self.fix = fix

        def said(self, name, flag):
            return self.fix

    plan = dict(mends="seqs6", flag="--max-num-seqs", fallback="64", options=["--max-num-seqs", "6", "--x", "1"])

    def test_what_warptop_says_is_taken(self):
        plan, mended = mend(self.plan, dict(seqs6=self.Before({"try": 32})))
        self.assertEqual((plan["options"], mended["taken"]), (["--max-num-seqs", "32", "--x", "1"], True))
        self.assertEqual(mend(self.plan, dict(seqs6=self.Before({"try": "0.9"})))[1]["value"], "0.9")
        self.assertEqual(self.plan["options"][1], "6", "the plan stays as it was")

    def test_without_a_value_the_plan_has_one(self):
        for fix in (None, {"try": None}, {"try": True}, {"try": "more"}, {}):
            plan, mended = mend(self.plan, dict(seqs6=self.Before(fix)))
            self.assertEqual((plan["options"][1], mended["taken"]), ("64", False))
        self.assertEqual(mend(self.plan, {})[1]["value"], "64")

    def test_the_first_finding_with_the_flag_is_found(self):
        diagnosis = [dict(cause="power-cap", fixes=[]), dict(cause="admission-limit", headline="h", fixes=[dict(flag="--max-num-seqs", **{"try": 24})])]
        self.assertEqual(promised(diagnosis, "--max-num-seqs")["rank"], 2)
        self.assertIsNone(promised(diagnosis, "--gpu-memory-utilization"))
        self.assertIsNone(promised(None, "--max-num-seqs"))


class Verdicts(unittest.TestCase):
    def test_the_first_cause_counts_unless_the_label_says_more(self):
        self.assertTrue(right(dict(cause="compute", first=["compute", "power-cap"]), ["power-cap"], "act"))
        self.assertFalse(right(dict(cause="compute"), ["power-cap", "compute"], "act"))
        self.assertTrue(right(dict(cause="page-faults", within=3), ["healthy", "x", "page-faults"], ""))
        self.assertFalse(right(dict(cause="page-faults", within=3), ["a", "b", "c", "page-faults"], ""))
        self.assertFalse(right(dict(cause="idle"), [], ""))

    def test_nothing_may_ask_for_action_in_a_phase_without_fault(self):
        self.assertFalse(right(dict(cause="healthy", calm=True), ["healthy"], "act"))

    def test_a_phase_counts_changes_and_seconds(self):
        series = [[dict(cause=cause, level="ok")] for cause in ("idle", "healthy", "healthy", "idle")]
        seen = judge(dict(cause="idle"), series)
        self.assertEqual((seen["changes"], seen["share"], seen["end_right"], seen["seconds"]), (2, 0.5, True, 4))


class Plan(unittest.TestCase):
    def test_names_are_told_apart_and_every_pair_is_there(self):
        for server in SERVERS:
            names = [phase["name"] for phase in server["phases"]]
            self.assertEqual(len(names), len(set(names)), server["name"])
        phases = [phase for server in SERVERS for phase in server["phases"]]
        names = [phase["name"] for phase in phases]
        self.assertTrue({phase["pair"] for phase in phases if "pair" in phase} <= set(names))
        self.assertTrue({server["mends"] for server in SERVERS if "mends" in server} <= set(names))
        self.assertGreaterEqual(sum(bool(phase.get("calm")) for phase in phases), 3)


if __name__ == "__main__":
    unittest.main()
