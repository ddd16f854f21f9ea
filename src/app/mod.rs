//! What the program is showing: view, focus, actions. Pure and synchronous; time is injected.
//!
//! `update` turns an event into a new state and at most one effect; it must not draw, read a clock, or
//! touch a source. Every change of state goes through it.

mod action;
mod key;
mod playhead;
pub mod view;

pub use action::{ACTIONS, Action, ActionSpec};
pub use key::Key;
pub use playhead::{Origin, Playhead};
pub use view::View;

use crate::derive::latency::summary::exposed;
use crate::model::{Metric, Time};
use crate::probe::{Aim, Needs, PROBES, listed};
use crate::store::Data;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A key was pressed.
    Key(Key),
    /// The terminal has another size, or its content was lost.
    Resize,
    /// Time passed: what the clock says, and what data there are.
    Tick(Time, Seen),
    /// The pane that the cursor belongs to has this many columns and rows for it; `None` where no pane that is seen has any.
    CursorRange(Option<(u16, u16)>),
    /// Place of the probe that asks to be run in the table of probes, if one does.
    Asking(Option<usize>),
    /// Whether something is said about probes that goes when it has been read.
    Noted(bool),
    /// Whether the screen as it was drawn shows that question whole.
    Readable(bool),
    /// No line after this one can be the first of the page or the report that is shown.
    LastLine(u16),
    /// A signal or a lost terminal asks to end.
    Interrupt,
}

/// What the runtime has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End the program.
    Quit(Exit),
    /// Give the terminal back to the shell until it continues us.
    Suspend,
    /// Paint the whole screen anew.
    Repaint,
    /// Stop the live sources and play the embedded recording.
    Demo,
    /// Tell the probes.
    Probe(Order),
}

/// What is said to the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run the one at this place of the table, on the GPU with this index if it needs one: it asks first.
    Ask(usize, Aim),
    /// Run the one that asks.
    Yes,
    /// Do not.
    No,
    /// Ask again for what was refused, to run it all the same.
    Force,
    /// What is said about earlier runs has been read.
    Seen,
    /// End whatever runs.
    Stop,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By the user's key.
    Asked,
    /// By a signal.
    Interrupted,
}

/// What data there are: all that `update` needs to know of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Oldest and newest data.
    pub extent: Option<(Time, Time)>,
    /// Bit i: GPU i was seen (the first 64).
    pub gpus: u64,
    /// Bit i: engine i was seen (the first 64).
    pub engines: u64,
    /// Bit i: engine i exposes the latency at this place of [`View::LATENCIES`].
    pub latencies: [u64; View::LATENCIES.len()],
    /// Whether nothing more will come: a recording has been read to its end.
    pub complete: bool,
}

impl Seen {
    /// What is in the store, and whether that is all.
    pub fn of(data: &Data, complete: bool) -> Self {
        let bits =
            |places: &mut dyn Iterator<Item = u8>| places.filter(|&i| i < 64).fold(0_u64, |bits, i| bits | 1 << i);
        Self {
            extent: data.oldest().map(|oldest| (oldest, data.newest())),
            gpus: bits(&mut data.gpus()),
            engines: bits(&mut data.engines()),
            latencies: View::LATENCIES.map(|metric| bits(&mut data.engines().filter(|&i| exposed(data, i, metric)))),
            complete,
        }
    }
}

/// What warptop costs, for the footer; the CPU and memory figures are in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time the last frame took to prepare, draw and write, µs.
    pub frame_us: u64,
    /// Batches that the recorder did not get.
    pub lost: u64,
}

