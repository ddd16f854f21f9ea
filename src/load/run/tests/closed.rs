//! Closed loops: so many users, warm-up, the measured time, and what follows it.

use std::time::Duration;

use crate::load::exchange::Fault;
use crate::load::level::State;
use crate::load::plan::{Order, Plan, Shape, Span};
use crate::load::run::order::legs;

use super::fake::{Stand, bad, good, in_virtual_time, plan, time};

fn closed(users: &[u32], span: Span) -> Plan {
    plan(Shape::Closed(users.to_vec()), span)
}

#[test]
fn so_many_users_keep_so_many_requests_in_flight_and_get_so_many_answers() {
    in_virtual_time(async {
        let stand = Stand::new(closed(&[1, 4, 16], time(1.0, 10.0, 20, 20.0)), |_, _| good(250));
        let swept = stand.run().await;
        assert_eq!((stand.server.most.get(), swept.ended_early.as_str()), (16, ""));
        for (i, users) in [1_u64, 4, 16].into_iter().enumerate() {
            let level = &swept.levels[i];
            assert_eq!((level.state, level.place), (State::Done, i as u32));
            assert_eq!(level.client.most_in_flight, users);
            assert!((level.client.in_flight.unwrap() - users as f64).abs() < 1e-9);
            stand.log(i, |log| {
                let (from, to) = (log.from.unwrap(), log.to.unwrap());
                assert!((10_000_000..10_020_000).contains(&(to - from)));
                // 10 s at `users` ÷ 0.25 s, give or take one of each user.
                let ended = log.rows.iter().filter(|row| (from..to).contains(&row.end)).count() as u64;
                assert!(ended.abs_diff(40 * users) <= users, "{ended}");
                assert!(log.rows.iter().all(|row| !row.held_back && row.dispatched == Some(row.intended)));
            });
            assert!(level.notes.is_empty(), "{:?}", level.notes);
        }
        // Connections go from level to level.
        assert_eq!(stand.server.lanes.get(), 16);
    });
}

#[test]
fn load_is_kept_up_until_the_last_measured_request_has_ended() {
    in_virtual_time(async {
        let stand = Stand::new(closed(&[3], time(1.0, 4.0, 5, 9.0)), |number, _| good(300 + number % 5 * 400));
        let swept = stand.run().await;
        assert_eq!((swept.levels[0].state, stand.server.dropped.get()), (State::Done, 0));
        stand.log(0, |log| {
            let (from, to) = (log.from.unwrap(), log.to.unwrap());
            assert!(from >= 1_000_000 && to >= from + 4_000_000);
            let last = log.measured().map(|row| row.end).max().unwrap();
            assert!(last > to + 100_000);
            for at in (from..last).step_by(7_000) {
                let in_flight = log.rows.iter().filter(|row| row.intended <= at && at < row.end).count();
                assert_eq!(in_flight, 3, "{at}");
            }
            // Then nothing more is asked, and what is in flight is not cut off.
            assert!(log.sent.iter().all(|at| *at <= last + 10_000));
            let measured = log.sent.iter().filter(|at| (from..to).contains(*at)).count() as u64;
            assert_eq!(measured, swept.levels[0].requests.measured);
            assert!(log.sent.iter().any(|at| *at < from) && log.sent.iter().any(|at| *at >= to));
        });
    });
}

#[test]
fn the_warm_up_waits_for_the_first_answer_of_each_user_but_not_for_ever() {
    in_virtual_time(async {
        for (first, from_s, notes) in [(5_000, 5.0, 0), (50_000, 10.0, 1)] {
            let script = move |number, _| good(if number == 1 { first } else { 100 });
            let stand = Stand::new(closed(&[2], time(1.0, 2.0, 1, 10.0)), script);
            let swept = stand.run().await;
            let from = stand.log(0, |log| log.from.unwrap());
            assert!((from as f64 / 1e6 - from_s).abs() < 0.011, "{from}");
            assert_eq!(swept.levels[0].notes.len(), notes, "{:?}", swept.levels[0].notes);
        }
    });
}

