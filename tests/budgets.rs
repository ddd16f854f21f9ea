//! What a sweep may spend, held against servers that lie about it, do not end, or fail: each budget alone and all
//! together, by what the *server* counted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use support::oai::{Engine, Lie, Manners};
use warptop::load::level::State;
use warptop::load::plan::{Api, Budget, Lengths, Order, Plan, PromptAs, Shape, Slo, Span};
use warptop::load::{self, LoadError, Setup, Swept};
use warptop::model::SystemClock;
use warptop::net::endpoint::Endpoint;
use warptop::net::tls::Authorities;

/// Tokens of a prompt and of an output.
const PROMPT: u32 = 32;
const OUTPUT: u32 = 16;
/// Streams that find out what the engine takes, at most.
const AGREEMENT: usize = 8;
/// An output may go on beyond what was asked for by so many tokens, …
const MARGIN: u64 = OUTPUT as u64 / 8 + 16;
/// … and so many that were on their way when it was given up.
const ON_ITS_WAY: u64 = 300;
/// So much of a budget that it plays no part; a server that was not held would pass the others by orders of magnitude.
const ENOUGH: Budget = Budget { seconds: 90.0, tokens: 1_000_000_000 };
/// Longest that a test may take: far beyond each budget of seconds.
const PATIENCE: Duration = Duration::from_mins(2);
/// By time, long beyond all budgets.
const LONG: Span = Span::Time { warmup_s: 0.0, least_s: 250.0, samples: 1_000_000, most_s: 250.0 };

fn plan(users: &[u32], span: Span, budget: Budget) -> Plan {
    Plan {
        api: Api::Completions,
        model: None,
        shape: Shape::Closed(users.to_vec()),
        prompt: Lengths::Fixed(PROMPT),
        output: Lengths::Fixed(OUTPUT),
        prompt_as: PromptAs::Auto,
        shared_prefix: 0.0,
        force_output: true,
        each_token: false,
        seed: 7,
        span,
        repeats: 1,
        order: Order::Listed,
        most_in_flight: 64,
        timeout_s: 3_600.0,
        slo: Slo::default(),
        budget,
        most_errors: 1.0,
    }
}

/// An engine that is honest for as long as it is asked what it takes.
fn engine(lie: Lie) -> Engine {
    Engine::start(Manners { lie: Some((1, lie)), ..Manners::default() })
}

fn run(engine: &Engine, plan: &Plan) -> Result<Swept, LoadError> {
    let setup = Setup {
        endpoint: Endpoint::parse(&engine.url()).unwrap(),
        authorities: Authorities::default(),
        clock: Arc::new(SystemClock::start()),
        stop: Arc::new(AtomicBool::new(false)),
    };
    let began = Instant::now();
    let swept = load::run(plan, &setup, |_| {});
    assert!(began.elapsed() < PATIENCE, "{swept:?}");
    swept
}

/// Why it ended, whether or not anything was measured.
fn why(swept: &Result<Swept, LoadError>) -> String {
    match swept {
        Ok(swept) => swept.ended_early.clone(),
        Err(error) => error.to_string(),
    }
}

/// Fault: probe: the server reports a usage of 0, less than it was sent, a negative one, one beyond all bounds, or none
/// Seen: `the budget of 5000 tokens was used up`
/// Works: the figures, but for those that its count would give
/// Recovers: with the next sweep
#[test]
fn tokens_are_those_that_were_sent_and_came_whatever_the_server_says() {
    for (prompt, output) in
        [("0", "0"), ("1", "1"), ("-5", "-7"), ("1e18", "1e300"), ("", ""), ("null", "0"), ("0.5", "0.5"), ("0", "")]
    {
        let engine = engine(Lie::Usage(prompt, output));
        let budget = Budget { tokens: 5_000, ..ENOUGH };
        let swept = run(&engine, &plan(&[1, 4], LONG, budget));
        let words = "the budget of 5000 tokens was used up; 1 level was not measured";
        assert_eq!(why(&swept), words, "{prompt} {output}");
        let spent = engine.tokens();
        assert!((4_000..=5_000).contains(&spent), "{prompt} {output}: {spent} tokens");
    }
}

#[test]
fn a_server_that_says_too_much_ends_the_sweep_early_and_not_late() {
    let engine = engine(Lie::Usage("900000", "16"));
    let swept = run(&engine, &plan(&[4], LONG, Budget { tokens: 2_000_000, ..ENOUGH }));
    assert!(why(&swept).contains("the budget of 2000000 tokens was used up"), "{swept:?}");
    assert!(engine.tokens() < 5_000, "{}", engine.tokens());
}

/// Fault: probe: the server streams on after all that was asked for, without end
/// Seen: `it goes on after 34 tokens though 16 tokens were asked for`
/// Works: the request is given up and counts as failed
/// Recovers: with the next request
#[test]
fn a_stream_without_end_is_cut_and_what_came_of_it_is_spent() {
    let engine = engine(Lie::Endless);
    let users = 4;
    let swept = run(&engine, &plan(&[users], LONG, Budget { tokens: 1_000, ..ENOUGH }));
    let told = format!("{swept:?}");
    assert!(why(&swept).contains("the budget of 1000 tokens was used up"), "{told}");
    let most = 1_000 + u64::from(users) * MARGIN + engine.streams() as u64 * ON_ITS_WAY;
    assert!(
        engine.tokens() <= most && engine.streams() <= 1_000 / 48 + AGREEMENT,
        "{} tokens, {told}",
        engine.tokens()
    );
    let swept = run(&self::engine(Lie::Endless), &plan(&[1], Span::Requests(3), ENOUGH));
    assert!(why(&swept).contains("it goes on after 34 tokens though 16 tokens were asked for"), "{swept:?}");
}

