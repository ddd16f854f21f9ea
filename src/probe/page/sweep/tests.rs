//! The page of a sweep with constructed levels.

use super::*;
use crate::load::level::fixture::{latency, level, silicon};
use crate::load::level::{Agreement, Knee, Load, Requests, Silicon, Slice};
use crate::probe::page::{compare, page};
use crate::probe::report::tests::report;

fn of(levels: Vec<Level>) -> String {
    page(&Report { levels, ..report("a", 4000.0) })
}

/// The part of the page from one line that begins so up to an empty one.
fn part<'a>(page: &'a str, from: &str) -> &'a str {
    let start = page.find(from).unwrap_or_else(|| panic!("no '{from}' on:\n{page}"));
    let rest = &page[start..];
    &rest[..rest.find("\n\n").unwrap_or(rest.len())]
}

#[test]
fn a_report_without_levels_has_no_part_of_them() {
    assert!(!page(&report("a", 4000.0)).contains("Levels"));
}

#[test]
fn a_sweep_is_measured_and_held_against_nothing() {
    let mut report = Report { levels: vec![level(16)], ..report("a", 4000.0) };
    crate::probe::sweep::ID.clone_into(&mut report.probe);
    report.verdict.level = crate::probe::report::Level::Unknown;
    let mut knee = report.results[0].clone();
    "knee".clone_into(&mut knee.figure.id);
    "Knee".clone_into(&mut knee.figure.label);
    "users".clone_into(&mut knee.figure.unit);
    (knee.figure.value, knee.figure.lo, knee.figure.hi) = (18.0, 16.0, 24.0);
    let mut plain = report.results[0].clone();
    (plain.figure.lo, plain.figure.hi) = (plain.figure.value, plain.figure.value);
    report.results = vec![knee, plain, report.results.remove(0)];
    let page = page(&report);
    let right = "\
| figure | value | 95 % interval | n |
| --- | ---: | ---: | ---: |
| Knee | 18.00 users | levels 16.00 and 24.00 | 3 |
| Triad | 4000 GB/s | – | 3 |
| Triad | 4000 GB/s | 3999 – 4001 | 3 |";
    assert_eq!(part(&page, "| figure |"), right);
    assert!(page.contains("**measured**: ") && !page.contains("datasheet") && !page.contains("**unknown**"), "{page}");
}

#[test]
fn a_lag_of_few_requests_has_no_p99() {
    let mut few = level(2);
    (few.client.dispatch_lag.n, few.client.loop_lag) = (72, Lag::default());
    let page = of(vec![few]);
    assert!(page.contains("| 2 users | 2.000 | 2.000 | – | 0.600 of n 72 | – | – | 12 % |"), "{page}");
}

#[test]
fn tables_stand_in_the_order_of_load() {
    let mut again = level(1);
    again.repeat = 1;
    let page = of(vec![level(64), again, level(1)]);
    let right = "\
| load | ended | measured | ok | lost | req/s | output tokens/s | good, % | good/s |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 1 user | done | 500 | 500 | 0 | 1.857 | 237.7 (230.6–242.5) | 98.0 (96.4–98.9) | 1.820 |
| 1 user #2 | done | 500 | 500 | 0 | 1.857 | 237.7 (230.6–242.5) | 98.0 (96.4–98.9) | 1.820 |
| 64 users | done | 500 | 500 | 0 | 53.51 | 6849 (6644–6986) | 98.0 (96.4–98.9) | 52.44 |";
    assert_eq!(part(&page, "| load |"), right);
    let right = "\
| service, ms | n | TTFT P50 | TTFT P99 | TPOT P50 |
| --- | ---: | ---: | ---: | ---: |
| 1 user | 500 | 22.50 (22.05–23.18) | 45.00 (44.10–46.35) | 4.062 (3.981–4.184) |
| 1 user #2 | 500 | 22.50 (22.05–23.18) | 45.00 (44.10–46.35) | 4.062 (3.981–4.184) |
| 64 users | 500 | 180.0 (176.4–185.4) | 360.0 (352.8–370.8) | 8.000 (7.840–8.240) |";
    assert_eq!(part(&page, "| service, ms | n | TTFT"), right);
    let last = part(&page, "| service, ms | n | E2E").lines().last().unwrap();
    assert_eq!(last, "| 64 users | 500 | 1196 (1172–1232) | 2392 (2344–2464) | 8.000 | 16.00 |");
}

