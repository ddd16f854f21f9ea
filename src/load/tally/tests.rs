//! Requests of known moments, and the figures that arithmetic gives for them.

use super::*;
use crate::load::buckets::bucket;
use crate::load::exchange::Usage;
use crate::load::level::Goodput;
use std::time::Duration;

const SECOND: u64 = 1_000_000;
const EPOCH: u64 = 1_700_000_000_000;

fn frame() -> Frame {
    Frame {
        place: 3,
        repeat: 1,
        load: Load::Users(4),
        open: false,
        whole: false,
        slo: Slo::default(),
        epoch_unix_ms: EPOCH,
    }
}

/// A request of 10 + 4 tokens in 3 events, dispatched at this moment: TTFT 0.1 s, then 0.2 and
/// 0.4 s; it ends 10 ms after its last content.
#[derive(Clone, Debug)]
struct One {
    intended: u64,
    free: u64,
    held_back: bool,
    output: u32,
    exchange: Exchange,
    stamps: Vec<Stamp>,
}

fn one(dispatched: u64) -> One {
    let at = |ms: u64| dispatched + ms * 1000;
    let stamps = [100, 300, 700].map(|ms| Stamp { at: at(ms), tokens: None }).to_vec();
    One {
        intended: dispatched,
        free: dispatched,
        held_back: false,
        output: 4,
        exchange: Exchange {
            dispatched: Some(dispatched),
            first_byte: Some(at(90)),
            first_content: Some(at(100)),
            first_answer: Some(at(100)),
            last_content: Some(at(700)),
            end: at(710),
            usage: Some(Usage { prompt: Some(10), cached: None, output: Some(4) }),
            finish: None,
            connected: false,
            fault: None,
        },
        stamps,
    }
}

impl One {
    fn add_to(&self, tally: &mut Tally) {
        let begun = self.exchange.dispatched.unwrap_or(self.intended);
        tally.sent(begun);
        tally.add(&Ended {
            intended: self.intended,
            begun,
            held_back: self.held_back,
            free: self.free,
            prompt: 10,
            output: self.output,
            exchange: &self.exchange,
            stamps: &self.stamps,
        });
    }

    fn failing(mut self, fault: Fault) -> Self {
        self.exchange.fault = Some(fault);
        self
    }

    fn using(mut self, usage: Option<Usage>) -> Self {
        self.exchange.usage = usage;
        self
    }
}

fn refused() -> Fault {
    Fault::Refused { status: 429, retry_after: None, words: String::new() }
}

/// Measured from 10 s to 20 s.
fn tally(frame: Frame) -> Tally {
    let mut tally = Tally::new(frame);
    tally.measure_from(10 * SECOND);
    tally.measure_to(20 * SECOND);
    tally
}

fn level(tally: &Tally) -> Level {
    tally.level(30 * SECOND, Client::default())
}

#[test]
fn what_is_dispatched_in_the_measured_time_is_measured_and_nothing_else() {
    let mut tally = Tally::new(frame());
    one(9 * SECOND).add_to(&mut tally);
    tally.measure_from(10 * SECOND);
    for at in [10 * SECOND - 1, 10 * SECOND, 15 * SECOND, 20 * SECOND - 1] {
        one(at).add_to(&mut tally);
    }
    tally.measure_to(20 * SECOND);
    one(20 * SECOND).add_to(&mut tally);
    let got = level(&tally);
    assert_eq!((got.requests.sent, got.requests.measured, got.requests.ok), (6, 3, 3));
    assert_eq!((got.ttft_s.n, got.e2e_s.n, got.tpot_s.n, got.itl_s.n), (3, 3, 3, 6));
    assert_eq!((tally.measured_ok(), tally.faults()), (3, (3, 0)));
    let unix = |micros: u64| EPOCH + micros / 1000;
    assert_eq!((got.started_unix_ms, got.from_unix_ms), (unix(9 * SECOND), unix(10 * SECOND)));
    assert_eq!((got.to_unix_ms, got.ended_unix_ms), (unix(20 * SECOND), unix(20 * SECOND + 710_000)));
    assert_eq!((got.place, got.repeat, got.load), (3, 1, Load::Users(4)));
}

