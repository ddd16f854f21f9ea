//! Open loops: nothing the server does moves when requests should begin, and none is dropped.

use std::time::Duration;

use crate::load::level::{Load, State};
use crate::load::plan::{Arrival, Plan, Shape, Span};

use super::fake::{Stand, good, in_virtual_time, plan, serial, time};

fn constant(rates: &[f64], span: Span) -> Plan {
    plan(Shape::Constant(rates.to_vec()), span)
}

/// The classic trap: a server that takes 0.5 s and serves one at a time, asked 10 times a second. Request k, from 0,
/// should begin at 0.1·k s and ends at 0.5·(k + 1) s, so that from its schedule it takes 0.5 + 0.4·k s, whatever a
/// client says that counts from when it got round to asking.
#[test]
fn the_classic_trap_shows_in_scheduled_latency_and_nothing_is_dropped() {
    in_virtual_time(async {
        let mut plan = constant(&[10.0], Span::Requests(200));
        plan.most_in_flight = 1;
        let stand = Stand::new(plan, |_, _| good(500));
        let swept = stand.run().await;
        let level = &swept.levels[0];
        assert_eq!((level.state, level.requests.measured, level.requests.not_sent), (State::Done, 200, 0));
        assert_eq!((stand.server.most.get(), stand.server.lanes.get(), level.client.most_in_flight), (1, 1, 1));
        stand.log(0, |log| {
            let start = log.from.unwrap();
            for (k, row) in (0_u64..).zip(&log.rows) {
                assert_eq!(row.intended, start + 100_000 * k);
                assert_eq!(row.end - row.intended, 500_000 + 400_000 * k, "scheduled E2E of {k}");
                assert_eq!(row.end - row.dispatched.unwrap(), 500_000, "service E2E of {k}");
                assert_eq!((row.held_back, row.free), (k > 0, start + 500_000 * k), "{k}");
            }
            // Rank ⌈0.99 · 200⌉ = 198 is request 197.
            let mut scheduled: Vec<u64> = log.measured().map(|row| row.end - row.intended).collect();
            scheduled.sort_unstable();
            assert_eq!(scheduled[197], 79_300_000);
        });
        // Waiting for a place is the server's doing.
        assert_eq!((level.client.dispatch_lag.n, level.client.dispatch_lag.max), (200, Some(0.0)));
        let note = "requests that had to make a connection first: 1; that time is not in the dispatch lag";
        assert_eq!(level.notes, [note]);
    });
}

#[test]
fn a_queue_in_the_server_shows_in_both_latencies() {
    in_virtual_time(async {
        let mut plan = constant(&[10.0], Span::Requests(200));
        plan.timeout_s = 100.0;
        let stand = Stand::new(plan, serial(500));
        stand.run().await;
        stand.log(0, |log| {
            for (k, row) in (0_u64..).zip(&log.rows) {
                assert_eq!(row.end - row.intended, 500_000 + 400_000 * k);
                assert!(!row.held_back && row.dispatched == Some(row.intended) && row.free == row.intended);
            }
        });
        // 200 came in 20 s, and one left every 0.5 s; a connection is used again only when it is free.
        assert_eq!(stand.server.lanes.get(), stand.server.most.get());
        assert!((159..=161).contains(&stand.server.most.get()));
    });
}

/// Mean wait of M/D/1 by Pollaczek and Khinchine: ρ·D ÷ (2·(1 − ρ)).
#[test]
fn random_arrivals_wait_as_long_as_queueing_theory_says() {
    in_virtual_time(async {
        let (rate, service_s) = (7.0, 0.1);
        let stand = Stand::new(plan(Shape::Poisson(vec![rate]), Span::Requests(20_000)), serial(100));
        let swept = stand.run().await;
        assert_eq!(swept.levels[0].requests.ok, 20_000);
        let waits: Vec<f64> =
            stand.log(0, |log| log.rows.iter().map(|row| (row.end - row.intended) as f64 / 1e6 - service_s).collect());
        let means: Vec<f64> = waits.chunks(1_000).map(|batch| batch.iter().sum::<f64>() / batch.len() as f64).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
        let error = (variance / means.len() as f64).sqrt();
        let load = rate * service_s;
        let theory = load * service_s / (2.0 * (1.0 - load));
        assert!(error < 0.1 * theory, "{error} of {theory}");
        // tokio's timer is up to 1 ms late.
        assert!((mean - theory).abs() < 3.0 * error + 0.001, "{mean} ± {error} against {theory}");
    });
}