#[test]
fn a_level_without_its_samples_is_short() {
    in_virtual_time(async {
        let stand = Stand::new(closed(&[2], time(0.0, 2.0, 100, 5.0)), |_, _| good(500));
        let swept = stand.run().await;
        assert_eq!((swept.levels[0].state, swept.levels[0].requests.not_sent), (State::Short, 0));
        stand.log(0, |log| assert!((5_000_000..5_020_000).contains(&(log.to.unwrap() - log.from.unwrap()))));
    });
}

#[test]
fn exactly_as_many_requests_as_planned_are_sent_and_measured() {
    in_virtual_time(async {
        let stand = Stand::new(closed(&[8], Span::Requests(43)), |number, _| good(100 + number * 10));
        let swept = stand.run().await;
        let level = &swept.levels[0];
        assert_eq!((level.requests.sent, level.requests.measured, level.requests.ok), (43, 43, 43));
        assert_eq!((level.state, level.requests.not_sent, level.client.most_in_flight), (State::Done, 0, 8));
        // No user had to wait for another's request to be written.
        assert_eq!(stand.server.made_before.get(), 8);
        stand.log(0, |log| {
            assert_eq!(log.from, log.sent.first().copied());
            // The measured time ends with the last answer: what `vllm bench serve` divides by.
            assert_eq!(log.to, log.rows.iter().map(|row| row.end + 1).max());
        });
    });
}

#[test]
fn a_server_that_refuses_is_left_alone_for_as_long_as_it_wants() {
    in_virtual_time(async {
        let refuse = || Fault::Refused { status: 429, retry_after: Some(Duration::from_secs(3)), words: String::new() };
        let script = move |number, _| match number {
            4 => bad(100, refuse()),
            6 | 7 => bad(100, Fault::Cut("reset".to_owned())),
            _ => good(100),
        };
        let mut plan = closed(&[1], Span::Requests(30));
        plan.most_errors = 0.2;
        let stand = Stand::new(plan, script);
        let swept = stand.run().await;
        stand.log(0, |log| {
            let gaps: Vec<u64> = (0..9).map(|i| (log.rows[i + 1].intended - log.rows[i].end) / 1000).collect();
            assert_eq!(gaps, [0, 0, 0, 0, 3_000, 0, 100, 200, 0]);
            // The rest is no lateness of the client.
            assert!(log.rows.iter().all(|row| row.dispatched == Some(row.intended)));
        });
        let level = &swept.levels[0];
        assert_eq!((level.state, level.requests.measured, level.requests.ok), (State::Done, 30, 27));
        let notes = level.notes.join("; ");
        assert!(notes.contains("rested 3 times after a failed request, 3.3 s in all"), "{notes}");
        assert!(notes.contains("the answer broke off: reset"), "{notes}");
        assert_eq!(level.client.dispatch_lag.max, Some(0.0));
    });
}

#[test]
fn rounds_hold_each_load_once_in_order_or_shuffled_by_the_seed() {
    let users: Vec<u32> = (0..7).map(|i| 1 << i).collect();
    let mut plan = closed(&users, Span::Requests(1));
    plan.repeats = 3;
    let listed = legs(&plan);
    assert!(listed.chunks(7).enumerate().all(|(i, round)| round.iter().all(|leg| leg.repeat == i as u32)));
    assert_eq!(
        listed[..7].iter().map(|leg| leg.load).collect::<Vec<_>>(),
        listed[14..].iter().map(|leg| leg.load).collect::<Vec<_>>()
    );
    plan.order = Order::Random;
    let random = legs(&plan);
    assert_eq!(random, legs(&plan));
    assert!(random != listed && random[..7].iter().map(|leg| leg.load).ne(random[7..14].iter().map(|leg| leg.load)));
    for (round, other) in random.chunks(7).zip(listed.chunks(7)) {
        assert!(other.iter().all(|leg| round.contains(leg)));
    }
    plan.seed += 1;
    assert_ne!(random, legs(&plan));
}
