//! `screenshots`: the pictures in `screenshots/`, drawn from a recording at fixed moments and sizes.
//!
//! The SVGs depend on the code and the recording only, so they can be compared; the PNGs are made of
//! them. Every pane in the table of panes gets a picture; that of the probes shows the reports of `docs/evidence`. A
//! load sweep has no figures in a recording: its pane has a picture once a report of one is kept there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use warptop::app::{App, Cost, Event, Origin, Seen, View};
use warptop::diagnosis::Timeline;
use warptop::export::svg::svg;
use warptop::model::{Batch, FactKey, SourceId, SourceState, Subject, Time};
use warptop::probe::board::{Board, Sweep};
use warptop::probe::report::Report;
use warptop::probe::{Probe, listed};
use warptop::recording::Reader;
use warptop::sampler::replay;
use warptop::store::{Data, Retention, Store};
use warptop::ui::chrome;
use warptop::ui::layout::Slot;
use warptop::ui::pane::{Context, PaneSpec};
use warptop::ui::panes::PANES;
use warptop::ui::screen::Screen;
use warptop::ui::theme::Theme;

use crate::png;

/// How to call it.
pub(crate) const USAGE: &str =
    "screenshots [--check]   write screenshots/ anew, or compare it with what would be written";

const RECORDING: &str = "assets/recordings/h200-vllm-0.25.1.jsonl.gz";
const DIR: &str = "screenshots";
/// Reports of probes that ran on real machines.
const REPORTS: &str = "docs/evidence/probes";
/// Reports of load sweeps of real servers.
const SWEEPS: &str = "docs/evidence/sweep";
/// How long after the newest of them, or after a sweep, the picture is, ms.
const LATER: u64 = 300_000;
/// Size of a pane's picture, frame included.
const PANE: (u16, u16) = (96, 18);
/// The same for the pane of probes: a list and a report.
const PROBES: (u16, u16) = (110, 40);
/// The same for the pane of the load sweep: seven levels, a heat map and all figures.
const SWEEP: (u16, u16) = (110, 30);
/// The same for a pane that is a row for each GPU.
const STRIP: (u16, u16) = (120, 5);
/// Seconds into the recording: 600 clients, a queue, preemptions, the power cap.
const OVERLOAD: u64 = 170;
/// Seconds into the recording: 64 clients, compute-bound, no queue.
const STEADY: u64 = 52;

/// A picture: its name, what it shows, its size, theme and moment.
struct Shot {
    name: String,
    /// The whole screen where there is none.
    pane: Option<&'static PaneSpec>,
    size: (u16, u16),
    theme: Theme,
    at_s: u64,
}

fn shots() -> Vec<Shot> {
    let screen = |name: &str, size, theme, at_s| Shot { name: name.to_owned(), pane: None, size, theme, at_s };
    let mut shots = vec![
        screen("screen-140x45", (140, 45), Theme::FULL, OVERLOAD),
        screen("screen-140x45-steady", (140, 45), Theme::FULL, STEADY),
        screen("screen-140x45-mono", (140, 45), Theme::MONO, OVERLOAD),
        screen("screen-80x24", (80, 24), Theme::FULL, OVERLOAD),
        screen("screen-40x10", (40, 10), Theme::FULL, OVERLOAD),
    ];
    for pane in PANES {
        let name = format!("pane-{}", pane.id.replace('_', "-"));
        let size = match pane.id {
            "gpu_strip" => STRIP,
            "probes" => PROBES,
            "sweep" => SWEEP,
            _ => PANE,
        };
        shots.push(Shot { name, pane: Some(pane), size, theme: Theme::FULL, at_s: OVERLOAD });
    }
    shots
}

/// Runs the task.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    match args {
        [] => write(),
        [flag] if flag == "--check" => check(),
        _ => Err(USAGE.to_owned()),
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Every picture by its file name.
fn pictures() -> Result<BTreeMap<String, String>, String> {
    let path = root().join(RECORDING);
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut reader = Reader::new(file).map_err(|error| format!("{}: {error}", path.display()))?;
    let store = Store::new(Retention::HOUR);
    replay::load(&mut reader, &store, None).ok_or_else(|| format!("{} holds nothing", path.display()))?;
    let data = store.read();
    let (reports, swept) = (reports()?, swept()?);
    let drawn = |shot: &Shot| match (shot.pane, &swept) {
        (Some(spec), _) if spec.id == "probes" && !reports.is_empty() => Some(probes(spec, shot, &reports)),
        (Some(spec), Some(report)) if spec.id == "sweep" => Some(sweep(spec, shot, report)),
        (Some(spec), None) if spec.id == "sweep" => None,
        _ => Some(draw(&data, shot)),
    };
    Ok(shots().iter().filter_map(|shot| Some((format!("{}.svg", shot.name), svg(&drawn(shot)?)))).collect())
}

