//! What the block says on screens of several sizes.

use super::*;
use crate::derive::lives::Lives;
use crate::derive::quantile::Quantile;
use crate::diagnosis::{Evidence, Fix, LatencySplit, Sentence};
use crate::model::Reading;
use crate::store::{Retention, Store};
use crate::ui::theme::{Charset, Depth};

fn quantile(value: f64, n: u64, enough: bool) -> Quantile {
    Quantile { value, lo: value, hi: Some(value), enough, n }
}

fn clients(engine: u8) -> ClientView {
    ClientView {
        engine,
        running: 125.0.into(),
        running_cap: 256.0.into(),
        waiting: 220.0.into(),
        ttft_p50: Some(quantile(19.0, 900, true)),
        ttft_p99: Some(quantile(27.0, 900, true)),
        ttft_partial: false,
        ttft_lives: Lives::default(),
        partial: false,
        itl_mean: 0.042.into(),
        itl_usual: 0.0048.into(),
        ttft_mean: 0.042.into(),
        ttft_usual: Reading::Missing(crate::model::Why::NotYet),
        generated_usual: Reading::Missing(crate::model::Why::NotYet),
        generated_per_s: 3_000.0.into(),
        prompt_len: Reading::Value(512.0),
        answer_len: Reading::Value(128.0),
        split: Some(LatencySplit { queue: 13.5, prefill: 0.3, decode: 2.0 }),
    }
}

fn finding(subject: Subject, cause: Cause, severity: Severity, full: &str, short: &str) -> Finding {
    Finding {
        subject,
        cause,
        severity,
        since: Time(0),
        cost: 0.5,
        headline: Sentence::new(full, short),
        evidence: Vec::new(),
        fixes: Vec::new(),
    }
}

/// A full KV cache, with what would help and what else is found.
pub(in crate::ui) fn slow() -> Diagnosis {
    let engine = Subject::Engine(0);
    let mut kv = finding(
        engine,
        Cause::KvCapacity,
        Severity::Act,
        "KV cache is full (99 %): 220 requests wait, 1.9 preemptions/s",
        "KV cache full: 220 wait",
    );
    kv.fixes.push(Fix {
        text: Sentence::new("give the KV cache more of the GPU's memory", "more memory for KV"),
        flag: Some("--gpu-memory-utilization".into()),
        now: Some("0.25".into()),
        try_value: Some("0.9".into()),
        gain: Some("101 GiB unused, room for 4.6 times the tokens".into()),
        probe: Some("kvload"),
    });
    kv.evidence.push(Evidence {
        text: "220 requests wait".into(),
        metric: "requests_waiting",
        value: 220.0,
        unit: "requests",
        source: "engine",
    });
    let power = finding(
        Subject::Gpu(0),
        Cause::PowerCap,
        Severity::Watch,
        "power cap takes 17 % of the clock",
        "power cap: 17 % of the clock",
    );
    Diagnosis { at: Time(1_000), findings: vec![kv, power], clients: vec![clients(0)] }
}

fn well() -> Diagnosis {
    let mut client = clients(0);
    client.ttft_p99 = Some(quantile(0.042, 900, true));
    client.itl_mean = 0.0048.into();
    (client.running, client.waiting) = (8.0.into(), 0.0.into());
    let limit = finding(
        Subject::Gpu(0),
        Cause::MemoryBandwidth,
        Severity::Ok,
        "bound by memory bandwidth, as decode is",
        "memory bandwidth, as decode is",
    );
    let healthy = finding(Subject::Engine(0), Cause::Healthy, Severity::Ok, "requests move", "requests move");
    Diagnosis { at: Time(1_000), findings: vec![healthy, limit], clients: vec![client] }
}

/// The rows of the block on a screen of these columns with room for that many rows.
fn rows(diagnosis: &Diagnosis, columns: u16, most: u16, theme: Theme) -> Vec<String> {
    let store = Store::new(Retention::HOUR);
    let mut verdict = Verdict::default();
    verdict.prepare(&store.read(), diagnosis, 0, (columns, most), theme);
    assert!(verdict.rows() <= most);
    let area = Rect::new(0, 0, columns, verdict.rows());
    let mut buf = Buffer::empty(area);
    verdict.draw(&mut buf, area, theme);
    let row = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    buf.content.chunks(usize::from(columns).max(1)).map(|cells| row(cells).trim_end().to_owned()).collect()
}

#[test]
fn a_slow_server_is_told_of_in_four_lines() {
    let expected = [
        "SLOW  TTFT P50 19 s, P99 27 s in 60 s: 13.5 of 15.8 s are queueing; ITL 42 ms (usual 4.8 ms); 125 of 256 run",
        "WHY   KV cache is full (99 %): 220 requests wait, 1.9 preemptions/s",
        "FIX   --gpu-memory-utilization 0.25 → 0.9: 101 GiB unused, room for 4.6 times the tokens",
        "ALSO  power cap takes 17 % of the clock                                                          Enter: evidence",
    ];
    let wide = rows(&slow(), 112, 6, Theme::FULL);
    assert_eq!(wide, expected);
    let ascii = rows(&slow(), 112, 6, Theme { depth: Depth::Mono, charset: Charset::Ascii });
    assert!(ascii[2].contains("0.25 -> 0.9"), "{ascii:?}");
}

