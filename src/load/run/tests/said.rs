//! What is heard of a sweep while it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use crate::load::level::{Level, Load, State};
use crate::load::plan::{Shape, Span};
use crate::load::run::{MOST_WAITING, on_own_thread};
use crate::load::{LoadError, Said, Swept};

use super::fake::{Stand, good, in_virtual_time, plan, time};

#[test]
fn progress_comes_often_enough_never_falls_and_tells_the_time_left() {
    in_virtual_time(async {
        let stand = Stand::new(plan(Shape::Closed(vec![1, 2, 4, 8]), time(2.0, 5.0, 40, 60.0)), |_, _| good(500));
        stand.run().await;
        let end = stand.now();
        let said = stand.said.borrow();
        let (mut last, mut before, mut n) = (0, 0.0, 0);
        for (at, word) in said.iter() {
            let Said::Progress { done, eta_s, what } = word else { continue };
            assert!(*at == 0 || last == 0 || (100_000..=500_000).contains(&(at - last)), "{last} {at}");
            assert!(*done >= before && *done <= 1.0);
            (last, before, n) = (*at, *done, n + 1);
            assert!(what.contains("user"), "{what}");
            // Once a request has ended, the rest is known to a tenth of the whole.
            if *at > 1_000_000 {
                let left = (end - at) as f64 / 1e6;
                assert!((eta_s.unwrap() - left).abs() < 0.1 * end as f64 / 1e6, "{at}: {eta_s:?}, was {left}");
            }
        }
        assert!(n > 100 && before > 0.97, "{n} {before}");
    });
}

#[test]
fn words_say_what_it_is_doing() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Closed(vec![8]), time(2.0, 5.0, 72, 60.0));
        plan.repeats = 3;
        let stand = Stand::new(plan, |_, _| good(1_500));
        stand.run().await;
        let said = stand.said.borrow();
        let has = |words: &str| said.iter().any(|(_, w)| matches!(w, Said::Progress { what, .. } if what == words));
        assert!(
            has("8 users (1 of 3): warming up, 1 s") && has("8 users (2 of 3): 24 of 72 requests, 8 s"),
            "{said:?}"
        );
        assert!(has("8 users (3 of 3): waiting for the last 8 requests, 16 s"), "{said:?}");
    });
}

#[test]
fn levels_are_shown_once_a_second_and_when_they_are_over() {
    in_virtual_time(async {
        let stand = Stand::new(plan(Shape::Closed(vec![1, 2]), time(2.0, 5.0, 1, 60.0)), |_, _| good(300));
        let swept = stand.run().await;
        let said = stand.said.borrow();
        let shown: Vec<(u64, &Level)> = said
            .iter()
            .filter_map(|(at, word)| if let Said::Level(level) = word { Some((*at, &**level)) } else { None })
            .collect();
        let planned: Vec<_> = shown.iter().take(2).map(|(at, l)| (*at, l.state, l.place, l.load)).collect();
        let first = |place, users| (0, State::Planned, place, Load::Users(users));
        assert_eq!(planned, [first(0, 1), first(1, 2)], "each, once, before anything");
        let shown = &shown[2..];
        assert!(shown.iter().all(|(_, level)| level.state != State::Planned));
        let states: Vec<State> = shown.iter().filter(|(_, level)| level.place == 0).map(|(_, l)| l.state).collect();
        assert!(
            states.starts_with(&[State::WarmingUp, State::Measuring]) && states.ends_with(&[State::Done]),
            "{states:?}"
        );
        assert_eq!(states.iter().filter(|state| **state == State::Done).count(), 1);
        assert!(shown.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 1_010_000));
        let over: Vec<&Level> = shown.iter().map(|(_, level)| *level).filter(|level| level.state.is_over()).collect();
        assert_eq!(over, swept.levels.iter().collect::<Vec<_>>());
    });
}

#[test]
fn an_estimate_does_not_go_beyond_the_budget() {
    in_virtual_time(async {
        let mut plan = plan(Shape::Closed(vec![1]), Span::Requests(1_000));
        plan.budget.seconds = 20.0;
        let stand = Stand::new(plan, |_, _| good(500));
        stand.run().await;
        for (at, word) in stand.said.borrow().iter() {
            if let Said::Progress { eta_s, .. } = word {
                assert!(eta_s.is_none_or(|eta| eta <= 20.0 - *at as f64 / 1e6));
                assert_eq!(eta_s.is_none(), *at < 500_000, "{at}");
            }
        }
    });
}

#[test]
fn a_panic_of_the_load_is_an_error_with_words() {
    let error = on_own_thread(|_| panic!("out of \u{1b}[31mcheese"), |_| {}).unwrap_err();
    let words = "the load client broke off, which is a fault of warptop: out of cheese";
    assert_eq!(error, LoadError::System(words.to_owned()));
}

#[test]
fn a_caller_who_is_slow_to_hear_holds_nothing_up_and_misses_no_result() {
    let (done, is_done) = mpsc::channel();
    let level = |place, state| Said::Level(Box::new(Level { place, state, ..Level::default() }));
    let is_first = Arc::new(AtomicBool::new(true));
    let mut heard = Vec::new();
    let swept = on_own_thread(
        move |voice| {
            for place in 0..1_000 {
                voice.say(level(place, State::Measuring));
                voice.say(level(place, if place % 100 == 0 { State::Done } else { State::Ending }));
            }
            done.send(()).unwrap();
            Ok(Swept::default())
        },
        |word| {
            // The first word is heard only when all has been said.
            if is_first.swap(false, Ordering::Relaxed) {
                is_done.recv().unwrap();
            }
            heard.push(word);
        },
    );
    assert_eq!(swept, Ok(Swept::default()));
    let over = heard.iter().filter(|word| matches!(word, Said::Level(level) if level.state.is_over())).count();
    assert_eq!(over, 10);
    assert!(heard.len() <= MOST_WAITING + 12, "{}", heard.len());
}