/// What the probes say to the user.
#[derive(Clone, Copy, Debug)]
struct Talk {
    /// Place of the one that asks to be run.
    asking: Option<usize>,
    /// Something is said that goes when it has been read.
    noted: bool,
    /// What asks can be read, and no key has changed anything since.
    readable: bool,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct App {
    /// What part of the data every pane shows.
    pub view: View,
    /// How the time axis moves.
    pub playhead: Playhead,
    /// Place of the pane in focus.
    pub focus: usize,
    /// Whether the pane in focus has the screen for itself.
    pub zoomed: bool,
    /// First line of the help screen that is shown; `None` while it is closed.
    pub help: Option<u16>,
    /// First line of the evidence that is shown; `None` while it is closed.
    pub evidence: Option<u16>,
    /// Lines by which the log is scrolled up from its end; `None` while it is closed.
    pub log: Option<u16>,
    /// What data there are.
    pub seen: Seen,
    panes: usize,
    /// Place of the pane of probes.
    probes: Option<usize>,
    /// Place of the pane that has the focus where there is an engine and no GPU, until another is chosen.
    without_gpu: Option<usize>,
    talk: Talk,
    cursor_range: Option<(u16, u16)>,
    last_line: u16,
}

/// The next set bit after `from` in steps of 1 or -1, wrapping around; `from` when none is set.
fn next_bit(bits: u64, from: u8, back: bool) -> u8 {
    let step = |n: u8| if back { 64 + from - n } else { from + n } % 64;
    (1..=64).map(step).find(|i| bits >> i & 1 == 1).unwrap_or(from)
}

/// The place one further, wrapping around.
const fn turn(place: usize, len: usize, back: bool) -> usize {
    if len == 0 { 0 } else { (place + if back { len - 1 } else { 1 }) % len }
}

/// Where a cursor stands when its map gets another size: at the same time and the same height, as near as
/// cells allow. A single row of columns grows at its end: there a column stays the same one.
fn same_place((column, row): (u16, u16), old: (u16, u16), new: (u16, u16)) -> (u16, u16) {
    if old.1 == 1 && new.1 == 1 {
        return (column.min(new.0 - 1), 0);
    }
    let middle = |at: u16, old: u16, new: u16| {
        let place = (2 * u64::from(at) + 1) * u64::from(new) / (2 * u64::from(old));
        u16::try_from(place).unwrap_or(u16::MAX).min(new - 1)
    };
    (middle(column, old.0, new.0), middle(row, old.1, new.1))
}

impl App {
    /// A screen of `panes` panes on data from `origin`.
    pub const fn new(origin: Origin, now: Time, panes: usize) -> Self {
        Self {
            view: View::new(now),
            playhead: Playhead::new(origin, now),
            focus: 0,
            zoomed: false,
            help: None,
            evidence: None,
            log: None,
            seen: Seen { extent: None, gpus: 0, engines: 0, latencies: [0; _], complete: false },
            panes,
            probes: None,
            without_gpu: None,
            talk: Talk { asking: None, noted: false, readable: false },
            cursor_range: None,
            last_line: 0,
        }
    }

    /// The same, with the pane of probes at this place.
    #[must_use]
    pub const fn with_probes(mut self, place: Option<usize>) -> Self {
        self.probes = place;
        self
    }

    /// The same, with this pane in focus where there is an engine and no GPU.
    #[must_use]
    pub const fn without_gpu(mut self, place: Option<usize>) -> Self {
        self.without_gpu = place;
        self
    }

    /// Whether the pane of probes has the focus and can be seen.
    pub fn at_probes(&self) -> bool {
        self.probes == Some(self.focus) && !self.has_page()
    }

    /// Whether a page is open in place of the panes.
    pub const fn has_page(&self) -> bool {
        self.help.is_some() || self.evidence.is_some() || self.log.is_some()
    }

    /// Whether neither GPU nor engine was found (yet): then the demo is one key away.
    pub const fn nothing_here(&self) -> bool {
        matches!(self.playhead.origin(), Origin::Live) && self.seen.gpus == 0 && self.seen.engines == 0
    }

    /// Takes in what happened.
    pub fn update(&mut self, event: Event) -> Option<Effect> {
        let effect = match event {
            Event::Key(key) => {
                // Any other key may change what the question is, or whether it is on the screen.
                let read = std::mem::take(&mut self.talk.readable);
                self.key(key, read)
            }
            Event::Asking(asking) => {
                self.talk.asking = asking;
                None
            }
            Event::Noted(noted) => {
                self.talk.noted = noted;
                None
            }
            Event::Readable(readable) => {
                self.talk.readable = readable;
                None
            }
            Event::LastLine(last) => {
                let pages = [&mut self.help, &mut self.evidence, &mut self.log, &mut self.view.report];
                if let Some(line) = pages.into_iter().flatten().next() {
                    *line = (*line).min(last);
                }
                self.last_line = last;
                None
            }
            Event::Resize => {
                self.talk.readable = false;
                Some(Effect::Repaint)
            }
            Event::Interrupt => Some(Effect::Quit(Exit::Interrupted)),
            Event::CursorRange(range) => {
                // A cursor that cannot be seen must not take the arrows.
                let range = range.map(|(columns, rows)| (columns.max(1), rows.max(1)));
                self.view.cursor = match (self.view.cursor, self.cursor_range, range) {
                    (Some(cursor), Some(before), Some(now)) => Some(same_place(cursor, before, now)),
                    _ => None,
                };
                self.cursor_range = range;
                None
            }
            Event::Tick(now, seen) => {
                self.tick(now, seen);
                None
            }
        };
        self.view.end = self.playhead.end();
        self.view.live = self.playhead.moving();
        effect
    }