#[test]
fn latencies_of_a_request_are_those_of_its_stamps() {
    let mut tally = tally(frame());
    let mut reasons = one(11 * SECOND);
    reasons.exchange.first_answer = Some(11 * SECOND + 300_000);
    reasons.add_to(&mut tally);
    let got = level(&tally);
    assert_eq!(got.ttft_s.mean, Some(0.1));
    assert_eq!(got.answer_s.mean, Some(0.3));
    assert_eq!(got.e2e_s.mean, Some(0.7));
    // (0.7 − 0.1) ÷ 3.
    assert!((got.tpot_s.mean.unwrap() - 0.2).abs() < 1e-12);
    assert_eq!((got.itl_s.min, got.itl_s.max, got.itl_s.n), (Some(0.2), Some(0.4), 2));
    let itl = got.itl_s.p99.unwrap();
    assert!((itl.value - 0.4).abs() < 4e-4 && itl.lo.is_none() && !itl.enough);
    assert_eq!((got.scheduled_ttft_s, got.scheduled_e2e_s), (None, None));
    assert!(got.notes.iter().any(|note| note.starts_with("an event held 1.33 tokens")), "{:?}", got.notes);
}

#[test]
fn a_model_that_does_not_reason_has_no_time_to_the_answer() {
    let mut tally = tally(frame());
    one(11 * SECOND).add_to(&mut tally);
    assert_eq!(level(&tally).answer_s, Latency::default());
    let mut only = one(12 * SECOND);
    only.exchange.first_answer = None;
    only.add_to(&mut tally);
    let got = level(&tally);
    assert_eq!(got.answer_s.n, 1);
    assert!(
        got.notes[0] == "answers that were reasoning to their end and have no time to the answer: 1",
        "{:?}",
        got.notes
    );
}

#[test]
fn in_an_open_loop_latencies_count_from_the_intended_start_too() {
    let mut tally = tally(Frame { open: true, ..frame() });
    let mut late = one(12 * SECOND);
    (late.intended, late.free, late.held_back) = (9 * SECOND, 12 * SECOND - 2000, true);
    late.add_to(&mut tally);
    let got = level(&tally);
    assert_eq!(got.scheduled_ttft_s.unwrap().mean, Some(3.1));
    assert_eq!(got.scheduled_e2e_s.unwrap().mean, Some(3.7));
    assert_eq!((got.ttft_s.mean, got.requests.held_back), (Some(0.1), 1));
    late.exchange.dispatched = Some(9 * SECOND);
    late.add_to(&mut tally);
    assert_eq!(level(&tally).requests.held_back, 1, "of the measured ones");
}

#[test]
fn a_request_with_a_fault_is_counted_as_that_and_as_nothing_else() {
    let mut tally = tally(Frame { slo: Slo { ttft_s: Some(1.0), ..Slo::default() }, ..frame() });
    let status = Fault::Status { status: 500, words: String::new() };
    for fault in [
        refused(),
        Fault::Cut("reset".to_owned()),
        Fault::Cut("reset".to_owned()),
        status,
        Fault::Stream(String::new()),
        Fault::Malformed(String::new()),
        Fault::Timeout(Duration::from_secs(1)),
    ] {
        one(12 * SECOND).failing(fault).add_to(&mut tally);
    }
    let mut unconnected = one(12 * SECOND).failing(Fault::Unconnected(String::new()));
    unconnected.exchange.dispatched = None;
    unconnected.add_to(&mut tally);
    one(25 * SECOND).failing(refused()).add_to(&mut tally);
    let got = level(&tally);
    let counts = got.requests;
    assert_eq!((counts.sent, counts.measured, counts.ok, counts.unconnected), (8, 7, 0, 1));
    assert_eq!((counts.refused, counts.cut, counts.failed), (1, 2, 4));
    assert_eq!(tally.faults(), (8, 8));
    for latency in [got.ttft_s, got.answer_s, got.itl_s, got.tpot_s, got.e2e_s] {
        assert_eq!(latency, Latency::default());
    }
    assert_eq!((got.tokens, got.slices.len()), (Tokens::default(), 0));
    assert_eq!(got.requests_per_s.map(|rate| rate.value), Some(0.0));
    assert_eq!(got.output_tokens_per_s.map(|rate| rate.value), Some(0.0));
    assert_eq!(got.goodput.map(|good| (good.good, good.n)), Some((0, 8)));
}