/// The files in a folder of the project, by name; none where it is not there.
fn listing(dir: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(root().join(dir)).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    paths
}

fn report(path: &Path) -> Result<Report, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&text).map_err(|error| failed(&error))
}

/// The last sweep with levels that is kept with the project.
fn swept() -> Result<Option<Report>, String> {
    let json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let all: Vec<_> =
        listing(SWEEPS).iter().filter(|path| json(path)).map(|path| report(path)).collect::<Result<_, _>>()?;
    Ok(all.into_iter().rfind(|report| !report.levels.is_empty()))
}

/// The first report of each probe that is kept with the project.
fn reports() -> Result<Vec<Report>, String> {
    let mut paths = listing(REPORTS);
    // What PyTorch measured beside them is no report.
    let other = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"torch-"));
    let first = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"-1.json"));
    paths.retain(|path| first(path) && !other(path));
    paths.iter().map(|path| report(path)).collect()
}

/// The pane of the load sweep after this one.
fn sweep(spec: &PaneSpec, shot: &Shot, report: &Report) -> Buffer {
    let sweep = Sweep {
        run: report.run.as_str().into(),
        endpoint: report.target.endpoint.as_deref().unwrap_or_default().into(),
        levels: report.levels.clone().into(),
        knee: report.knee.clone(),
        runs: false,
    };
    let mut board = Board::default();
    board.sweep = Some(sweep);
    // A few minutes later, with the engine that was swept as the chosen one.
    let now = Time(report.ended_unix_ms + LATER);
    let store = Store::new(Retention::HOUR);
    let mut batch = Batch::new(SourceId::Engine(0), now - LATER, Batch::FOREVER);
    batch.fact(Subject::Engine(0), FactKey::Url, report.target.endpoint.as_deref().unwrap_or_default());
    store.push(&batch);
    framed(spec, shot, &store.read(), &View::new(now), Some(&board))
}

/// The pane of probes on the machine that these reports are of, a few minutes after the last of them.
fn probes(spec: &PaneSpec, shot: &Shot, reports: &[Report]) -> Buffer {
    let mut board = Board::default();
    board.remember(reports.iter());
    let now = Time(reports.iter().map(|report| report.ended_unix_ms).max().unwrap_or_default() + LATER);
    let store = Store::new(Retention::HOUR);
    let mut batch = Batch::new(SourceId::Nvml, now - LATER, Batch::FOREVER);
    batch.state = Some(SourceState::Ok);
    // The GPU that most of them ran on: as the only one, it is the chosen one.
    let gpus: Vec<_> = reports.iter().filter_map(|report| report.target.gpus.first()).collect();
    let times = |uuid: &str| gpus.iter().filter(|gpu| gpu.uuid == uuid).count();
    if let Some(gpu) = gpus.iter().max_by_key(|gpu| (times(&gpu.uuid), &gpu.uuid)) {
        batch.fact(Subject::Gpu(0), FactKey::Name, &gpu.name);
        batch.fact(Subject::Gpu(0), FactKey::Uuid, &gpu.uuid);
    }
    store.push(&batch);
    let reported = |probe: &Probe| reports.iter().any(|report| report.probe == probe.spec.id);
    let probe = listed().position(reported).unwrap_or_default();
    framed(spec, shot, &store.read(), &View { probe, ..View::new(now) }, Some(&board))
}

/// The app, looking at the shot's moment of a recording that plays.
fn app(data: &Data, at_s: u64) -> App {
    let tick = Event::Tick(Time(0), Seen::of(data, true));
    let mut app = App::new(Origin::Recording, Time(0), PANES.len());
    app.update(tick);
    app.playhead.seek(i64::MIN);
    app.playhead.seek(i64::try_from(at_s * 1000).unwrap_or(i64::MAX));
    app.update(tick);
    app
}

