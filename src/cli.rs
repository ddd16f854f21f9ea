//! The command line: what can be asked for, in which words it is refused, and how the program ends.
//!
//! The only module that prints. It must not know how anything is read or drawn.

/// Says a sentence on standard error. When that takes nothing, the result and the exit code still count.
macro_rules! complain {
    ($($text:tt)*) => { $crate::cli::mutter(format_args!("warptop: {}\n", format_args!($($text)*))) };
}

/// The same as it is, without a name before it and a line's end after it.
macro_rules! mutter {
    ($($text:tt)*) => { $crate::cli::mutter(format_args!($($text)*)) };
}

mod check;
mod files;
mod logging;
mod names;
mod probe;
mod times;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel, sync_channel};
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::app::Exit;
use crate::diagnosis::Slo;
use crate::log::EventLog;
use crate::model::{Clock, SystemClock, spawn};
use crate::net::access::{Access, AuthFile, TOKEN_VARIABLE, Token};
use crate::net::tls::Authorities;
use crate::probe::link;
use crate::recording::{Ended, Output, RecordError};
use crate::runtime::{self, Fault, Inputs, Program, RecordPlan, Session, SnapshotError};
use crate::sampler::engines::{Timing, wrong_url};
use crate::sampler::replay::Input as Recorded;
use crate::sampler::{GpuIds, LOAD_DRIVER, Options, load_driver};
use crate::store::Retention;
use crate::term::{self, caps, input};
use check::CheckArgs;
use names::{recorded, to_record};
use probe::ProbeCommand;
use times::{parse_between, parse_duration, parse_engine_time, parse_interval, parse_seconds};

const AFTER_HELP: &str = "\
Keys for engines are read from WARPTOP_ENGINE_TOKEN (a bearer token for those given with
--engine) and from the file of --engine-auth, never from the command line.

Exit codes: 0 ok, 1 error, 2 usage (also: no terminal to draw on), 3 a probe's verdict is 'failed',
4 a probe was refused or declined, 5 'check' found something that asks for action, 6 'check' could
not judge, 130 ended by a signal.
warptop only looks: it sets nothing on a GPU and opens no port.";

/// Why is this LLM server slow? What the silicon, the server and the host do, on one time axis.
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_HELP, after_long_help = after_long_help())]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    objectives: Objectives,
    /// Write no log file
    #[arg(long, global = true, help_heading = "Log")]
    no_log: bool,
    /// Fail on purpose: for the tests of what the terminal looks like afterwards.
    #[arg(long, hide = true, value_enum)]
    test_panic: Option<TestPanic>,
}

impl Cli {
    /// The objectives given, before the command or after it.
    fn objectives(&self) -> Slo {
        let of_command = match &self.command {
            Some(
                Command::Demo { objectives } | Command::Replay { objectives, .. } | Command::Record { objectives, .. },
            ) => Some(objectives),
            Some(Command::Snapshot(args)) => Some(&args.objectives),
            Some(Command::Check(args)) => Some(&args.objectives),
            Some(Command::Probe(_) | Command::ProbeChild { .. } | Command::LoadDriver { .. }) | None => None,
        };
        let given = of_command.and_then(|objectives| objectives.slo.clone());
        given.or_else(|| self.objectives.slo.clone()).unwrap_or_default()
    }
}

