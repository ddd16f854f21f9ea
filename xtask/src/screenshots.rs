//! `screenshots`: the pictures in `screenshots/`, drawn from a recording at fixed moments and sizes.
//!
//! The SVGs depend on the code and the recording only, so they can be compared; the PNGs are made of
//! them. Every pane in the table of panes gets a picture.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use warptop::app::{App, Cost, Event, Origin, Seen};
use warptop::export::svg::svg;
use warptop::model::Time;
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
/// Size of a pane's picture, frame included.
const PANE: (u16, u16) = (96, 18);
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
        let size = if pane.id == "gpu_strip" { STRIP } else { PANE };
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
    Ok(shots().iter().map(|shot| (format!("{}.svg", shot.name), svg(&draw(&data, shot)))).collect())
}

/// The app, looking at the shot's moment of a recording that plays.
fn app(data: &Data, at_s: u64) -> App {
    let tick = Event::Tick(Time(0), Seen::of(data, true));
    let mut app = App::new(Origin::Recording, Time(0), PANES.len());
    app.update(tick);
    app.timeline.seek(i64::MIN);
    app.timeline.seek(i64::try_from(at_s * 1000).unwrap_or(i64::MAX));
    app.update(tick);
    app
}

fn draw(data: &Data, shot: &Shot) -> Buffer {
    let area = Rect::new(0, 0, shot.size.0, shot.size.1);
    let mut buf = Buffer::empty(area);
    let app = app(data, shot.at_s);
    let Some(spec) = shot.pane else {
        let mut screen = Screen::new(shot.theme, PANES);
        screen.prepare(data, &app, area, Cost::default(), &[]);
        screen.draw(&mut buf, &app);
        return buf;
    };
    let inside = Rect::new(1, 1, area.width.saturating_sub(2), area.height.saturating_sub(2));
    let context = Context { view: &app.view, theme: &shot.theme, focused: false };
    let mut pane = (spec.new)();
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
    #[test]
    fn the_pictures_show_what_the_program_draws() {
        if let Err(why) = super::check() {
            panic!("{why}");
        }
    }
}
