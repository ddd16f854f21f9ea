//! `warptop probe`: run a probe, and look at what earlier runs said.
//!
//! Its subcommands come from the table of probes. Standard output holds the report and nothing else.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, FromArgMatches, Subcommand, value_parser};

use crate::model::text::{capital, clean};
use crate::model::{Clock, SystemClock, spawn};
use crate::net::endpoint::Endpoint;
use crate::probe::board::Last;
use crate::probe::files::{Files, path_of};
use crate::probe::guard::duty_words;
use crate::probe::page::{compare, page, utc};
use crate::probe::report::{Ending, Level, Report};
use crate::probe::{self, Aim, Kind, Needs, PROBES, Param, Params, Probe};
use crate::runtime::{self, Inputs, Prepared, Probes, Ran, Session, Step, Wanted};
use crate::term::{caps, input};
use crate::ui::text::wrap;

use super::{Failure, Sources, logging, print};

/// Heading of a probe's own parameters.
const OF_PROBE: &str = "Probe";
/// Columns of a list where there is no terminal to ask.
const COLUMNS: u16 = 100;
/// Exit code of a verdict 'failed'.
const FAILED: u8 = 3;
/// Exit code of a run that was refused.
const REFUSED: u8 = 4;

/// Bytes of an answer that are read at most.
const LONGEST_ANSWER: u64 = 1024;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) enum ProbeCommand {
    /// Run one.
    Run { wanted: Wanted, sources: Sources, agreed: bool, json: bool },
    /// What there is, and what it said last.
    List { json: bool },
    /// A report once more.
    Show { run: String, json: bool },
    /// Two reports beside each other.
    Compare { old: String, new: Option<String> },
    /// Make a run what later ones are held against.
    Baseline { run: String },
}