/// What the user wants of latencies. Not an option of probes: the sweep has one of its own for goodput.
#[derive(Clone, Debug, Default, Args)]
struct Objectives {
    /// Objectives for latencies, e.g. ttft_p99=500ms,itl_p99=50ms; of ttft, itl, tpot, e2e and queue, at p50, p95 and p99
    #[arg(long, value_name = "SLO", value_parser = Slo::parse)]
    slo: Option<Slo>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The same screen on a recording of a real H200 that serves a model
    Demo {
        #[command(flatten)]
        objectives: Objectives,
    },
    /// The same screen on a recording; pause, seek, speed
    Replay {
        /// A recording, or - for one that comes in through a pipe
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
        #[command(flatten)]
        objectives: Objectives,
    },
    /// Record this machine without a screen
    Record {
        /// A new file, packed with gzip whatever its name, or - for a pipe: ssh gpu1 warptop record -o - | warptop replay -
        #[arg(short, long, value_name = "FILE|-")]
        output: PathBuf,
        /// How long, e.g. 90s, 10min or 2h; until Ctrl-C when left out
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        duration: Option<Duration>,
        /// Let other users read the file, as far as the umask lets them (mode 0644); without it only you can (0600)
        #[arg(long)]
        readable: bool,
        #[command(flatten)]
        sources: Sources,
        #[command(flatten)]
        objectives: Objectives,
    },
    /// One reading, for scripts
    Snapshot(SnapshotArgs),
    /// One verdict for scripts: exit code 0 when nothing asks for action, 5 when something does, 6 when nothing can be judged
    Check(CheckArgs),
    /// Measure what this machine can do: one probe, in a process of its own
    #[command(subcommand)]
    Probe(ProbeCommand),
    /// The process that loads the driver's library before warptop does: nothing to call by hand.
    #[command(name = LOAD_DRIVER, hide = true)]
    LoadDriver {
        /// The process that asks for it.
        parent: u32,
        /// The library.
        library: PathBuf,
    },
    /// A probe's own process: nothing to call by hand.
    #[command(name = "__probe-child", hide = true)]
    ProbeChild {
        /// The probe, for whoever lists processes.
        id: String,
        /// What to do, as JSON.
        request: String,
    },
}

#[derive(Debug, Args)]
struct SnapshotArgs {
    /// Print JSON (the only format)
    #[arg(long, required = true)]
    json: bool,
    /// Read a recording instead of this machine
    #[arg(long, value_name = "FILE|-")]
    replay: Option<PathBuf>,
    /// Moment to look at, in seconds from the recording's start; its end when left out
    #[arg(long, value_name = "SECONDS", requires = "replay", value_parser = parse_seconds)]
    at: Option<Duration>,
    /// Seconds that means, rates and quantiles are taken over [default: 10; this machine: 1.5, or 1.5 times --engine-interval]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    window: Option<Duration>,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    objectives: Objectives,
}

/// What is read: options of the commands that read this machine.
#[derive(Clone, Debug, Default, Args)]
struct Sources {
    /// Base URL of a serving engine, e.g. http://127.0.0.1:8000 or https://gateway/llm/a; repeatable
    #[arg(long = "engine", value_name = "URL")]
    engines: Vec<String>,
    /// Base URL of a DCGM exporter, for GPUs whose driver gives no activity; found on this host when left out
    #[arg(long, value_name = "URL")]
    dcgm: Option<String>,
    /// Do not look for engines on this host
    #[arg(long)]
    no_discover: bool,
    /// Keys: lines of 'URL-PREFIX bearer TOKEN' or 'URL-PREFIX Header-Name: value', readable by you only
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(|path| AuthFile::read(&path)))]
    engine_auth: Option<AuthFile>,
    /// Certificates (PEM) of authorities to trust besides this system's, for https
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(|path| Authorities::read(&path)))]
    engine_ca: Option<Authorities>,
    /// Period of reading engines, 100ms to 60s [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_engine_time)]
    engine_interval: Option<Duration>,
    /// Longest wait for an engine's answer, 100ms to 60s [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = parse_engine_time)]
    engine_timeout: Option<Duration>,
    /// Period of the fast GPU readings, 100ms to 10s [default: 250ms]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    interval: Option<Duration>,
}