#[test]
fn a_repeat_is_another_sample_and_the_same_seed_the_same_sweep() {
    let intended = || {
        in_virtual_time(async {
            let mut plan = plan(Shape::Poisson(vec![5.0]), Span::Requests(20));
            plan.repeats = 2;
            let stand = Stand::new(plan, |_, _| good(10));
            stand.run().await;
            [0, 1].map(|level| {
                stand.log(level, |log| {
                    let start = log.from.unwrap();
                    log.rows.iter().map(|row| row.intended - start).collect::<Vec<u64>>()
                })
            })
        })
    };
    let levels = intended();
    assert_ne!(levels[0], levels[1]);
    assert_eq!(levels, intended());
}

#[test]
fn requests_that_are_due_at_once_all_go_out_and_their_lag_shows() {
    in_virtual_time(async {
        let stand = Stand::new(constant(&[100.0], time(1.0, 4.0, 10, 9.0)), |_, _| good(20));
        let stall = tokio::task::spawn_local(async {
            tokio::time::sleep(Duration::from_millis(3_001)).await;
            tokio::time::advance(Duration::from_millis(55)).await;
        });
        let swept = stand.run().await;
        stall.await.unwrap();
        stand.log(0, |log| {
            let late: Vec<u64> = log.rows.iter().map(|row| (row.dispatched.unwrap() - row.intended) / 1000).collect();
            let late: Vec<u64> = late.into_iter().filter(|ms| *ms > 0).collect();
            // Due at 3.01 to 3.05 s, dispatched at 3.056 s: the gaps between them stay those of the schedule.
            assert_eq!(late, [46, 36, 26, 16, 6]);
            assert!(log.rows.windows(2).all(|pair| pair[1].intended - pair[0].intended == 10_000));
        });
        let client = &swept.levels[0].client;
        let near = |lag: Option<f64>, seconds: f64| (lag.unwrap() / seconds - 1.0).abs() < 2e-3;
        assert!(near(client.dispatch_lag.max, 0.046) && near(client.loop_lag.max, 0.046), "{client:?}");
        assert_eq!((client.dispatch_lag.p50, client.loop_lag.p50), (Some(0.0), Some(0.0)));
        assert_eq!(client.limits.len(), 2, "{:?}", client.limits);
    });
}

#[test]
fn a_connection_that_takes_long_is_not_the_client_being_late() {
    in_virtual_time(async {
        let stand = Stand::new(constant(&[10.0], Span::Requests(30)), |_, _| good(50));
        stand.server.connecting.set(5);
        let swept = stand.run().await;
        stand.log(0, |log| {
            let late = |row: &super::fake::Row| row.dispatched.unwrap() - row.intended;
            assert_eq!((late(&log.rows[0]), late(&log.rows[1])), (5_000, 0));
        });
        let level = &swept.levels[0];
        assert_eq!((level.client.dispatch_lag.n, level.client.dispatch_lag.max), (30, Some(0.0)));
        assert!(level.notes[0].starts_with("requests that had to make a connection first: 1;"), "{:?}", level.notes);
    });
}