#[test]
fn few_requests_have_no_p99() {
    let cells = |n| {
        let mut few = level(4);
        few.ttft_s = latency(0.1, n);
        let page = of(vec![few]);
        let row = part(&page, "| service, ms | n | TTFT").lines().last().unwrap().to_owned();
        (row, page.contains("a P95: a P99 needs 368 measurements"))
    };
    assert!(cells(368).0.starts_with("| 4 users | 368 | 100.0 (98.00–103.0) | 200.0 (196.0–206.0) |"));
    assert!(!cells(368).1, "nothing is marked");
    let (row, marked) = cells(367);
    assert!(row.starts_with("| 4 users | 367 | 100.0 (98.00–103.0) | 150.0* (147.0–154.5) |") && marked, "{row}");
    let (row, marked) = cells(71);
    assert!(row.starts_with("| 4 users | 71 | 100.0 (98.00–103.0) | (P99 needs 368, n 71) |") && !marked, "{row}");
    let (row, _) = cells(5);
    assert!(row.starts_with("| 4 users | 5 | (P50 needs 6, n 5) | (P99 needs 368, n 5) |"), "{row}");
    let mut none = level(4);
    none.ttft_s = Latency::default();
    assert!(of(vec![none]).contains("| 4 users | 0 | – | – | 4.250 (4.165–4.378) |"));
}

#[test]
fn what_is_missing_is_a_dash_and_no_claim() {
    let bare = Level { load: Load::RequestsPerS(2.5), ..Level::default() };
    let page = of(vec![bare]);
    for words in [
        "These levels show no knee.",
        "| 2.5 requests/s | not measured | 0 | 0 | 0 | – | – | – | – |",
        "| 2.5 requests/s | 0 | – | – | – |",
        "| 2.5 requests/s | – | – | – | – | – | – |",
        "| 2.5 requests/s | – | – | – | – | – | – | – |",
        "GPUs of the server were not read.",
        "The server's own figures were not read: nothing confirms the client's.",
    ] {
        assert!(page.contains(words), "no '{words}' on:\n{page}");
    }
    assert!(!page.contains("```") && !page.contains("good:") && !page.contains("intended"), "{page}");
    let mut unread = level(2);
    unread.gpus = vec![Silicon::default()];
    assert!(of(vec![unread]).contains("| 2 users | 0 | – | – | – | – | – | – | – |"));
}

#[test]
fn a_level_that_failed_says_how() {
    let mut failed = level(128);
    failed.state = State::Failing;
    failed.requests =
        Requests { measured: 500, ok: 440, refused: 50, cut: 3, failed: 6, unconnected: 1, ..failed.requests };
    failed.requests.not_sent = 9;
    failed.tokens.other_length = 12;
    failed.notes = vec!["ended after 20 s: 12 % of the requests failed".to_owned()];
    failed.client.limits = vec!["dispatch lag P99 12 ms".to_owned()];
    let page = of(vec![failed]);
    for words in [
        "| 128 users | failing | 500 | 440 | 60 |",
        "- 128 users: 50 refused, 3 broken off, 6 failed otherwise, 1 without a connection, 9 planned and not sent, \
         12 with another output length than planned\n",
        "- 128 users: ended after 20 s: 12 % of the requests failed\n",
        "- 128 users: the client may have been the limit: dispatch lag P99 12 ms\n",
    ] {
        assert!(page.contains(words), "no '{words}' on:\n{page}");
    }
}

#[test]
fn a_throttled_level_is_marked_with_its_reason() {
    let mut hot = level(64);
    let held =
        |ms: f64| Silicon { throttled_ms_per_s: Some(ms), throttled_by: Some("power cap".to_owned()), ..silicon(1) };
    hot.gpus = vec![held(20.0), Silicon { sm_clock_mhz: Some(1660.0), ..held(620.0) }];
    let page = of(vec![hot]);
    assert!(page.contains("| 64 users | 1 | 65 % | 62 % | 4 % | 1980 MHz, 100 % | 410.0 | 55.00 | 2 % |"), "{page}");
    assert!(page.contains("| 1660 MHz, 84 % | 410.0 | 55.00 | ! 62 %: power cap |"), "{page}");
    assert!(page.contains("- 64 users: memory-bound: GPU 0: DRAM 62 % of peak, SM 65 %"), "{page}");
}

#[test]
fn the_client_is_shown_with_what_speaks_against_it() {
    let mut level = level(16);
    let row = |what: &str, unit: &str, client, server_lo, server_hi, agrees| Agreement {
        what: what.to_owned(),
        unit: unit.to_owned(),
        client,
        server_lo,
        server_hi,
        agrees,
    };
    let agreement = &mut level.server.as_mut().unwrap().agreement;
    agreement.push(row("TTFT P99", "s", 0.2, 0.1, Some(0.25), true));
    agreement.push(row("E2E P50", "s", 9.0, 40.0, None, false));
    let page = of(vec![level]);
    assert!(page.contains("| 16 users | 16.00 | 16.00 | 0.200 | 0.600 | 0.400 | 1.200 | 12 % |"), "{page}");
    let right = "\
| both sides | of what | client | server | agree |
| --- | ---: | ---: | ---: | ---: |
| 16 users | in flight, mean | 16.00 requests | 16.00 | yes |
| 16 users | TTFT P99 | 200.0 ms | 100.0–250.0 | yes |
| 16 users | E2E P50 | 9000 ms | 40000 or more | NO |";
    assert_eq!(part(&page, "| both sides |"), right);
}