    fn key(&mut self, key: Key, read: bool) -> Option<Effect> {
        // In their pane the probes' own keys come first; a test keeps them apart from those that must work there.
        if let (Key::Char(c), true) = (key, self.at_probes())
            && let Some(place) = PROBES.iter().position(|probe| probe.spec.key == c && !probe.spec.hidden)
        {
            // What asks or runs is also what is looked at.
            self.view.probe = listed().position(|probe| probe.spec.key == c).unwrap_or(self.view.probe);
            self.view.report = None;
            return Some(Effect::Probe(Order::Ask(place, self.aim())));
        }
        match Action::of(key)? {
            // A question is answered only where it can be read, its cost included.
            (Action::Yes, _) => (read && self.at_probes()).then_some(Effect::Probe(Order::Yes)),
            (action, place) => self.act(action, place),
        }
    }

    fn tick(&mut self, now: Time, seen: Seen) {
        self.playhead.tick(now, seen.extent, seen.complete, self.view.span_ms);
        self.seen = seen;
        for (bits, chosen) in [(seen.gpus, &mut self.view.gpu), (seen.engines, &mut self.view.engine)] {
            // What was chosen before anything was seen may not exist.
            if bits != 0 && (*chosen > 63 || bits >> *chosen & 1 == 0) {
                *chosen = u8::try_from(bits.trailing_zeros()).unwrap_or(0);
            }
        }
        if seen.gpus == 0 && seen.engines != 0 {
            self.focus = self.without_gpu.take().unwrap_or(self.focus);
        }
        let place = View::LATENCIES.iter().position(|m| *m == self.view.latency);
        let any = (0..View::LATENCIES.len()).any(|place| self.exposes(place));
        if any && place.is_some_and(|place| !self.exposes(place)) {
            self.view.latency = self.metric(false);
        }
    }

    /// Whether the chosen engine exposes the latency at this place.
    fn exposes(&self, place: usize) -> bool {
        self.seen.latencies[place].checked_shr(self.view.engine.into()).is_some_and(|bits| bits & 1 == 1)
    }