/// How it looks.
#[derive(Debug, Args)]
struct Look {
    /// Colours; auto follows NO_COLOR, CLICOLOR_FORCE, COLORTERM and TERM
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true, help_heading = "Screen")]
    color: When,
    /// Draw with ASCII characters only
    #[arg(long, global = true, help_heading = "Screen")]
    ascii: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum When {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TestPanic {
    Draw,
    Thread,
    Stack,
    Memory,
}

impl Sources {
    /// Period of the fast readings.
    fn interval(&self) -> Duration {
        self.interval.unwrap_or(Duration::from_millis(250))
    }

    fn options(&self) -> Result<Options, Failure> {
        let token = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default();
        let token = Token::parse(&token.to_string_lossy()).map_err(|error| Failure::Usage(error.to_string()))?;
        if let Some(words) = self.engines.iter().find_map(|url| wrong_url(url)) {
            return Err(Failure::Usage(words));
        }
        Ok(Options {
            engine_urls: self.engines.clone(),
            discover: !self.no_discover,
            dcgm_url: self.dcgm.clone(),
            gpu_ids: GpuIds::default(),
            log: None,
            access: Access { token, file: self.engine_auth.clone().unwrap_or_default() },
            authorities: self.engine_ca.clone().unwrap_or_default(),
            timing: Timing {
                period: self.engine_interval.unwrap_or(Timing::DEFAULT.period),
                timeout: self.engine_timeout.unwrap_or(Timing::DEFAULT.timeout),
                ..Timing::DEFAULT
            },
            nvml_library: None,
            loader: Some(probe::itself()),
        })
    }

    /// The same with a log, which is begun.
    fn logged(&self, no_log: bool, clock: &Arc<dyn Clock>) -> Result<(Options, EventLog), Failure> {
        let options = self.options()?;
        let log = logging::begin(no_log, clock);
        Ok((Options { log: Some(log.clone()), ..options }, log))
    }

    /// Adds what was written before the command: `warptop --engine URL record`.
    fn or(mut self, before: &Self) -> Self {
        self.engines.splice(..0, before.engines.iter().cloned());
        Self {
            dcgm: self.dcgm.or_else(|| before.dcgm.clone()),
            no_discover: self.no_discover || before.no_discover,
            engine_auth: self.engine_auth.or_else(|| before.engine_auth.clone()),
            engine_ca: self.engine_ca.or_else(|| before.engine_ca.clone()),
            engine_interval: self.engine_interval.or(before.engine_interval),
            engine_timeout: self.engine_timeout.or(before.engine_timeout),
            interval: self.interval.or(before.interval),
            engines: self.engines,
        }
    }

    /// The first option that says what to read, if any was given.
    fn given(&self) -> Option<&'static str> {
        let given = [
            (!self.engines.is_empty(), "--engine"),
            (self.dcgm.is_some(), "--dcgm"),
            (self.no_discover, "--no-discover"),
            (self.engine_auth.is_some(), "--engine-auth"),
            (self.engine_ca.is_some(), "--engine-ca"),
            (self.engine_interval.is_some(), "--engine-interval"),
            (self.engine_timeout.is_some(), "--engine-timeout"),
            (self.interval.is_some(), "--interval"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}

fn after_long_help() -> String {
    let mib = |gpus, engines| Retention::HOUR.most_bytes(250, gpus, engines) >> 20;
    let fastest = Retention::HOUR.most_bytes(100, 8, 8) >> 20;
    format!(
        "Memory is bounded: an hour at full rate and a day by the minute take at most\n\
         {} MiB for 1 GPU and 1 engine, {} MiB for 8 and 8 ({fastest} MiB at 100ms).\n\n\
         The log of screen, record and probe is in {}\n\
         (readable by you only, two files of 1 MiB; L shows it).\n\n{AFTER_HELP}",
        mib(1, 1),
        mib(8, 8),
        logging::place()
    )
}

/// Why a command did not work: for standard error, with its exit code.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// A wrong way to call it: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Everything else: exit code 1.
    #[error("{0}")]
    Error(String),
}

impl Failure {
    fn error(error: impl std::fmt::Display) -> Self {
        Self::Error(error.to_string())
    }
}

/// Writes on standard error, whatever becomes of it.
fn mutter(text: std::fmt::Arguments<'_>) {
    // In one piece: it may be a line of a log that others write to as well.
    drop(io::stderr().write_all(text.to_string().as_bytes()));
}

/// Writes on standard output. Whoever closed the pipe has read enough.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Error(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

/// Reads the command line and does what it says.
pub fn main() -> ! {
    let code = run();
    drop(io::stdout().flush());
    term::leave(i32::from(code))
}

fn run() -> u8 {
    let no_room = files::no_room();
    if no_room.is_none() {
        // Without it all works as long as no file is at its limit.
        drop(input::outlive_full_files());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are no errors and go to standard output.
        Err(error) => return leave_with(&error),
    };
    if let Some(words) = no_room {
        complain!("{words}");
        return 1;
    }
    let (replays, sources) = match &cli.command {
        Some(Command::Demo { .. } | Command::Replay { .. }) => (true, cli.sources.clone()),
        Some(Command::Snapshot(args)) => (args.replay.is_some(), args.sources.clone().or(&cli.sources)),
        Some(Command::Check(args)) => (args.replay.is_some(), args.sources.clone().or(&cli.sources)),
        Some(Command::Record { sources, .. }) => (false, sources.clone().or(&cli.sources)),
        Some(Command::Probe(what)) => (false, what.sources().cloned().unwrap_or_default().or(&cli.sources)),
        Some(Command::ProbeChild { .. } | Command::LoadDriver { .. }) | None => (false, cli.sources.clone()),
    };
    if let Some(option) = sources.given().filter(|_| replays) {
        let text = format!("{option} says how to read this machine, but a recording is played: leave it out");
        return leave_with(&Cli::command().error(ErrorKind::ArgumentConflict, text));
    }
    let slo = cli.objectives();
    if !matches!(cli.command, Some(Command::ProbeChild { .. } | Command::LoadDriver { .. })) {
        term::restore_on_exit();
    }
    let done = match &cli.command {
        None => watch(&cli, None, slo),
        Some(Command::Demo { .. }) => watch(&cli, Some(&Recorded::Demo), slo),
        Some(Command::Replay { file, .. }) => watch(&cli, Some(&recorded(file)), slo),
        Some(Command::Record { output, duration, readable, .. }) => {
            record(&sources, &to_record(output, *readable), *duration, &slo, cli.no_log)
        }
        Some(Command::Snapshot(args)) => snapshot(&sources, args, &slo),
        Some(Command::Check(args)) => check::run(&sources, args, &slo),
        Some(Command::Probe(what)) => probe::run(&sources, what, cli.no_log),
        // CUDA's tools (profilers) write what they saw when a process ends as usual.
        Some(Command::ProbeChild { request, .. }) => std::process::exit(i32::from(link::run_as_child(request))),
        Some(Command::LoadDriver { parent, library }) => {
            Ok(if link::die_with(*parent) { load_driver(library) } else { 1 })
        }
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            complain!("{failure}");
            if matches!(failure, Failure::Usage(_)) { 2 } else { 1 }
        }
    }
}

fn leave_with(error: &clap::Error) -> u8 {
    // A closed pipe is no reason to complain.
    drop(error.print());
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Says what is waited for when a recording does not begin soon: a pipe waits for its writer. Not any more once what is
/// returned is dropped.
fn say_when_waiting(input: &Recorded) -> std::sync::mpsc::Sender<()> {
    let (opened, wait) = channel::<()>();
    let text = format!("waiting for {input} to begin: a pipe needs a writer, e.g. warptop record; Ctrl-C ends it");
    let tell = move || {
        if wait.recv_timeout(Duration::from_secs(2)) == Err(RecvTimeoutError::Timeout) {
            complain!("{text}");
        }
    };
    // Without a thread it is not said.
    let _ = spawn("waiting", tell);
    opened
}

/// The screen, live or on a recording. Waits for no source at the end.
fn watch(cli: &Cli, replay: Option<&Recorded>, slo: Slo) -> Result<u8, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    if replay == Some(&Recorded::Stdin) && io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "standard input is a terminal: pipe a recording in, e.g. ssh gpu1 warptop record -o - | warptop replay -"
                .to_owned(),
        ));
    }
    let (session, log) = if let Some(input) = replay {
        let opened = say_when_waiting(input);
        let session = Session::replay(input).map_err(Failure::error)?;
        drop(opened);
        (session, None)
    } else {
        let (options, log) = cli.sources.logged(cli.no_log, &clock)?;
        (Session::live(&clock, &options, cli.sources.interval()), Some(log))
    };
    let color = match cli.look.color {
        When::Auto => caps::Color::Auto,
        When::Always => caps::Color::Always,
        When::Never => caps::Color::Never,
    };
    let theme = caps::theme(color, cli.look.ascii);
    let (to, events) = sync_channel(input::QUEUE);
    input::read_signals(to.clone(), true).map_err(Failure::error)?;
    let (guard, terminal) = term::enter().map_err(|error| match error {
        term::NoTerminal::NotATerminal | term::NoTerminal::Dumb => Failure::Usage(error.to_string()),
        term::NoTerminal::Io(_) => Failure::error(error),
    })?;
    term::restore_on_panic();
    if let Some(log) = &log {
        log.note_panics();
    }
    input::read_terminal(to).map_err(Failure::error)?;
    // A recording is no machine to measure.
    let probes = replay.is_none().then(|| probe::ready(&session, &clock));
    let inputs = Inputs { clock, events, suspend: term::suspend, resume: term::resume };
    let mut program = Program::new(terminal, inputs, session, theme);
    program.judge_by(slo);
    if let Some(probes) = probes {
        program.run_probes(probes);
    }
    program.provoke(cli.test_panic.map(|fault| match fault {
        TestPanic::Draw => Fault::Draw,
        TestPanic::Thread => Fault::Thread,
        TestPanic::Stack => Fault::Stack,
        TestPanic::Memory => Fault::Memory,
    }));
    let ended = program.run();
    drop(guard);
    if let Some(log) = &log {
        logging::end(log, if ended.is_ok() { "ended" } else { "ended: the terminal cannot be drawn on" });
    }
    match ended {
        Ok(Exit::Asked) => Ok(0),
        Ok(Exit::Interrupted) => Ok(130),
        Err(error) => Err(Failure::Error(format!("cannot draw on the terminal: {error}"))),
    }
}