#[test]
fn what_does_not_fit_is_said_in_fewer_words_and_never_cut() {
    let eighty = rows(&slow(), 80, 4, Theme::FULL);
    let expected = [
        "SLOW  TTFT P50 19 s, P99 27 s in 60 s: 13.5 of 15.8 s are queueing; ITL 42 ms",
        "WHY   KV cache is full (99 %): 220 requests wait, 1.9 preemptions/s",
        "FIX   --gpu-memory-utilization 0.25 → 0.9",
        "ALSO  power cap takes 17 % of the clock                          Enter: evidence",
    ];
    assert_eq!(eighty, expected);
    assert_eq!(rows(&slow(), 40, 1, Theme::FULL), ["SLOW KV cache full: 220 wait"]);
    assert_eq!(rows(&slow(), 20, 1, Theme::FULL), ["SLOW KV cache full"]);
    assert_eq!(rows(&slow(), 80, 2, Theme::FULL).len(), 2);
    // A cause that has no room in one row takes two where there are some left.
    let four = rows(&slow(), 50, 6, Theme::FULL);
    assert_eq!(four[1..3], ["WHY   KV cache is full (99 %): 220 requests wait,", "      1.9 preemptions/s"]);
}

#[test]
fn a_server_that_is_well_says_what_bounds_it() {
    let line = "OK    TTFT P99 42 ms in 60 s; ITL 4.8 ms in 6 s (usual 4.8 ms); 8 of 256 run; bound by memory bandwidth, as decode is";
    assert_eq!(rows(&well(), 120, 5, Theme::FULL)[0].trim_end_matches("Enter: evidence").trim_end(), line);
    let narrow = rows(&well(), 66, 4, Theme::FULL);
    assert_eq!(
        narrow[1].trim_end_matches("Enter: evidence").trim_end(),
        "      bound by memory bandwidth, as decode is"
    );
    let mut plain = well();
    plain.findings.pop();
    assert_eq!(rows(&plain, 66, 4, Theme::FULL).len(), 1, "healthy is what the state says");
    assert_eq!(rows(&well(), 40, 1, Theme::FULL), ["OK TTFT P99 42 ms in 60 s; ITL 4.8 ms"]);
}

#[test]
fn a_low_screen_says_why_and_what_would_help() {
    let expected = ["SLOW KV cache full: 220 wait", "FIX  --gpu-memory-utilization 0.25 → 0.9"];
    assert_eq!(rows(&slow(), 40, 2, Theme::FULL), expected);
    // What cannot be said whole is left out.
    assert_eq!(rows(&slow(), 36, 2, Theme::FULL)[1], "FIX  --gpu-memory-utilization 0.9");
    assert_eq!(rows(&slow(), 24, 2, Theme::FULL)[1], "FIX  more memory for KV");
    assert_eq!(rows(&slow(), 20, 2, Theme::FULL), ["SLOW KV cache full"]);
    let mut nothing_to_do = slow();
    nothing_to_do.findings[0].fixes.clear();
    assert_eq!(rows(&nothing_to_do, 40, 2, Theme::FULL).len(), 1);
    assert_eq!(rows(&well(), 40, 2, Theme::FULL).len(), 1, "nothing is to be done");
}

#[test]
fn the_cause_is_said_in_full_before_what_would_help_and_what_else_there_is() {
    let mut diagnosis = slow();
    diagnosis.findings[0].fixes[0] = Fix {
        text: Sentence::new("a remedy that takes more than the one row that a screen of sixty columns has", "a remedy"),
        ..Fix::default()
    };
    let five = rows(&diagnosis, 60, 5, Theme::FULL);
    assert_eq!(five[1..3], ["WHY   KV cache is full (99 %): 220 requests wait, 1.9", "      preemptions/s"]);
    assert_eq!(five[3], "FIX   a remedy");
    assert!(five[4].starts_with("ALSO  power cap"), "{five:?}");
    diagnosis.findings.pop();
    assert_eq!(rows(&diagnosis, 60, 5, Theme::FULL).len(), 5, "the remedy takes the row that is left");
}

#[test]
fn a_limit_that_every_server_has_is_no_news_beside_a_cause() {
    let mut diagnosis = slow();
    diagnosis.findings.insert(1, well().findings.remove(1));
    let also = rows(&diagnosis, 112, 6, Theme::FULL).pop().unwrap();
    assert!(also.contains("power cap") && !also.contains("bandwidth"), "{also}");
    diagnosis.findings.pop();
    assert!(rows(&diagnosis, 112, 6, Theme::FULL)[3].contains("bandwidth"), "there is room and nothing else to say");
    assert_eq!(rows(&diagnosis, 112, 5, Theme::FULL).len(), 3);
}