    fn act(&mut self, action: Action, place: usize) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit(Exit::Asked)),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Repaint => return Some(Effect::Repaint),
            Action::Demo => return self.nothing_here().then_some(Effect::Demo),
            Action::Help => self.help = self.turn_page(self.help),
            Action::Log => self.log = self.turn_page(self.log),
            Action::Back if self.talk.asking.is_some() && self.at_probes() => return Some(Effect::Probe(Order::No)),
            Action::Back if self.at_probes() && self.view.report.is_some() => self.view.report = None,
            Action::Back if self.talk.noted && self.at_probes() => return Some(Effect::Probe(Order::Seen)),
            Action::Back => self.back(),
            Action::Probes => self.focus_on(self.probes.unwrap_or(self.focus)),
            Action::No if self.at_probes() => return Some(Effect::Probe(Order::No)),
            Action::Force if self.at_probes() => return Some(Effect::Probe(Order::Force)),
            Action::Stop => return Some(Effect::Probe(Order::Stop)),
            Action::FocusNext => self.focus_on(turn(self.focus, self.panes, false)),
            Action::FocusPrevious => self.focus_on(turn(self.focus, self.panes, true)),
            Action::Show if place < self.panes => self.focus_on(place),
            Action::Show | Action::Yes | Action::No | Action::Force => {}
            // Enter, where D does something else.
            Action::Evidence if place == 0 && self.at_probes() => {
                self.view.report = if self.view.report.is_some() { None } else { Some(0) };
            }
            Action::Evidence => self.evidence = self.turn_page(self.evidence),
            Action::Zoom => self.zoomed = !self.zoomed,
            Action::NextGpu => self.view.gpu = next_bit(self.seen.gpus, self.view.gpu, false),
            Action::PreviousGpu => self.view.gpu = next_bit(self.seen.gpus, self.view.gpu, true),
            Action::NextEngine => return self.engine(false),
            Action::PreviousEngine => return self.engine(true),
            Action::NextMetric => self.view.latency = self.metric(false),
            Action::PreviousMetric => self.view.latency = self.metric(true),
            Action::Peak => self.view.of_measured = !self.view.of_measured,
            Action::Cursor => {
                let middle = self.cursor_range.map(|(columns, rows)| (columns / 2, rows / 2));
                self.view.cursor = if self.view.cursor.is_some() { None } else { middle };
            }
            Action::Up => self.vertical(true),
            Action::Down => self.vertical(false),
            Action::Left => self.horizontal(true),
            Action::Right => self.horizontal(false),
            Action::Shorter => self.span(true),
            Action::Longer => self.span(false),
            Action::Pause => self.playhead.pause(self.view.span_ms),
            Action::Start => self.playhead.home(self.view.span_ms),
            Action::Edge => self.playhead.to_edge(),
            Action::Slower => self.playhead.change_speed(-1),
            Action::Faster => self.playhead.change_speed(1),
        }
        None
    }

    /// Closes whatever page is open; where one that was closed opens.
    const fn turn_page(&mut self, page: Option<u16>) -> Option<u16> {
        (self.help, self.evidence, self.log) = (None, None, None);
        if page.is_some() { None } else { Some(0) }
    }

    const fn focus_on(&mut self, place: usize) {
        (self.focus, self.without_gpu) = (place, None);
    }

    /// Another engine. A question about the one before is asked anew: an answer must be about what is chosen.
    fn engine(&mut self, back: bool) -> Option<Effect> {
        let before = self.view.engine;
        self.view.engine = next_bit(self.seen.engines, before, back);
        let about_it = |place: &usize| PROBES.get(*place).is_some_and(|probe| probe.spec.needs == Needs::Endpoint);
        let place = self.talk.asking.filter(|_| self.at_probes() && self.view.engine != before).filter(about_it)?;
        Some(Effect::Probe(Order::Ask(place, self.aim())))
    }

    const fn aim(&self) -> Aim {
        Aim { gpu: self.view.gpu, engine: self.view.engine }
    }

    fn back(&mut self) {
        if self.has_page() {
            let _ = self.turn_page(None);
        } else if self.zoomed {
            self.zoomed = false;
        } else {
            self.view.cursor = None;
        }
    }

    /// The next latency that the chosen engine exposes; the next of all while none is known.
    fn metric(&self, back: bool) -> Metric {
        let all = View::LATENCIES;
        let any = (0..all.len()).any(|place| self.exposes(place));
        let place = all.iter().position(|m| *m == self.view.latency).unwrap_or(0);
        let next = |place: &usize| Some(turn(*place, all.len(), back));
        let mut others = std::iter::successors(next(&place), next).take(all.len());
        others.find(|place| self.exposes(*place) || !any).map_or(self.view.latency, |place| all[place])
    }

    fn span(&mut self, shorter: bool) {
        let mut place = View::SPANS.iter().position(|s| *s >= self.view.span_ms).unwrap_or(View::SPANS.len() - 1);
        place = if shorter { place.saturating_sub(1) } else { (place + 1).min(View::SPANS.len() - 1) };
        self.view.span_ms = View::SPANS[place];
    }

    fn vertical(&mut self, up: bool) {
        if let Some(line) = [&mut self.help, &mut self.evidence].into_iter().flatten().next() {
            *line = if up { line.saturating_sub(1) } else { (*line + 1).min(self.last_line) };
        } else if let Some(back) = &mut self.log {
            // From its end.
            *back = if up { (*back + 1).min(self.last_line) } else { back.saturating_sub(1) };
        } else if self.at_probes() {
            let last = listed().count().saturating_sub(1);
            match &mut self.view.report {
                Some(line) => *line = if up { line.saturating_sub(1) } else { (*line + 1).min(self.last_line) },
                None if up => self.view.probe = self.view.probe.saturating_sub(1),
                None => self.view.probe = (self.view.probe + 1).min(last),
            }
        } else if let (Some((_, row)), Some((_, rows))) = (&mut self.view.cursor, self.cursor_range) {
            *row = if up { (*row + 1).min(rows - 1) } else { row.saturating_sub(1) };
        }
    }

    fn horizontal(&mut self, left: bool) {
        if let (Some((column, _)), Some((columns, _))) = (&mut self.view.cursor, self.cursor_range) {
            *column = if left { column.saturating_sub(1) } else { (*column + 1).min(columns - 1) };
        } else {
            let step = i64::try_from(self.view.span_ms / 10).unwrap_or(i64::MAX);
            self.playhead.seek(if left { -step } else { step });
        }
    }
}

#[cfg(test)]
mod tests;