#[test]
fn an_answer_without_content_is_a_failed_request_with_a_note() {
    let mut tally = tally(frame());
    let mut empty = one(12 * SECOND);
    (empty.exchange.first_content, empty.exchange.first_answer, empty.exchange.last_content) = (None, None, None);
    empty.stamps.clear();
    empty.add_to(&mut tally);
    let got = level(&tally);
    assert_eq!((got.requests.failed, got.requests.ok, got.ttft_s.n), (1, 0, 0));
    assert_eq!(got.notes, ["answers that ended well but were empty, counted as failed: 1"]);
}

#[test]
fn tokens_are_what_the_server_counted_or_unknown() {
    let mut tally = tally(frame());
    one(12 * SECOND).add_to(&mut tally);
    let cached = Usage { prompt: Some(12), cached: Some(8), output: Some(3) };
    one(13 * SECOND).using(Some(cached)).add_to(&mut tally);
    let got = level(&tally);
    let expected =
        Tokens { prompt: Some(22), cached: Some(8), output: Some(7), events: 6, other_length: 1, uncounted: 0 };
    assert_eq!(got.tokens, expected);
    assert_eq!(got.output_tokens_per_s.map(|rate| rate.value), Some(0.7));
    assert_eq!(got.total_tokens_per_s.map(|rate| rate.value), Some(2.9));

    one(14 * SECOND).using(None).add_to(&mut tally);
    let got = level(&tally);
    assert_eq!((got.tokens.uncounted, got.tokens.other_length, got.tpot_s.n, got.ttft_s.n), (1, 1, 2, 3));
    assert_eq!((got.output_tokens_per_s, got.total_tokens_per_s), (None, None), "too low is not a rate");
    assert!(got.requests_per_s.is_some());
    assert!(got.notes.iter().any(|note| note.starts_with("answers that came without a count")), "{:?}", got.notes);
}

#[test]
fn tokens_of_each_event_count_where_there_is_no_usage() {
    let mut tally = tally(frame());
    let mut counted = one(12 * SECOND).using(None);
    counted.stamps.iter_mut().for_each(|stamp| stamp.tokens = Some(5));
    counted.add_to(&mut tally);
    let got = level(&tally);
    assert_eq!((got.tokens.output, got.tokens.prompt, got.tokens.uncounted), (Some(15), None, 0));
    assert!((got.tpot_s.mean.unwrap() - 0.6 / 14.0).abs() < 1e-12);
    assert_eq!(got.output_tokens_per_s.map(|rate| rate.value), Some(1.5));
    assert_eq!(got.total_tokens_per_s, None, "nobody counted the prompt");
}

#[test]
fn one_token_has_no_tpot() {
    let mut tally = tally(frame());
    one(12 * SECOND).using(Some(Usage { output: Some(1), ..Usage::default() })).add_to(&mut tally);
    let got = level(&tally);
    assert_eq!((got.tpot_s.n, got.e2e_s.n), (0, 1));
}

#[test]
fn output_tokens_count_when_they_came_whoever_asked_for_them() {
    // Dispatched before the measured time: its events are at 9.85, 10.05 and 10.45 s; 8 tokens of 12 are within.
    let mut tally = tally(frame());
    let twelve = Some(Usage { output: Some(12), ..Usage::default() });
    one(10 * SECOND - 250_000).using(twelve).add_to(&mut tally);
    // At its end: 19.9, 20.1 and 20.5 s; 4 of 12.
    one(19 * SECOND + 800_000).using(twelve).add_to(&mut tally);
    // Tokens are where they are said to be: 1 of 1, 5 and 6 within.
    let mut uneven = one(19 * SECOND + 800_000).using(twelve);
    uneven.stamps.iter_mut().zip([1, 5, 6]).for_each(|(stamp, tokens)| stamp.tokens = Some(tokens));
    uneven.add_to(&mut tally);
    let got = level(&tally);
    assert!((got.output_tokens_per_s.unwrap().value - 1.3).abs() < 1e-12, "{:?}", got.output_tokens_per_s);
    assert_eq!(got.requests_per_s.map(|rate| rate.value), Some(0.1), "only the first ended within");
    assert_eq!(got.requests.measured, 2);
}