#[test]
fn what_is_usual_stands_beside_what_differs_from_it() {
    let mut diagnosis = slow();
    let client = &mut diagnosis.clients[0];
    (client.split, client.waiting) = (None, 0.0.into());
    (client.ttft_mean, client.ttft_usual) = (20.0.into(), 0.5.into());
    (client.generated_per_s, client.generated_usual) = (3_000.0.into(), 9_000.0.into());
    let line = &rows(&diagnosis, 140, 5, Theme::FULL)[0];
    let expected = "SLOW  TTFT P50 19 s, P99 27 s in 60 s, mean 20 s (usual 500 ms); ITL 42 ms in 6 s (usual 4.8 ms); 125 of 256 run; \
                    3000 tokens/s (usual 9000)";
    assert_eq!(line, expected);
    diagnosis.clients[0].ttft_usual = 18.0.into();
    diagnosis.clients[0].generated_usual = 3_500.0.into();
    let line = &rows(&diagnosis, 140, 5, Theme::FULL)[0];
    assert_eq!(line, "SLOW  TTFT P50 19 s, P99 27 s in 60 s; ITL 42 ms in 6 s (usual 4.8 ms); 125 of 256 run");
}

#[test]
fn what_was_hardly_measured_and_what_mixes_two_lives_says_so() {
    let mut diagnosis = slow();
    let client = &mut diagnosis.clients[0];
    (client.split, client.waiting) = (None, 0.0.into());
    (client.ttft_partial, client.partial) = (true, true);
    client.ttft_lives = Lives { restarts: 1, since_restart: false };
    let line = |diagnosis: &Diagnosis| rows(diagnosis, 140, 5, Theme::FULL)[0].clone();
    let expected = "SLOW  TTFT P50 19 s*, P99 27 s* in 60 s across a restart; ITL 42 ms* in 6 s (usual 4.8 ms)";
    assert!(line(&diagnosis).starts_with(expected), "{}", line(&diagnosis));
    diagnosis.clients[0].ttft_lives = Lives { restarts: 0, since_restart: true };
    assert!(line(&diagnosis).contains("in 60 s since the restart;"), "{}", line(&diagnosis));
    diagnosis.clients[0].ttft_p99 = Some(quantile(27.0, 12, false));
    assert!(line(&diagnosis).contains("TTFT P50 19 s* (n 900) in 60 s"), "{}", line(&diagnosis));
}

#[test]
fn a_p99_of_few_requests_is_not_called_one() {
    let mut diagnosis = slow();
    diagnosis.clients[0].ttft_p99 = Some(quantile(27.0, 12, false));
    diagnosis.clients[0].ttft_p50 = Some(quantile(19.0, 12, true));
    let line = &rows(&diagnosis, 120, 5, Theme::FULL)[0];
    assert!(line.contains("TTFT P50 19 s (n 12)") && !line.contains("P99"), "{line}");
}

#[test]
fn a_split_that_does_not_hold_the_ttft_is_left_out() {
    let mut diagnosis = slow();
    diagnosis.clients[0].split = Some(LatencySplit { queue: 0.0, prefill: 0.03, decode: 0.0 });
    let line = &rows(&diagnosis, 120, 5, Theme::FULL)[0];
    assert!(line.contains("P99 27 s in 60 s; ITL") && !line.contains("prefill"), "{line}");
}

#[test]
fn of_several_engines_the_one_that_is_meant_is_named() {
    let mut diagnosis = slow();
    diagnosis.clients.push(clients(1));
    diagnosis.findings[0].subject = Subject::Engine(1);
    let all = rows(&diagnosis, 120, 5, Theme::FULL);
    assert!(all[0].starts_with("SLOW  engine 1: TTFT") && all[1].contains("engine 1: KV cache"), "{all:?}");
}

#[test]
fn every_state_has_its_word() {
    let of = |cause, severity| words::state(Some(&finding(Subject::Engine(0), cause, severity, "", "")));
    let words = [
        (Cause::Down, Severity::Act, "DOWN"),
        (Cause::Stalled, Severity::Act, "STALLED"),
        (Cause::KvCapacity, Severity::Act, "SLOW"),
        (Cause::GpuFault, Severity::Act, "FAULT"),
        (Cause::PowerCap, Severity::Watch, "WATCH"),
        (Cause::Healthy, Severity::Ok, "OK"),
        (Cause::Idle, Severity::Ok, "IDLE"),
        (Cause::NeedsKey, Severity::Watch, "UNKNOWN"),
    ];
    for (cause, severity, word) in words {
        assert_eq!(of(cause, severity), word, "{cause:?}");
    }
    assert_eq!(words::state(None), "UNKNOWN");
    assert_eq!(rows(&Diagnosis::default(), 80, 4, Theme::FULL), ["UNKNOWN  nothing to judge from yet"]);
}

#[test]
fn any_size_is_drawn_and_what_is_drawn_is_whole() {
    for diagnosis in [slow(), well(), Diagnosis::default()] {
        for columns in 0..140 {
            for most in 0..7 {
                for row in rows(&diagnosis, columns, most, Theme::FULL).iter().filter(|_| columns >= 34) {
                    assert!(!row.ends_with([',', '(', '→']) || most > 1, "{columns} columns: {row}");
                }
            }
        }
    }
}
