//! What ends a level or a sweep before its time: budgets, faults, over-saturation, being told to.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::load::exchange::Fault;
use crate::load::level::{Level, Load, Requests, State};
use crate::load::plan::{Shape, Span};
use crate::load::run::judge;
use crate::load::{LoadError, Swept};

use super::fake::{Stand, bad, good, in_virtual_time, plan, time};

#[test]
fn tokens_in_flight_count_against_the_budget() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Closed(vec![3, 6]), Span::Requests(100));
        plan.budget.tokens = 2_205;
        let stand = Stand::new(plan, |_, _| good(100));
        let swept = stand.run().await;
        let sent: Vec<u64> = swept.levels.iter().map(|level| level.requests.sent).collect();
        // 20 tokens each: the second level has 205 left, enough for 10.
        assert_eq!((sent, stand.server.dropped.get()), (vec![100, 10], 0));
        assert_eq!((swept.levels[1].state, swept.levels[1].requests.not_sent), (State::OutOfBudget, 90));
        assert_eq!(swept.ended_early, "the budget of 2205 tokens was used up");
        let notes = swept.levels[1].notes.join("; ");
        assert!(notes.contains("90 requests were due or planned") && notes.contains("2205 tokens"), "{notes}");
    });
}

#[test]
fn a_sweep_ends_within_its_time_with_nothing_cut_off() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Closed(vec![1, 2, 4, 8]), time(1.0, 10.0, 1, 10.0));
        plan.budget.seconds = 30.0;
        let stand = Stand::new(plan, |_, _| good(700));
        let swept = stand.run().await;
        // Two levels take 12 s each, the third would need 11 s.
        assert!((23_000_000..=24_000_000).contains(&stand.now()), "{}", stand.now());
        assert_eq!((swept.levels.len(), stand.server.dropped.get()), (2, 0));
        assert_eq!(swept.ended_early, "the budget of 30 s was used up; 2 levels were not measured");
    });
}

/// Fault: probe: an answer takes longer than the budget of time
/// Seen: `requests in flight at its end that were given up`
/// Works: what was measured until then
/// Recovers: with the next sweep
#[test]
fn a_level_that_the_budget_cuts_says_so() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Closed(vec![1, 2]), time(1.0, 10.0, 100, 100.0));
        plan.budget.seconds = 20.0;
        let stand = Stand::new(plan.clone(), |_, _| good(700));
        let swept = stand.run().await;
        assert_eq!((swept.levels[0].state, stand.server.dropped.get()), (State::OutOfBudget, 0));
        assert!((19_000_000..20_000_000).contains(&stand.now()), "{}", stand.now());
        assert!(swept.levels[0].requests.ok > 20);
        // An answer that takes for ever is not waited for beyond the budget.
        let stand = Stand::new(plan, |number, _| good(if number == 9 { 59_000 } else { 700 }));
        let swept = stand.run().await;
        assert_eq!((swept.levels[0].state, stand.server.dropped.get()), (State::OutOfBudget, 1));
        assert!((20_000_000..=20_010_000).contains(&stand.now()), "{}", stand.now());
        let notes = swept.levels[0].notes.join("; ");
        assert!(notes.contains("requests in flight at its end that were given up: 1;"), "{notes}");
    });
}

#[test]
fn a_level_whose_last_request_ends_within_the_budget_is_whole() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Closed(vec![1]), Span::Requests(10));
        plan.budget.seconds = 7.2;
        let stand = Stand::new(plan, |_, _| good(700));
        let swept = stand.run().await;
        assert_eq!((swept.levels[0].state, swept.levels[0].requests.ok), (State::Done, 10));
        assert_eq!(swept.ended_early, "");
    });
}

/// All that is measured has begun at 10.7 s, after a warm-up of one request, and ended at 15.5 s.
#[test]
fn a_level_that_is_measured_is_not_spoiled_by_a_budget_that_ends_after() {
    // Out of time for more requests; for what is in flight; out of tokens.
    for (seconds, tokens, late) in [(15.8, u64::MAX, 700), (16.0, u64::MAX, 30_000), (100.0, 680, 700)] {
        in_virtual_time(async {
            let mut plan = plan(Shape::Closed(vec![2]), time(0.0, 10.0, 1, 10.0));
            (plan.budget.seconds, plan.budget.tokens) = (seconds, tokens);
            let mut is_long = false;
            let script = move |_, now| match now {
                10_000.. if !std::mem::replace(&mut is_long, true) => good(5_000),
                10_800.. => good(late),
                _ => good(700),
            };
            let swept = Stand::new(plan, script).run().await;
            let level = &swept.levels[0];
            assert_eq!((level.state, level.requests.measured, &*swept.ended_early), (State::Done, 28, ""), "{seconds}");
        });
    }
}