fn record(
    sources: &Sources,
    output: &Output,
    duration: Option<Duration>,
    slo: &Slo,
    no_log: bool,
) -> Result<u8, Failure> {
    if *output == Output::Stdout && io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "a recording is packed and not for a terminal: give -o a file, or pipe it (warptop record -o - | warptop \
             replay -)"
                .to_owned(),
        ));
    }
    let (to, events) = sync_channel(input::QUEUE);
    input::read_signals(to, false).map_err(Failure::error)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let inputs = Inputs { clock, events, suspend: || Ok(()), resume: || Ok(()) };
    let (options, log) = sources.logged(no_log, &inputs.clock)?;
    log.note_panics();
    let files = probe::files();
    let plan = RecordPlan {
        output,
        duration,
        interval: sources.interval(),
        files: files.as_ref().ok(),
        slo,
        waiting: |output| {
            complain!("waiting for '{output}' to open; a pipe needs a reader, e.g. warptop replay {output}");
        },
    };
    let recorded = runtime::record(&inputs, &options, &plan);
    match &recorded {
        Ok((summary, _)) => logging::end(&log, &format!("ended: recorded {summary}")),
        Err(error) => logging::end(&log, &format!("ended: {error}")),
    }
    match recorded {
        Ok((summary, cut)) => {
            // Beside a pipe it would land in the screen that plays it.
            if *output != Output::Stdout {
                complain!("recorded {summary}");
            }
            Ok(if cut { 130 } else { 0 })
        }
        // Whoever watched has seen enough: that is how such a recording ends.
        Err(closed @ RecordError::Closed(_)) if *output == Output::Stdout => {
            complain!("{closed}");
            Ok(0)
        }
        Err(unopened @ RecordError::Unopened { ended: Ended::Interrupted, .. }) => {
            complain!("{unopened}");
            Ok(130)
        }
        Err(error) => Err(Failure::error(error)),
    }
}

/// A recording that gives no reading.
fn no_reading(error: SnapshotError) -> Failure {
    match error {
        SnapshotError::TooLate { .. } => Failure::Usage(error.to_string()),
        SnapshotError::Replay(_) | SnapshotError::Empty(_) => Failure::error(error),
    }
}

fn snapshot(sources: &Sources, args: &SnapshotArgs, slo: &Slo) -> Result<u8, Failure> {
    let window = args.window;
    let reading = if let Some(file) = &args.replay {
        let (reading, problems) = runtime::snapshot_of(&recorded(file), args.at, window, slo).map_err(no_reading)?;
        for problem in problems {
            complain!("{problem}");
        }
        reading
    } else {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        // A rate takes two scrapes.
        let slow = sources.engine_interval.filter(|&period| period > Timing::DEFAULT.period);
        let window = window.or(slow.map(|period| period * 3 / 2));
        runtime::snapshot_now(
            &clock,
            &sources.options()?,
            sources.interval(),
            window,
            probe::files().ok().as_ref(),
            slo,
        )
    };
    let mut json = serde_json::to_string_pretty(&reading).map_err(Failure::error)?;
    json.push('\n');
    print(&json).map(|()| 0)
}
