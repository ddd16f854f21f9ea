//! `warptop check`: one verdict for scripts, with an exit code of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::diagnosis::Slo;
use crate::export::check::page;
use crate::model::{Clock, SystemClock};
use crate::runtime::{check_now, check_of};

use super::{Failure, Objectives, Sources, no_reading, parse_between, parse_seconds, print, recorded};

/// Shortest and longest time that a check looks at.
const LENGTHS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// How long to look, 1s to 1h; causes need about 8 s to show, and longer looks are steadier
    #[arg(long = "for", value_name = "TIME", default_value = "15s", value_parser = parse_length)]
    length: Duration,
    /// Print JSON (warptop.check/1) instead of sentences
    #[arg(long)]
    json: bool,
    /// Judge a recording instead of this machine
    #[arg(long, value_name = "FILE|-")]
    pub(super) replay: Option<PathBuf>,
    /// Moment up to which it is judged, in seconds from the recording's start; its end when left out
    #[arg(long, value_name = "SECONDS", requires = "replay", value_parser = parse_seconds)]
    at: Option<Duration>,
    #[command(flatten)]
    pub(super) sources: Sources,
    #[command(flatten)]
    pub(super) objectives: Objectives,
}

fn parse_length(text: &str) -> Result<Duration, String> {
    parse_between(text, LENGTHS, "1s to 1h are allowed")
}

/// Judges, prints the verdict, and gives its exit code.
pub(super) fn run(sources: &Sources, args: &CheckArgs, slo: &Slo) -> Result<u8, Failure> {
    let verdict = if let Some(file) = &args.replay {
        let (verdict, problems) = check_of(&recorded(file), args.at, args.length, slo).map_err(no_reading)?;
        for problem in problems {
            complain!("{problem}");
        }
        verdict
    } else {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        check_now(&clock, &sources.options()?, sources.interval(), args.length, slo)
    };
    let text = if args.json { verdict.json().map_err(Failure::error)? + "\n" } else { page(&verdict) };
    print(&text).map(|()| verdict.state.exit_code())
}