impl ProbeCommand {
    /// What is to be read meanwhile, as far as that was said.
    pub(super) const fn sources(&self) -> Option<&Sources> {
        match self {
            Self::Run { sources, .. } => Some(sources),
            Self::List { .. } | Self::Show { .. } | Self::Compare { .. } | Self::Baseline { .. } => None,
        }
    }
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn duty() -> Arg {
    let arg = Arg::new("duty").long("duty").value_name("PCT").value_parser(value_parser!(u8).range(1..=100));
    arg.help("Share of time to keep the target busy, 1 to 100 [default: 10 beside others, else 100]")
}

fn run_name(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name("RUN|FILE").required(true).help(help)
}

fn own(param: &Param) -> Arg {
    let help = format!("{} [default: {}]", capital(param.help), param.default());
    let arg = Arg::new(param.name).long(param.name).help(help).help_heading(OF_PROBE);
    match param.kind {
        Kind::Number { .. } | Kind::Count { .. } => {
            let param = *param;
            arg.value_name("N").allow_negative_numbers(true).value_parser(move |text: &str| param.parse(text))
        }
        Kind::Choice { of, .. } => arg.value_name("WORD").value_parser(PossibleValuesParser::new(of)),
        Kind::Text { .. } => {
            let param = *param;
            arg.value_name("TEXT").value_parser(move |text: &str| param.parse(text))
        }
        Kind::Flag => arg.action(ArgAction::SetTrue).help(capital(param.help)),
    }
}

fn command(probe: &Probe) -> Command {
    let spec = &probe.spec;
    let force = match spec.needs {
        Needs::Endpoint => "Run although others use the server: both are then slower for it",
        _ => "Run although others use the machine, for a tenth of the time, or although it is not known",
    };
    let mut command = Command::new(spec.id)
        .hide(spec.hidden)
        .args(spec.params.iter().map(own))
        .next_help_heading("Run")
        .arg(flag("yes", "Do not ask whether to run it"))
        .arg(flag("force", force))
        .arg(flag("json", "Print the report as JSON instead of a page"));
    if spec.needs == Needs::Gpu {
        let gpu = Arg::new("gpu").long("gpu").value_name("N").default_value("0").value_parser(value_parser!(u8));
        command = command.arg(gpu.help("Index of the GPU"));
    }
    if spec.needs != Needs::Endpoint {
        command = command.arg(duty());
    }
    // The words of the sources are none about the probe.
    Sources::augment_args(command.next_help_heading("Sources")).about(spec.help)
}

impl Subcommand for ProbeCommand {
    fn augment_subcommands(command: Command) -> Command {
        let fixed = [
            Command::new("list")
                .about("The probes there are, and what the last run of each said")
                .arg(flag("json", "As JSON")),
            Command::new("show")
                .about("A report of an earlier run")
                .arg(run_name("run", "Name of the run, last:PROBE or baseline:PROBE, or a file"))
                .arg(flag("json", "As JSON")),
            Command::new("compare")
                .about("Two runs of a probe beside each other; one run beside the baseline of its machine")
                .arg(run_name("old", "Name of a run, last:PROBE or baseline:PROBE, or a file"))
                .arg(run_name("new", "The newer one").required(false)),
            Command::new("baseline")
                .about("Make a run the baseline that later runs on its target are held against")
                .arg(run_name("run", "Name of the run, or last:PROBE")),
        ];
        // Those that look back come after all that run.
        let fixed = fixed.map(|command| command.display_order(100));
        command
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommand_help_heading("Probes, then what looks at earlier runs")
            .subcommands(self::probes())
            .subcommands(fixed)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        probe::find(name).is_some() || ["list", "show", "compare", "baseline"].contains(&name)
    }
}

fn probes() -> impl Iterator<Item = Command> {
    PROBES.iter().map(command)
}

impl FromArgMatches for ProbeCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let text = |name: &str| matches.get_one::<String>(name).cloned();
        Ok(match name {
            "list" => Self::List { json: matches.get_flag("json") },
            "show" => Self::Show { run: text("run").unwrap_or_default(), json: matches.get_flag("json") },
            "compare" => Self::Compare { old: text("old").unwrap_or_default(), new: text("new") },
            "baseline" => Self::Baseline { run: text("run").unwrap_or_default() },
            id => {
                let place = PROBES.iter().position(|probe| probe.spec.id == id).ok_or_else(missing)?;
                let spec = &PROBES[place].spec;
                let mut params = Params::of(spec);
                for param in spec.params {
                    let value = match param.kind {
                        Kind::Number { .. } | Kind::Count { .. } | Kind::Text { .. } => {
                            matches.get_one::<probe::Value>(param.name).cloned()
                        }
                        Kind::Choice { .. } => text(param.name).map(probe::Value::Word),
                        Kind::Flag => Some(probe::Value::Flag(matches.get_flag(param.name))),
                    };
                    if let Some(value) = value {
                        params.put(param.name, value);
                    }
                }
                let gpu = if spec.needs == Needs::Gpu { matches.get_one("gpu").copied().unwrap_or(0) } else { 0 };
                let has_duty = spec.needs != Needs::Endpoint;
                let duty = if has_duty { matches.get_one("duty").copied() } else { None };
                let forced = matches.get_flag("force");
                let aim = Aim { gpu, engine: 0 };
                let wanted = Wanted { place, aim, params, forced, duty };
                let (agreed, json) = (matches.get_flag("yes"), matches.get_flag("json"));
                Self::Run { wanted, sources: Sources::from_arg_matches(matches)?, agreed, json }
            }
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The program that runs as a process of ours: this very file, also after it was replaced.
pub(super) fn itself() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Where reports are kept.
pub(super) fn files() -> Result<Files, String> {
    Files::find(|name| std::env::var_os(name)).and_then(Files::checked).map_err(|error| error.to_string())
}

/// The probes, ready to be run from a screen.
pub(super) fn ready(session: &Session, clock: &Arc<dyn Clock>) -> Probes {
    session.probes(clock, files(), itself())
}

/// Does what is asked for; returns the exit code.
pub(super) fn run(sources: &Sources, command: &ProbeCommand, no_log: bool) -> Result<u8, Failure> {
    let files = files();
    let there = || files.as_ref().map_err(Failure::error);
    match command {
        ProbeCommand::Run { wanted, agreed, json, .. } => {
            measure(sources, files, wanted.clone(), (*agreed, *json, no_log))
        }
        ProbeCommand::List { json } => list(there()?, *json),
        ProbeCommand::Show { run, json } => {
            let report = load(there(), run)?;
            print(&if *json { to_json(&report)? } else { page(&report) })?;
            Ok(0)
        }
        ProbeCommand::Compare { old, new } => {
            let (first, new_is_left_out) = (load(there(), old)?, new.is_none());
            let (old, new) = match new {
                Some(new) => (first, load(there(), new)?),
                None => (baseline(there()?, &first)?, first),
            };
            if new_is_left_out && old.run == new.run {
                let Report { run, probe, target, .. } = &new;
                let words = format!(
                    "run {run} is itself the baseline of {probe} on {target}: there is nothing else to \
                    compare it with"
                );
                return Err(Failure::Error(words));
            }
            print(&compare(&old, &new).map_err(Failure::error)?)?;
            Ok(0)
        }
        ProbeCommand::Baseline { run } => {
            let report = load(there(), run)?;
            if let Some(why) = report.is_no_baseline() {
                return Err(Failure::Error(format!("run {} cannot be a baseline: {why}", report.run)));
            }
            there()?.keep_baseline(&report).map_err(Failure::error)?;
            let Report { run, probe, target, .. } = &report;
            print(&format!("run {run} is now the baseline of {probe} on {target}, for runs with the same inputs\n"))?;
            Ok(0)
        }
    }
}

/// A report by the name of its run, as `last:PROBE` or `baseline:PROBE`, or from a file.
fn load(files: Result<&Files, Failure>, name: &str) -> Result<Report, Failure> {
    if let Some(path) = path_of(name) {
        return Files::load_path(path).map_err(Failure::error);
    }
    let files = files?;
    let last = |id: &str| {
        let done = files.newest(id, 64).into_iter().find(|report| report.ending == Ending::Done);
        done.ok_or_else(|| Failure::Error(format!("there is no run of '{}' with a result yet", clean(id))))
    };
    match name.split_once(':') {
        Some(("last", id)) => last(id),
        Some(("baseline", id)) => baseline(files, &last(id)?),
        _ => files.load(name).map_err(Failure::error),
    }
}

fn baseline(files: &Files, report: &Report) -> Result<Report, Failure> {
    if probe::find(&report.probe).is_some_and(|probe| probe.spec.needs == Needs::Endpoint) {
        let words = format!("a {} has no baseline: name two runs (warptop probe compare RUN RUN)", report.probe);
        return Err(Failure::Error(words));
    }
    files.baseline(&report.probe, &report.target, &report.inputs, report.bound()).ok_or_else(|| {
        Failure::Error(format!(
            "there is no baseline of {} with these inputs on {} here; `warptop probe baseline RUN` makes a good run one",
            report.probe, report.target
        ))
    })
}

/// What is wrong with the URL of an engine as other load generators take it, with its `/v1`.
fn with_version(url: &str) -> Option<String> {
    let endpoint = Endpoint::parse(url).ok()?;
    let base = endpoint.shown().strip_suffix("/v1")?;
    Some(format!("--engine '{}': leave /v1 out, it is added: --engine {base}", endpoint.shown()))
}

fn measure(
    sources: &Sources,
    files: Result<Files, String>,
    wanted: Wanted,
    (agreed, json, no_log): (bool, bool, bool),
) -> Result<u8, Failure> {
    // What can come to nothing whoever else is there is wrong use, and not a run that was refused.
    let known = probe::costs_with_files(&PROBES[wanted.place].spec, &wanted.params).map_err(Failure::Usage)?;
    if PROBES[wanted.place].spec.needs == Needs::Endpoint
        && let Some(words) = sources.engines.iter().find_map(|url| with_version(url))
    {
        return Err(Failure::Usage(words));
    }
    let cannot_ask = !agreed && !io::stdin().is_terminal();
    let mute = || Failure::Usage("standard input is no terminal to ask on: give --yes to run the probe".to_owned());
    // Others may be refused without a question.
    if cannot_ask && PROBES[wanted.place].spec.needs == Needs::Host {
        return Err(mute());
    }
    let (to, events) = sync_channel(input::QUEUE);
    input::read_signals(to, false).map_err(Failure::error)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let inputs = Inputs { clock, events, suspend: || Ok(()), resume: || Ok(()) };
    let name = PROBES[wanted.place].spec.name;
    let duty = duty_words(PROBES[wanted.place].spec.needs, wanted.duty, wanted.forced);
    let (options, log) = sources.logged(no_log, &inputs.clock)?;
    let Ok(prepared) = Prepared::new(&inputs, &options, sources.interval(), files, wanted) else {
        return Ok(130);
    };
    if let Some(ran) = prepared.unfit(&inputs) {
        return finish(&ran, json);
    }
    if cannot_ask {
        return Err(mute());
    }
    if !agreed {
        let duty = if duty.is_empty() { duty } else { format!(" {duty}") };
        mutter!(
            "{name} on {}: takes {}.{duty}\nRun it? [y/N] ",
            prepared.target,
            known.as_ref().unwrap_or(&prepared.cost)
        );
        let Some(answer) = answer(&inputs)? else {
            mutter!("\n");
            logging::end(&log, "ended");
            return Ok(130);
        };
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            complain!("not run");
            return Ok(REFUSED);
        }
    }
    let show = io::stderr().is_terminal();
    let mut shown = false;
    let ran = prepared.run(&inputs, itself(), |step| {
        if show {
            mutter!("\r\x1b[K{}", line(step));
            shown = true;
        }
    });
    if shown {
        mutter!("\r\x1b[K");
    }
    logging::end(&log, "ended");
    let Ok(ran) = ran else { return Ok(130) };
    finish(&ran, json)
}

/// What is typed, whatever its bytes; `None` when the user leaves instead. Reading a terminal cannot be ended, so a
/// thread does it that is left behind.
fn answer(inputs: &Inputs) -> Result<Option<String>, Failure> {
    let (to, answers) = sync_channel(1);
    let read = move || {
        let mut typed = Vec::new();
        let read = io::stdin().lock().take(LONGEST_ANSWER).read_until(b'\n', &mut typed);
        // Whoever asked may be gone.
        let _ = to.send(read.map(|_| String::from_utf8_lossy(&typed).into_owned()));
    };
    spawn("answer", read).map_err(Failure::error)?;
    loop {
        match answers.try_recv() {
            Ok(typed) => return typed.map(Some).map_err(Failure::error),
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) => {}
        }
        if runtime::wait(inputs).is_err() {
            return Ok(None);
        }
    }
}

/// The report, the words beside it, and the exit code. Of a run that was refused the words are all there is.
fn finish(ran: &Ran, json: bool) -> Result<u8, Failure> {
    tell(ran);
    if json {
        print(&to_json(&ran.report)?)?;
    } else if ran.report.ending != Ending::Refused {
        print(&page(&ran.report))?;
    }
    Ok(code(ran))
}

fn line(step: &Step) -> String {
    let eta = step.eta_s.map(|eta| format!(", {eta:.0} s left")).unwrap_or_default();
    format!("{:3.0} %{eta}: {}", step.done * 100.0, step.what)
}

/// What does not belong into the report.
fn tell(ran: &Ran) {
    if ran.joined {
        complain!("the same was measured already or just now: this is run {}", ran.report.run);
    }
    if ran.report.ending == Ending::Refused {
        let force = if ran.can_force { " (--force)" } else { "" };
        complain!("not run: {}", ran.report.why.as_deref().unwrap_or_default());
        if !ran.hint.is_empty() {
            complain!("{}{force}", ran.hint);
        }
    }
    match &ran.kept {
        Some(Ok(path)) => complain!("the report is in {path}"),
        Some(Err(why)) => complain!("{why}; here it is:"),
        None => {}
    }
}

fn code(ran: &Ran) -> u8 {
    let report = &ran.report;
    match report.ending {
        Ending::Done if report.verdict.level == Level::Failed => FAILED,
        Ending::Done => 0,
        Ending::Refused => REFUSED,
        Ending::Stopped if ran.by_user => 130,
        Ending::Stopped | Ending::Failed => 1,
    }
}

fn to_json(report: &Report) -> Result<String, Failure> {
    serde_json::to_string_pretty(report).map(|json| json + "\n").map_err(Failure::error)
}

fn list(files: &Files, json: bool) -> Result<u8, Failure> {
    let newest = |probe: &Probe| files.newest(probe.spec.id, 1).into_iter().next();
    if json {
        let rows = probe::listed().map(|probe| {
            serde_json::json!({
                "probe": probe.spec.id, "name": probe.spec.name, "help": probe.spec.help,
                "needs_gpu": matches!(probe.spec.needs, Needs::Gpu | Needs::Gpus(_)), "last": newest(probe),
            })
        });
        let rows: Vec<_> = rows.collect();
        print(&(serde_json::to_string_pretty(&rows).map_err(Failure::error)? + "\n"))?;
        return Ok(0);
    }
    let mut text = String::new();
    // Writing to a String never fails.
    for probe in probe::listed() {
        let needs = match probe.spec.needs {
            Needs::Host => " Needs no GPU.".to_owned(),
            Needs::Gpu => String::new(),
            Needs::Endpoint => " Needs a serving engine.".to_owned(),
            Needs::Gpus(least) => format!(" Needs {least} GPUs."),
        };
        let last = newest(probe).map_or_else(|| "never run here".to_owned(), |report| said(&report));
        row(&mut text, probe.spec.id, &format!("{}{needs}", probe.spec.help));
        row(&mut text, "", &last);
    }
    let (reports, broken) = files.list();
    if !reports.is_empty() {
        text.push_str("\nRuns, the newest first (warptop probe show RUN):\n");
    }
    for report in reports.iter().take(20) {
        let _ = writeln!(text, "{}  {}", report.run, Last::of(report).summary);
    }
    print(&text)?;
    if broken > 0 {
        complain!("{broken} files in the folder of reports are no reports");
    }
    Ok(0)
}

/// A name, and beside it a text over as many lines as it takes.
fn row(out: &mut String, name: &str, text: &str) {
    const NAME: u16 = 10;
    let columns = caps::columns().unwrap_or(COLUMNS);
    wrap(text, columns.max(2 * NAME) - NAME, |at, line| {
        let name = if at == 0 { name } else { "" };
        // Writing to a String never fails.
        let _ = writeln!(out, "{name:<width$}{line}", width = usize::from(NAME));
    });
}

fn said(report: &Report) -> String {
    let last = Last::of(report);
    let figure = last.headline.map(|(value, unit)| format!("{value:.1} {unit}, ")).unwrap_or_default();
    format!("{figure}{} ({}, run {})", last.summary, utc(report.started_unix_ms), report.run)
}