#[test]
fn where_all_requests_are_measured_rates_run_from_the_first_dispatch_to_the_last_end() {
    let mut tally = Tally::new(Frame { whole: true, ..frame() });
    tally.measure_from(10 * SECOND);
    one(10 * SECOND).add_to(&mut tally);
    tally.sent(12 * SECOND);
    tally.measure_to(12 * SECOND + 1);
    // One is still in flight: until now.
    let live = tally.level(12 * SECOND + 500_000, Client::default());
    assert_eq!(live.requests_per_s.map(|rate| rate.value), Some(0.4));
    let last = one(12 * SECOND);
    tally.add(&Ended {
        intended: last.intended,
        begun: 12 * SECOND,
        held_back: false,
        free: last.free,
        prompt: 10,
        output: 4,
        exchange: &last.exchange,
        stamps: &last.stamps,
    });
    let got = level(&tally);
    assert_eq!((got.requests_per_s.unwrap().value, got.requests.ok), (2.0 / 2.71, 2));
    assert!((got.output_tokens_per_s.unwrap().value - 8.0 / 2.71).abs() < 1e-12, "{:?}", got.output_tokens_per_s);
    assert_eq!(got.to_unix_ms, EPOCH + 12_000);
}

#[test]
fn while_it_runs_tokens_of_requests_that_ended_count_since_others_are_not_heard_of_yet() {
    let mut tally = Tally::new(frame());
    tally.measure_from(10 * SECOND);
    // Its events are at 9.95, 10.15 and 10.55 s; another one is in flight.
    one(9 * SECOND + 850_000).add_to(&mut tally);
    tally.sent(10 * SECOND + 500_000);
    let live = tally.level(11 * SECOND, Client::default());
    assert_eq!((live.output_tokens_per_s.map(|rate| rate.value), live.to_unix_ms), (Some(4.0), EPOCH + 11_000));
    assert_eq!(live.ended_unix_ms, EPOCH + 11_000);
    tally.measure_to(11 * SECOND);
    // What ends of the cool-down does not stand for what is still in flight.
    one(11 * SECOND + 100_000).add_to(&mut tally);
    let ending = tally.level(12 * SECOND, Client::default());
    assert_eq!(ending.output_tokens_per_s.map(|rate| rate.value), Some(4.0));
    assert!(ending.notes.iter().any(|note| note.starts_with("requests were still in flight")), "{:?}", ending.notes);
}

#[test]
fn what_came_after_the_measured_time_counts_not_even_in_the_same_tenth_of_a_second() {
    let mut tally = Tally::new(frame());
    tally.measure_from(10 * SECOND);
    tally.measure_to(12 * SECOND + 350_000);
    // Events at 12.01, 12.21 and 12.61 s; then one at 12.36 s, which is the first of its request, that ends later.
    one(11 * SECOND + 910_000).using(Some(Usage { output: Some(3), ..Usage::default() })).add_to(&mut tally);
    one(12 * SECOND + 260_000).add_to(&mut tally);
    let rate = level(&tally).output_tokens_per_s.unwrap();
    assert!((rate.value - 2.0 / 2.35).abs() < 1e-12, "{rate:?}");
}

#[test]
fn before_the_measured_time_there_are_no_figures() {
    let mut tally = Tally::new(frame());
    let got = tally.level(SECOND, Client::default());
    assert_eq!((got.started_unix_ms, got.from_unix_ms, got.to_unix_ms), (EPOCH + 1000, EPOCH + 1000, EPOCH + 1000));
    one(SECOND).add_to(&mut tally);
    let got = tally.level(2 * SECOND, Client::default());
    assert_eq!((got.requests.sent, got.requests.measured, got.ttft_s.n), (1, 0, 0));
    assert_eq!((got.requests_per_s, got.output_tokens_per_s, got.total_tokens_per_s), (None, None, None));
    assert_eq!((got.started_unix_ms, tally.spent_tokens()), (EPOCH + 1000, 14));
}

#[test]
fn a_rate_has_an_interval_only_where_the_time_is_long_beside_a_request() {
    // Users one after the other, 0.71 s each: 10 s are 14 E2E.
    let mut long = tally(frame());
    (0..28).for_each(|i| one(5 * SECOND + i * 710_000).add_to(&mut long));
    let rate = level(&long).output_tokens_per_s.unwrap();
    assert!(
        (rate.value - 4.0 / 0.71).abs() < 0.4 && rate.lo.unwrap() < rate.value && rate.value < rate.hi.unwrap(),
        "{rate:?}"
    );
    // 6 s are not ten of 0.7 s.
    let mut short = Tally::new(frame());
    short.measure_from(10 * SECOND);
    short.measure_to(16 * SECOND);
    (0..12).for_each(|i| one(8 * SECOND + i * 710_000).add_to(&mut short));
    let rate = level(&short).output_tokens_per_s.unwrap();
    assert!(rate.value > 0.0 && rate.lo.is_none() && rate.hi.is_none(), "{rate:?}");
}