/// Fault: probe: the server answers nothing, or one token a second
/// Seen: `the budget of 3 s was used up`
/// Works: Ctrl-C; what was measured is kept
/// Recovers: with the next sweep
#[test]
fn time_is_over_when_it_is_over() {
    for lie in [Lie::Silent, Lie::Slow, Lie::Status("429 Busy\r\nretry-after: 99999999")] {
        let engine = engine(lie);
        let began = Instant::now();
        let swept = run(&engine, &plan(&[2], LONG, Budget { seconds: 3.0, ..ENOUGH }));
        assert!(why(&swept).contains("the budget of 3 s was used up"), "{lie:?}: {swept:?}");
        // Not by the limit of a request, an hour, nor by the level's, 250 s.
        assert!(began.elapsed() < Duration::from_mins(1), "{lie:?}");
        assert!(engine.streams() < 20, "{lie:?}: {}", engine.streams());
    }
}

/// Fault: probe: the server answers late, or not at all, when it is asked what it takes
/// Seen: `while the endpoint was asked what it takes`
/// Works: Ctrl-C
/// Recovers: with the next sweep
#[test]
fn time_counts_from_the_first_question_on() {
    let engine = Engine::start(Manners { lie: Some((0, Lie::Silent)), ..Manners::default() });
    let swept = run(&engine, &plan(&[1], LONG, Budget { seconds: 2.0, ..ENOUGH }));
    let words = why(&swept);
    assert!(
        words.contains("the budget of 2 s was used up") && words.contains("while the endpoint was asked what it takes")
    );
    assert_eq!(engine.streams(), 1);
}

/// Fault: probe: the server fails or refuses every request at once
/// Seen: `HTTP 500`, and how often
/// Works: a request that failed is a request: as many as planned are sent and no more
/// Recovers: with the next sweep
#[test]
fn requests_that_fail_are_requests() {
    for status in ["500 Broken", "429 Busy", "429 Busy\r\nretry-after: 1", "503 Busy\r\nretry-after: -1", "200 OK"] {
        let engine = engine(Lie::Status(status));
        let swept = run(&engine, &plan(&[3], Span::Requests(9), ENOUGH));
        assert!(status != "500 Broken" || why(&swept).contains("HTTP 500"), "{swept:?}");
        // Those of the agreement, honest ones, and then nine.
        let streams = engine.streams();
        assert!((9..=9 + 2).contains(&streams), "{status}: {streams} streams, {swept:?}");
    }
}

/// Fault: probe: errors come so fast that a loop of them would pass every budget
/// Seen: `the budget of 4000 tokens was used up`
/// Works: users rest after a fault; prompts that were sent are spent
/// Recovers: with the next sweep
#[test]
fn a_loop_of_errors_spends_its_prompts() {
    for (status, each) in [("500 Broken", PROMPT + OUTPUT), ("429 Busy", PROMPT)] {
        let engine = engine(Lie::Status(status));
        // Nobody rests in an open loop.
        let shape = Shape::Constant(vec![400.0]);
        let plan = Plan { shape, ..plan(&[], LONG, Budget { tokens: 4_000, ..ENOUGH }) };
        let swept = run(&engine, &plan);
        assert!(why(&swept).contains("the budget of 4000 tokens was used up"), "{status}: {swept:?}");
        assert!(engine.streams() <= 4_000 / each as usize + 2, "{status}: {}", engine.streams());
        assert!(engine.tokens() <= 4_000, "{status}: {}", engine.tokens());
    }
}

#[test]
fn of_all_budgets_together_the_one_that_ends_first_is_named() {
    let zero = Lie::Usage("0", "0");
    let run = |span, budget| {
        let engine =
            Engine::start(Manners { lie: Some((1, zero)), pause: Duration::from_millis(5), ..Manners::default() });
        let swept = self::run(&engine, &plan(&[4, 8], span, budget));
        (why(&swept), engine.tokens(), engine.streams(), swept)
    };
    let (words, tokens, ..) = run(Span::Requests(1_000), Budget { seconds: 60.0, tokens: 4_000 });
    assert!(words.starts_with("the budget of 4000 tokens was used up") && tokens <= 4_000, "{words} {tokens}");
    let (words, _, streams, _) = run(Span::Requests(1_000_000), Budget { seconds: 2.0, tokens: 1_000_000_000 });
    assert!(words.starts_with("the budget of 2 s was used up") && streams < 100_000, "{words} {streams}");
    let (words, _, streams, swept) = run(Span::Requests(20), Budget { seconds: 60.0, tokens: 1_000_000 });
    let states: Vec<_> = swept.unwrap().levels.iter().map(|level| level.state).collect();
    assert_eq!((words.as_str(), states), ("", vec![State::Done; 2]));
    assert!((40..=40 + AGREEMENT).contains(&streams), "{streams}");
}
