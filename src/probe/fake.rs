//! A probe that misbehaves as it is told: what the framework is tested with. In no release build.

use std::io::Write as _;
use std::time::Duration;

use super::protocol::{Better, Check, Failure, Figure, Message, Outcome};
use crate::load::Level;
use crate::load::level::State;

use super::{Cost, Kind, Link, Needs, Param, Params, Probe, ProbeSpec};

pub(super) const PROBE: Probe = Probe {
    spec: ProbeSpec {
        id: "fake",
        key: '~',
        name: "fake",
        help: "Measures nothing and misbehaves in the way that it is told to.",
        needs: Needs::Host,
        params: &[
            Param {
                name: "mode",
                help: "what it does",
                kind: Kind::Choice {
                    default: "good",
                    of: &[
                        "good", "wrong", "missing", "panic", "hang", "deaf", "flood", "garbage", "exit", "crash",
                        "prints", "line", "family", "stranger", "numb", "levels",
                    ],
                },
            },
            Param {
                name: "seconds",
                help: "how long, s",
                kind: Kind::Number { default: 0.2, least: 0.0, most: 600.0 },
            },
        ],
        cost: |params, _| Cost {
            seconds: params.number("seconds").max(0.1),
            gpu_bytes: 0,
            host_bytes: 1 << 20,
            watts: None,
            load: None,
            disturbs: "nobody".to_owned(),
        },
        cool_ms: 1_500,
        headline: "rate",
        hidden: true,
    },
    run,
};

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    let passes = (params.number("seconds") * 50.0) as u32;
    let mode = params.word("mode");
    let mut rates = Vec::new();
    for pass in 0..=passes {
        if pass > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        link.progress(f64::from(pass) / f64::from(passes.max(1)), Some(f64::from(passes - pass) / 50.0), mode)?;
        rates.push(100.0 + f64::from(pass % 3));
        link.sample("rate", "GB/s", 100.0 + f64::from(pass % 3))?;
        if mode == "levels" {
            let (started_unix_ms, state) = (1, State::Measuring);
            let level = Level { place: pass / 5, started_unix_ms, from_unix_ms: 1, state, ..Level::default() };
            link.say(&Message::Level(Box::new(level)))?;
        }
    }
    misbehave(mode)?;
    let check = Check { what: "one and one".to_owned(), passed: mode != "wrong", detail: "3".to_owned() };
    let figures = Figure::median("rate", "Rate", "GB/s", Better::Higher, &rates);
    Ok(Outcome { figures: figures.into_iter().collect(), checks: vec![check], ..Outcome::default() })
}

#[expect(clippy::panic, reason = "a probe that panics is what is tested")]
fn misbehave(mode: &str) -> Result<(), Failure> {
    // A parent that closes the pipe ends these.
    let mut out = std::io::stdout();
    match mode {
        "missing" => {
            return Err(Failure::Unavailable(
                "libcuda.so.1 is not here: install the GPU driver, or start warptop where it is".to_owned(),
            ));
        }
        "panic" => panic!("Unable to dynamically load the \"cuda\" shared library"),
        "hang" => loop {
            std::thread::sleep(Duration::from_hours(1));
        },
        // Holds the other end of its own input: never hears that it was closed.
        "numb" => {
            let _other_end = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/0");
            std::thread::sleep(Duration::from_hours(1));
        }
        // Stopped, a process hears nothing and does nothing; only a kill reaches it.
        "deaf" => drop(rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)),
        "flood" => while writeln!(out, r#"{{"is":"progress","done":0.1,"eta_s":null,"what":"x"}}"#).is_ok() {},
        "garbage" => drop(writeln!(out, "Segmentation fault \u{1b}[31m(core dumped)")),
        "stranger" => drop(writeln!(out, r#"{{"is":"hello","version":1,"run":"another"}}"#)),
        "line" => while write!(out, "{}", "x".repeat(4096)).is_ok() {},
        "exit" => {
            drop(writeln!(std::io::stderr(), "CUDA error: the GPU has fallen off the bus"));
            std::process::exit(7);
        }
        "crash" => std::process::abort(),
        // As a library that greets on standard output does.
        "prints" => {
            Link::let_libraries_print()?;
            drop(writeln!(out, "NCCL version 2.27.3"));
        }
        "family" => drop(std::process::Command::new("sleep").arg("600").spawn()),
        _ => {}
    }
    if matches!(mode, "garbage" | "stranger" | "deaf") {
        // Long enough to be found out.
        std::thread::sleep(Duration::from_mins(10));
    }
    Ok(())
}