/// Fault: engine: too many requests of a sweep fail
/// Seen: `7 of 20 requests failed, most often: HTTP 500: out of memory`
/// Works: the levels before
/// Recovers: with the next sweep
#[test]
fn too_many_faults_end_the_sweep_with_the_one_that_came_most() {
    in_virtual_time(async {
        let script = |number: u64, _| match number {
            3 => bad(50, Fault::Malformed("something else".to_owned())),
            _ if number.is_multiple_of(3) => bad(50, Fault::Status { status: 500, words: "out of memory".to_owned() }),
            _ => good(100),
        };
        let mut plan = plan(Shape::Closed(vec![1, 2]), time(0.0, 60.0, 10, 60.0));
        plan.most_errors = 0.2;
        let stand = Stand::new(plan.clone(), script);
        let swept = stand.run().await;
        assert_eq!((swept.levels.len(), swept.levels[0].state), (1, State::Failing));
        assert_eq!(swept.levels[0].requests.sent, 20);
        let words = "7 of 20 requests failed, most often: HTTP 500: out of memory; 1 level was not measured";
        assert_eq!(swept.ended_early, words);
        plan.most_errors = 0.5;
        let stand = Stand::new(plan, script);
        let swept = stand.run().await;
        assert!(swept.ended_early.is_empty() && swept.levels.iter().all(|level| level.state == State::Done));
    });
}

#[test]
fn a_level_of_few_requests_that_mostly_failed_is_not_called_done() {
    in_virtual_time(async {
        let broken = |number: u64, _| match number {
            0..4 => bad(50, Fault::Status { status: 500, words: "no".to_owned() }),
            _ => good(50),
        };
        let mut plan = plan(Shape::Closed(vec![1, 2]), Span::Requests(10));
        plan.most_errors = 0.3;
        let swept = Stand::new(plan.clone(), broken).run().await;
        let states: Vec<State> = swept.levels.iter().map(|level| level.state).collect();
        assert_eq!((states, &*swept.ended_early), (vec![State::Failing, State::Done], ""), "the sweep goes on");
        assert!(swept.levels[0].notes[0].ends_with("HTTP 500: no"), "{:?}", swept.levels[0].notes);
        plan.most_errors = 0.4;
        assert_eq!(Stand::new(plan, broken).run().await.levels[0].state, State::Done);
        // Nothing else is to be heard where it all failed.
        let mut plan = self::plan(Shape::Closed(vec![1]), Span::Requests(6));
        plan.most_errors = 1.0;
        let all = |_, _| bad(50, Fault::Cut("the engine died".to_owned()));
        let error = judge(Stand::new(plan, all).run().await, false).unwrap_err().to_string();
        assert_eq!(error, "no measured request ended well: the answer broke off: the engine died");
    });
}

/// Fault: engine: answers end well and are empty
/// Seen: `an answer without content`
/// Works: users rest after each
/// Recovers: with the next sweep
#[test]
fn an_answer_without_content_is_none() {
    in_virtual_time(async {
        let stand = Stand::new(plan(Shape::Closed(vec![1]), Span::Requests(100)), |_, _| good(0));
        let swept = stand.run().await;
        assert_eq!((swept.levels[0].state, swept.levels[0].requests.sent), (State::Failing, 20));
        assert_eq!(swept.ended_early, "20 of 20 requests failed, most often: an answer without content");
        // Nobody is asked again and again at once.
        assert!(stand.now() > 60_000_000);
    });
}

/// Fault: engine: it dies during a sweep
/// Seen: `no connection: connection refused`
/// Works: the levels before
/// Recovers: with the next sweep
#[test]
fn where_there_is_no_server_it_ends_at_once() {
    in_virtual_time(async {
        let refused = || Fault::Unconnected("connection refused".to_owned());
        let script = move |number, _| bad(if number < 3 { 1 } else { 50_000 }, refused());
        let stand = Stand::new(plan(Shape::Closed(vec![8, 16]), time(0.0, 60.0, 10, 60.0)), script);
        let swept = stand.run().await;
        assert!(stand.now() <= 20_000, "{}", stand.now());
        assert_eq!(swept.levels[0].state, State::Failing);
        let words = "no connection: connection refused; 1 level was not measured";
        assert_eq!(swept.ended_early, words);
        assert_eq!(judge(swept, false), Err(LoadError::Endpoint(words.to_owned())));
        // One answer, and it is a server that fails now and then.
        let script = move |number, _| if number == 1 { good(1) } else { bad(1, refused()) };
        let stand = Stand::new(plan(Shape::Closed(vec![1]), Span::Requests(10)), script);
        assert_eq!(stand.run().await.levels[0].requests.sent, 10);
    });
}