#[test]
fn a_good_request_keeps_every_slo() {
    let good = |slo: Slo, one: &One| {
        let mut tally = tally(Frame { slo, ..frame() });
        one.add_to(&mut tally);
        level(&tally).goodput.map(|goodput| goodput.good)
    };
    let (at, none) = (one(12 * SECOND), Slo::default());
    let (ttft, tpot, e2e) = (
        |s| Slo { ttft_s: Some(s), ..Slo::default() },
        |s| Slo { tpot_s: Some(s), ..Slo::default() },
        |s| Slo { e2e_s: Some(s), ..Slo::default() },
    );
    assert_eq!(good(none, &at), None);
    assert_eq!((good(ttft(0.1), &at), good(ttft(0.0999), &at)), (Some(1), Some(0)));
    assert_eq!((good(tpot(0.21), &at), good(tpot(0.19), &at)), (Some(1), Some(0)));
    assert_eq!((good(e2e(0.7), &at), good(e2e(0.69), &at)), (Some(1), Some(0)));
    assert_eq!(good(Slo { e2e_s: Some(0.1), ..ttft(1.0) }, &at), Some(0));
    // TPOT that nobody knows is not kept, but of one token there is none.
    let uncounted = one(12 * SECOND).using(None);
    assert_eq!((good(tpot(1.0), &uncounted), good(ttft(1.0), &uncounted)), (Some(0), Some(1)));
    assert_eq!(good(tpot(1.0), &One { output: 1, ..uncounted.clone() }), Some(1));
    assert_eq!(good(tpot(0.0), &one(12 * SECOND).using(Some(Usage { output: Some(1), ..Usage::default() }))), Some(1));
}

#[test]
fn goodput_counts_failed_requests_as_bad() {
    let mut tally = tally(Frame { slo: Slo { ttft_s: Some(0.5), ..Slo::default() }, ..frame() });
    (0..8).for_each(|i| one((11 + i) * SECOND).add_to(&mut tally));
    one(12 * SECOND).failing(refused()).add_to(&mut tally);
    one(12 * SECOND).failing(Fault::Cut(String::new())).add_to(&mut tally);
    let Goodput { good, n, share, lo, hi, per_s } = level(&tally).goodput.unwrap();
    assert_eq!((good, n, share, per_s), (8, 10, 0.8, 0.8));
    // Wilson's interval of 8 of 10: 0.4902 to 0.9433.
    assert!((lo - 0.4902).abs() < 5e-5 && (hi - 0.9433).abs() < 5e-5, "{lo} {hi}");
}

#[test]
fn slices_hold_what_was_measured_when_it_was() {
    // Micros 0 is 10.4 s before a minute is full: a request at 10 s has content before and after, and ends after.
    let epoch = 60_000 * 1000 - 10_400;
    let mut tally = tally(Frame { epoch_unix_ms: epoch, ..frame() });
    one(5 * SECOND).add_to(&mut tally);
    one(10 * SECOND).add_to(&mut tally);
    let got = level(&tally).slices;
    assert_eq!(got.len(), 2);
    assert_eq!((got[0].from_unix_ms, got[0].to_unix_ms), (epoch + 10_000, 60_000_000));
    assert_eq!((got[1].from_unix_ms, got[1].to_unix_ms), (60_000_000, epoch + 10_710));
    assert_eq!((&got[0].ttft[..], &got[0].itl[..]), (&[(bucket(0.1), 1)][..], &[(bucket(0.2), 1)][..]));
    assert!(got[0].e2e.is_empty() && got[0].tpot.is_empty() && got[1].ttft.is_empty());
    assert_eq!((&got[1].e2e[..], &got[1].itl[..]), (&[(bucket(0.7), 1)][..], &[(bucket(0.4), 1)][..]));
    assert_eq!(got[1].tpot, [(bucket(0.2), 1)]);
}