fn draw(data: &Data, shot: &Shot) -> Buffer {
    let area = Rect::new(0, 0, shot.size.0, shot.size.1);
    let mut buf = Buffer::empty(area);
    let app = app(data, shot.at_s);
    let Some(spec) = shot.pane else {
        let mut screen = Screen::new(shot.theme, PANES);
        // A frame judges a part of what came before.
        (0..20).for_each(|_| screen.prepare(data, &app, area, Cost::default(), &[]));
        screen.draw(&mut buf, &app);
        return buf;
    };
    framed(spec, shot, data, &app.view, None)
}

/// A pane in its frame.
fn framed(spec: &PaneSpec, shot: &Shot, data: &Data, view: &View, board: Option<&Board>) -> Buffer {
    let area = Rect::new(0, 0, shot.size.0, shot.size.1);
    let mut buf = Buffer::empty(area);
    let inside = Rect::new(1, 1, area.width.saturating_sub(2), area.height.saturating_sub(2));
    let mut timeline = Timeline::default();
    timeline.follow(data, view.end);
    timeline.complete(data);
    let context = Context { view, theme: &shot.theme, timeline: &timeline, focused: board.is_some() };
    let mut pane = (spec.new)();
    pane.probes(board);
    pane.prepare(data, &context, inside);
    let slot = Slot { pane: 0, area, inside };
    chrome::draw_frame(&mut buf, &slot, shot.theme, spec.tab, pane.title(), false);
    pane.draw(inside, &mut buf, &context);
    buf
}

/// Files in the folder of pictures.
fn present() -> Vec<PathBuf> {
    fs::read_dir(root().join(DIR)).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn write() -> Result<(), String> {
    let dir = root().join(DIR);
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    fs::create_dir_all(&dir).map_err(|error| failed(&dir, error))?;
    for old in present() {
        fs::remove_file(&old).map_err(|error| failed(&old, error))?;
    }
    let options = png::options();
    for (name, svg) in pictures()? {
        let path = dir.join(&name);
        fs::write(&path, &svg).map_err(|error| failed(&path, error))?;
        let path = path.with_extension("png");
        let png = png::png(&svg, &options).map_err(|error| format!("{name}: {error}"))?;
        fs::write(&path, png).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

fn check() -> Result<(), String> {
    let pictures = pictures()?;
    let dir = root().join(DIR);
    let mut wrong: Vec<String> = Vec::new();
    for (name, svg) in &pictures {
        if fs::read(dir.join(name)).ok().as_deref() != Some(svg.as_bytes()) {
            wrong.push(name.clone());
        }
    }
    for path in present() {
        let name = path.with_extension("svg").file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !pictures.contains_key(&name) {
            wrong.push(format!("{name} (of no use any more)"));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("out of date: {}; look at them after `cargo xtask screenshots`", wrong.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warptop::load::Level;
    use warptop::load::level::{Knee, Load, Rate, State};

    #[test]
    fn the_pictures_show_what_the_program_draws() {
        if let Err(why) = super::check() {
            panic!("{why}");
        }
    }

    /// Levels that nobody measured, in the report of another probe.
    #[test]
    fn a_report_of_a_sweep_gets_a_picture_with_its_levels_and_its_knee() {
        let mut report = reports().expect("kept reports can be read").swap_remove(0);
        let level = |(place, users): (u32, u32)| Level {
            place,
            load: Load::Users(users),
            state: State::Done,
            output_tokens_per_s: Some(Rate { value: f64::from(users.min(16) * 300), lo: None, hi: None }),
            ..Level::default()
        };
        report.levels = (0..).zip([1, 2, 4, 8, 16, 32, 64]).map(level).collect();
        let knee = Knee { at: 18.0, lo: 16.0, hi: 32.0, output_tokens_per_s: 4_800.0, words: String::new() };
        report.knee = Some(knee);
        let shot = shots().into_iter().find(|shot| shot.name == "pane-sweep").expect("the pane has a shot");
        let buf = sweep(shot.pane.expect("a pane"), &shot, &report);
        let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        for words in ["knee at 18 users (16–32): 4.80k tokens/s", "users", "64", "2.40k"] {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
    }
}