#[test]
fn the_stop_flag_ends_everything_at_once_and_keeps_what_was_measured() {
    for shape in [Shape::Closed(vec![4, 8]), Shape::Constant(vec![10.0, 20.0])] {
        in_virtual_time(async {
            let stand = Stand::new(plan(shape, time(1.0, 60.0, 1, 60.0)), |_, _| good(400));
            let stop = Arc::clone(&stand.site.stop);
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_millis(3_333)).await;
                stop.store(true, Ordering::Relaxed);
            });
            let swept = stand.run().await;
            assert!((3_333_000..3_360_000).contains(&stand.now()), "{}", stand.now());
            let level = &swept.levels[0];
            assert_eq!((swept.levels.len(), level.state, stand.server.dropped.get()), (1, State::Stopped, 4));
            assert!(level.requests.ok >= 16 && level.requests.sent > level.requests.ok);
            assert_eq!(swept.ended_early, "it was told to stop; 1 level was not measured");
            assert!(
                level.notes.iter().any(|note| note.starts_with("requests in flight at its end that were given up: 4;"))
            );
        });
    }
}

#[test]
fn higher_rates_are_left_out_where_more_came_than_was_served() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Constant(vec![2.0, 8.0, 4.0, 9.0]), time(1.0, 10.0, 1, 10.0));
        plan.repeats = 2;
        let is_too_much = |frame: &crate::load::tally::Frame| frame.load == Load::RequestsPerS(8.0);
        let stand = Stand::with(plan, |_, _| good(100), is_too_much);
        let swept = stand.run().await;
        let levels: Vec<(Load, u32, State)> =
            swept.levels.iter().map(|level| (level.load, level.repeat, level.state)).collect();
        let level = |rate, repeat, state| (Load::RequestsPerS(rate), repeat, state);
        let round = |repeat| {
            [(2.0, State::Done), (8.0, State::OverSaturated), (4.0, State::Done)]
                .map(|(rate, state)| level(rate, repeat, state))
        };
        assert_eq!(levels, [round(0), round(1)].concat());
        // Places are those of the plan.
        let places: Vec<u32> = swept.levels.iter().map(|level| level.place).collect();
        assert_eq!(places, [0, 1, 2, 4, 5, 6]);
        let words = "more came than was served, so higher rates were left out: 9 requests/s, 9 requests/s";
        assert_eq!(swept.ended_early, words);
        // Not before 5 s, and what was in flight was waited for.
        stand.log(1, |log| assert!((log.to.unwrap() - log.sent[0]).abs_diff(5_000_000) <= 20_000));
        assert_eq!(stand.server.dropped.get(), 0);
    });
}

/// Fault: engine: a request of a sweep has no end
/// Seen: one that failed for want of time
/// Works: the other requests, and the next level
/// Recovers: with its time-out
#[test]
fn a_request_that_never_ends_does_not_hold_up_the_next_level() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Closed(vec![2, 4]), time(1.0, 5.0, 1, 5.0));
        plan.timeout_s = 10.0;
        plan.most_errors = 1.0;
        let stand = Stand::new(plan, |number, _| good(if number == 30 { 1_000_000 } else { 200 }));
        let swept = stand.run().await;
        assert!(swept.levels.iter().all(|level| level.state == State::Done), "{:?}", swept.levels);
        let timed_out = |fault: &Option<Fault>| matches!(fault, Some(Fault::Timeout(_)));
        stand.log(0, |log| assert_eq!(log.rows.iter().filter(|row| timed_out(&row.fault)).count(), 1));
    });
}

#[test]
fn a_sweep_in_which_nothing_ended_well_is_none() {
    let swept = |state, ok, why: &str| Swept {
        levels: vec![Level { state, requests: Requests { ok, ..Requests::default() }, ..Level::default() }],
        ended_early: why.to_owned(),
        ..Swept::default()
    };
    assert!(judge(swept(State::Stopped, 1, "x"), true).is_ok());
    assert_eq!(judge(swept(State::Stopped, 0, "x"), true), Err(LoadError::Stopped));
    assert_eq!(judge(swept(State::Failing, 0, "x"), false), Err(LoadError::Endpoint("x".to_owned())));
    let words = |swept| judge(swept, false).unwrap_err().to_string();
    assert!(words(swept(State::OutOfBudget, 0, "the budget")).contains("the budget; allow more"));
    assert!(words(Swept { ended_early: "no time".to_owned(), ..Swept::default() }).contains("no time; allow more"));
    assert_eq!(words(swept(State::Short, 0, "")), "no measured request ended well");
    let mut noted = swept(State::Short, 0, "");
    noted.levels[0].notes = ["1 request was never sent", "users rested 5 times"].map(str::to_owned).into();
    assert_eq!(words(noted.clone()), "no measured request ended well: users rested 5 times");
    noted.levels[0].most_frequent_fault = Some("HTTP 500: no".to_owned());
    assert_eq!(words(noted), "no measured request ended well: HTTP 500: no");
}