#[test]
fn the_map_shades_shares_of_each_level() {
    let with = |users, ttft: &[(u16, u32)]| {
        let piece = |ttft: &[(u16, u32)]| Slice { ttft: ttft.to_vec(), ..Slice::default() };
        // Two pieces of the same level count together.
        Level { slices: vec![piece(&ttft[..1]), piece(&ttft[1..])], ..level(users) }
    };
    let none = Level { slices: Vec::new(), ..level(8) };
    let page = of(vec![with(1, &[(100, 1), (101, 1)]), with(4, &[(100, 95), (102, 5)]), none]);
    let right = "\
TTFT, ms                 1       4       8
63.25 – 68.97            ·     ░░░
58.00 – 63.25          ███       ·
53.18 – 58.00          ███     ███       –
```";
    let found = part(&page, "TTFT, ms");
    let shape = |text: &str| text.lines().map(|line| line.chars().skip(18).collect::<String>()).collect::<Vec<_>>();
    assert_eq!(shape(found), shape(right), "{found}");
    assert!(page.contains("░ some, ▒ from 10 %") && !page.contains("E2E, ms"), "{page}");
}

#[test]
fn an_open_loop_shows_what_clients_waited_in_all() {
    let mut open = level(1);
    (open.load, open.scheduled_ttft_s) = (Load::RequestsPerS(12.5), Some(latency(1.0, 500)));
    open.scheduled_e2e_s = Some(latency(3.0, 500));
    open.answer_s = latency(0.5, 400);
    let page = of(vec![open]);
    assert!(page.contains("| from the intended start, ms | n | TTFT P50"), "{page}");
    assert!(
        page.contains("| 12.5 requests/s | 500 | 1000 (980.0–1030) | 2000 (1960–2060) | 3000 (2940–3090) |"),
        "{page}"
    );
    assert!(page.contains("| to the answer, ms | n | P50 | P99 |"), "{page}");
}

#[test]
fn the_knee_is_told_and_tables_fit_into_120_columns() {
    const KNEE: &str =
        "**Knee** at 23.40 (levels 16.00 and 32.00 beside it), 5120 output tokens/s: two lines through 7 levels\n";
    let words = "two lines through 7 levels".to_owned();
    let knee = Knee { at: 23.4, lo: 16.0, hi: 32.0, output_tokens_per_s: 5120.0, words };
    let mut wide = level(512);
    (wide.repeat, wide.server.as_mut().unwrap().most_waiting) = (2, Some(1234.0));
    wide.bottleneck.as_mut().unwrap().word = "admission limit".to_owned();
    let levels: Vec<_> = (0..14).map(|i| level(1 << i)).chain([wide]).collect();
    let page = page(&Report { levels, knee: Some(knee), ..report("a", 4000.0) });
    assert!(page.contains(KNEE), "{page}");
    let levels = page.split_once("## Levels").unwrap().1.split_once("## Run").unwrap().0;
    for line in levels.lines() {
        assert!(line.chars().count() <= 120, "{} characters: {line}", line.chars().count());
        assert_eq!(line.trim_end(), line, "a trailing blank");
    }
}

#[test]
fn other_endpoints_models_and_terms_are_named_in_a_comparison() {
    let sweep = |endpoint: &str, model: &str| {
        let mut report = Report { levels: vec![level(1)], ..report("a", 4000.0) };
        report.target.endpoint = Some(endpoint.to_owned());
        report.inputs.put("output", crate::probe::spec::Value::Word(endpoint.len().to_string()));
        report.environment.facts.insert("model".to_owned(), model.to_owned());
        report
    };
    let text = compare(&sweep("http://a:8000", "llama"), &sweep("http://bb:8000", "qwen")).unwrap();
    for words in [
        "- target: http://a:8000 then, http://bb:8000 now\n",
        "- input output: 13 then, 14 now\n",
        "- model: llama then, qwen now\n",
    ] {
        assert!(text.contains(words), "no '{words}' in:\n{text}");
    }
    let mut other = sweep("http://a:8000", "llama");
    other.environment.facts.clear();
    let text = compare(&sweep("http://a:8000", "llama"), &other).unwrap();
    assert!(text.contains("- model: llama then, not known now\n") && !text.contains("- target"), "{text}");
}