/// What many clients call done: all that was measured ended, and most that came never went out or never ended.
#[test]
fn more_than_is_served_is_called_that_however_few_end() {
    for (rate, ms, most_in_flight) in [(10.0, 500, 1), (30.0, 100, 10_000), (10.0, 500, 10_000)] {
        in_virtual_time(async {
            let mut plan = constant(&[rate], time(0.0, 20.0, 1, 20.0));
            (plan.most_in_flight, plan.timeout_s) = (most_in_flight, 120.0);
            let stand = Stand::new(plan, serial(ms));
            let swept = stand.run().await;
            let level = &swept.levels[0];
            assert_eq!(level.state, State::OverSaturated, "{rate} {ms} {most_in_flight}");
            assert!(stand.now() <= 38_000_000, "{} at {rate}", stand.now());
            // Nothing more began, and nothing is missing.
            let came = (rate * 20.0) as u64;
            assert!((level.requests.sent + level.requests.not_sent).abs_diff(came) <= 1, "{:?}", level.requests);
            stand.log(0, |log| assert!(*log.sent.last().unwrap() <= log.to.unwrap()));
            let notes = level.notes.join("; ");
            assert!(notes.contains("more came than was served"), "{notes}");
            assert_eq!(notes.contains("had no end in time"), most_in_flight > 1, "{notes}");
        });
    }
}

#[test]
fn what_keeps_pace_is_done_and_is_waited_for() {
    // It fills up for 12 of 20 s and then keeps pace.
    in_virtual_time(async {
        let stand = Stand::new(constant(&[10.0], time(0.0, 20.0, 1, 20.0)), |_, _| good(12_000));
        let swept = stand.run().await;
        assert_eq!((swept.levels[0].state, stand.server.dropped.get()), (State::Done, 0));
    });
}

#[test]
fn what_still_waits_when_a_level_ends_is_counted() {
    in_virtual_time(async {
        let mut plan = constant(&[10.0], time(1.0, 4.0, 2, 9.0));
        plan.most_in_flight = 1;
        let stand = Stand::new(plan, |_, _| good(500));
        let swept = stand.run().await;
        let level = &swept.levels[0];
        // Whatever is due until the last measured request has ended, the first at 0 s.
        let came = stand.log(0, |log| log.measured().map(|row| row.end).max().unwrap()) / 100_000 + 1;
        assert_eq!(level.state, State::OverSaturated);
        assert!((level.requests.sent + level.requests.not_sent).abs_diff(came) <= 1, "{:?} of {came}", level.requests);
        assert!(level.requests.not_sent > 30);
        assert!(level.notes.iter().any(|note| note.starts_with(&level.requests.not_sent.to_string())));
    });
}

#[test]
fn a_trace_comes_as_it_was_with_its_lengths_once() {
    in_virtual_time(async {
        let arrival = |at_s, prompt, output| Arrival { at_s, prompt, output };
        let trace = vec![arrival(0.0, 100, 5), arrival(0.25, 7, 9), arrival(0.25, 8, 8), arrival(60.0, 1, 2)];
        let mut plan = plan(Shape::Trace(trace), time(1.0, 2.0, 1, 3.0));
        plan.repeats = 3;
        let stand = Stand::new(plan, |_, _| good(100));
        let swept = stand.run().await;
        assert_eq!((swept.levels.len(), swept.levels[0].load, swept.levels[0].state), (1, Load::Trace, State::Done));
        stand.log(0, |log| {
            let start = log.from.unwrap();
            let came: Vec<_> = log.rows.iter().map(|row| (row.intended - start, row.prompt, row.output)).collect();
            assert_eq!(came, [(0, 100, 5), (250_000, 7, 9), (250_000, 8, 8), (60_000_000, 1, 2)]);
            assert_eq!(log.measured().count(), 4);
        });
    });
}

#[test]
fn a_trace_beyond_the_budget_says_how_much_of_it_was_not_sent() {
    in_virtual_time(async {
        let trace = (0..100).map(|i| Arrival { at_s: f64::from(i), prompt: 1, output: 1 }).collect();
        let mut plan = plan(Shape::Trace(trace), Span::Requests(80));
        plan.budget.seconds = 30.05;
        let stand = Stand::new(plan, |_, _| good(100));
        let swept = stand.run().await;
        let level = &swept.levels[0];
        assert_eq!((level.state, level.requests.ok, level.requests.not_sent), (State::OutOfBudget, 30, 50));
        assert_eq!(swept.ended_early, "the budget of 30.05 s was used up");
    });
}