#[test]
fn spent_tokens_are_counted_or_planned_and_those_of_faults_are_not_forgotten() {
    let spent = |one: &One| {
        let mut tally = Tally::new(frame());
        one.add_to(&mut tally);
        tally.spent_tokens()
    };
    let at = one(SECOND);
    let said =
        |prompt, output| at.clone().using(Some(Usage { prompt: Some(prompt), cached: None, output: Some(output) }));
    assert_eq!(spent(&said(30, 7)), 37);
    // Ten were sent and three events came, whatever the server says.
    assert_eq!([spent(&said(0, 0)), spent(&said(9, 2)), spent(&said(u64::MAX, u64::MAX))], [13, 13, 14]);
    assert_eq!(spent(&One { output: 40, ..at.clone().using(None) }), 50);
    assert_eq!(spent(&One { output: 40, ..at.clone().using(None).failing(Fault::Cut(String::new())) }), 50);
    // A stream that did not stop cost more than was planned, as far as is known.
    assert_eq!(spent(&One { output: 2, ..at.clone().using(None) }), 13);
    assert_eq!((spent(&at.clone().failing(refused())), spent(&at.failing(Fault::Unconnected(String::new())))), (10, 0));
}

#[test]
fn a_count_that_cannot_be_is_none_and_spends_no_budget() {
    // Three events: 1000 each and a million at most.
    for (count, is_taken) in [(1_003_000, true), (1_003_001, false), (u64::MAX, false)] {
        let mut tally = tally(frame());
        one(12 * SECOND).using(Some(Usage { prompt: Some(10), cached: None, output: Some(count) })).add_to(&mut tally);
        assert_eq!(tally.spent_tokens(), if is_taken { count + 10 } else { 14 });
        let got = level(&tally);
        assert_eq!((got.tokens.output, got.tokens.uncounted), (is_taken.then_some(count), u64::from(!is_taken)));
        assert_eq!(got.output_tokens_per_s.is_some(), is_taken);
        let note = "answers with a count of tokens that cannot be, which was not taken for one: 1";
        assert_eq!(got.notes.iter().any(|has| has == note), !is_taken, "{:?}", got.notes);
    }
    let most = Usage { prompt: Some(1_000_000_001), ..Usage::default() };
    assert_eq!(most.plausible(u64::MAX), (Usage::default(), true));
}

#[test]
fn only_an_open_loop_is_over_saturated() {
    // 20 requests/s, 10 of them served.
    for open in [true, false] {
        let mut tally = Tally::new(Frame { open, ..frame() });
        let mut sent = 0;
        for i in 0..400 {
            while sent * 50_000 < (i + 1) * 100_000 {
                tally.sent(sent * 50_000);
                sent += 1;
            }
            let mut served = one(i * 50_000);
            let first = (i + 1) * 100_000;
            served.exchange.first_content = Some(first);
            (served.exchange.last_content, served.exchange.end) = (Some(first), first);
            served.stamps = vec![Stamp { at: first, tokens: None }];
            tally.add(&Ended {
                intended: i * 50_000,
                begun: i * 50_000,
                held_back: false,
                free: i * 50_000,
                prompt: 10,
                output: 4,
                exchange: &served.exchange,
                stamps: &served.stamps,
            });
        }
        assert_eq!(tally.is_over_saturated(), open);
    }
}

#[test]
fn a_request_that_is_dispatched_on_the_other_side_of_the_end_is_not_waited_for_for_ever() {
    let mut tally = tally(frame());
    one(12 * SECOND).add_to(&mut tally);
    tally.sent(20 * SECOND - 1);
    assert!(!tally.is_complete());
    let late = one(20 * SECOND + 3_000);
    tally.add(&Ended {
        intended: late.intended,
        begun: 20 * SECOND - 1,
        held_back: false,
        free: late.free,
        prompt: 10,
        output: 4,
        exchange: &late.exchange,
        stamps: &late.stamps,
    });
    assert!(tally.is_complete());
    assert_eq!((level(&tally).requests.sent, level(&tally).requests.measured), (2, 1));
}

#[test]
fn memory_does_not_grow_with_events() {
    let mut tally = tally(frame());
    let mut long = one(12 * SECOND);
    long.stamps = (0..200_000).map(|i| Stamp { at: 12 * SECOND + 100_000 + i * 3, tokens: None }).collect();
    long.add_to(&mut tally);
    let got = level(&tally);
    assert_eq!((got.itl_s.n, got.tokens.events), (199_999, 200_000));
    assert_eq!((got.itl_s.p50.unwrap().value, got.itl_s.p99.unwrap().enough), (3e-6, false));
    assert_eq!(got.slices.len(), 1);
}
