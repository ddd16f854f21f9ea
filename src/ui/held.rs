//! The strip below time axes: when each finding held that asked for a look, and which one the cursor is at.
//!
//! Where findings overlap the more harmful one is shown. It must not know what a pane shows. Drawing allocates nothing.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::diagnosis::{Cause, Severity, Timeline};
use crate::model::Time;

use super::text::{columns, put, width};
use super::theme::{Role, Theme};
use super::units::TimeOfDay;
use super::verdict::{events, words};

/// A finding inside the window, as shares of it (0 to 1).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bar {
    from: f64,
    to: f64,
    cause: Cause,
    severity: Severity,
}

/// What held inside the window.
#[derive(Debug, Default)]
pub(super) struct Held {
    bars: Vec<Bar>,
    from: Time,
    span_ms: u64,
}

impl Held {
    /// Takes in what held in the visible time, the most harmful last.
    pub(super) fn fill(&mut self, timeline: &Timeline, view: &View) {
        let window = view.window();
        let share = |ms: u64| ms as f64 / window.ms().max(1) as f64;
        (self.from, self.span_ms) = (window.start, window.ms());
        self.bars.clear();
        let inside = timeline
            .spans()
            .iter()
            .filter(|span| events::is_told(span) && span.to >= window.start && span.from <= window.end);
        // A second is judged at its end.
        self.bars.extend(inside.map(|span| Bar {
            from: share((span.from - 1_000).since(window.start)),
            to: share(span.to.min(window.end).since(window.start)),
            cause: span.cause,
            severity: span.severity,
        }));
        self.bars.sort_unstable_by(|a, b| a.severity.cmp(&b.severity).then(b.from.total_cmp(&a.from)));
    }

    /// Bars that touch column `x` of `wide`, the most harmful first.
    fn at(&self, x: u16, wide: u16) -> impl Iterator<Item = &Bar> {
        let (left, right) = (f64::from(x) / f64::from(wide.max(1)), f64::from(x + 1) / f64::from(wide.max(1)));
        self.bars.iter().rev().filter(move |bar| bar.from < right && bar.to > left)
    }

    /// Draws the strip in the first row of `area`, which is as wide as the plot above it; `cursor` is a column of it.
    pub(super) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme, cursor: Option<u16>) {
        if area.is_empty() {
            return;
        }
        let line = if theme.unicode() { '━' } else { '=' };
        let mut start = 0;
        while start < area.width {
            let bar = self.at(start, area.width).next();
            let same = |x: &u16| self.at(*x, area.width).next() == bar;
            let end = (start + 1..area.width).find(|x| !same(x)).unwrap_or(area.width);
            if let Some(bar) = bar {
                let style = theme.style(words::role(bar.severity));
                for x in start..end {
                    put(buf, area, (x, 0), style, format_args!("{line}"));
                }
                let label = bar.cause.label();
                if cursor.is_some() {
                    // What it reads out stands in the same row.
                } else if width(label) < end - start {
                    put(buf, area, (start, 0), style, format_args!("{label}"));
                } else {
                    put(buf, area, (start, 0), style, format_args!("{}", letter(bar.cause)));
                }
            }
            start = end;
        }
        if let Some(x) = cursor.filter(|x| *x < area.width) {
            self.read(buf, area, theme, x);
        }
    }

    /// Writes the time at column `x` and what held then, beside the cursor.
    fn read(&self, buf: &mut Buffer, area: Rect, theme: Theme, x: u16) {
        let middle = self.span_ms * (2 * u64::from(x) + 1) / (2 * u64::from(area.width.max(1)));
        let time = TimeOfDay(self.from + middle);
        let names = || self.at(x, area.width);
        let sum = names().map(|bar| width(bar.cause.label()).saturating_add(2)).fold(0, u16::saturating_add);
        let needed = columns(format_args!("{time}")).saturating_add(1).saturating_add(sum.max(8));
        let (accent, cursor) = (theme.style(Role::Accent), if theme.unicode() { '│' } else { '|' });
        // To the right of the cursor, or where that has no room to its left.
        let right = x.saturating_add(2);
        let mut at = if right.saturating_add(needed) <= area.width { right } else { x.saturating_sub(needed) };
        if at == right {
            put(buf, area, (x + 1, 0), accent, format_args!(" "));
        }
        at = put(buf, area, (at, 0), accent, format_args!("{time} "));
        if names().next().is_none() {
            at = put(buf, area, (at, 0), theme.style(Role::Dim), format_args!("nothing"));
        }
        for (place, bar) in names().enumerate() {
            let between = if place == 0 { "" } else { ", " };
            at = put(
                buf,
                area,
                (at, 0),
                theme.style(words::role(bar.severity)),
                format_args!("{between}{}", bar.cause.label()),
            );
        }
        if at < area.width && at != x {
            put(buf, area, (at, 0), accent, format_args!(" "));
        }
        put(buf, area, (x, 0), accent, format_args!("{cursor}"));
    }
}

/// A cause as a letter, for stretches that are too short for its name.
const fn letter(cause: Cause) -> char {
    match cause {
        Cause::Down => 'D',
        Cause::Stalled => 'S',
        Cause::NeedsKey => 'y',
        Cause::Unreadable => 'U',
        Cause::GpuFault => 'X',
        Cause::KvCapacity => 'K',
        Cause::AdmissionLimit => 'A',
        Cause::WaitsForTransfer => 'W',
        Cause::PrefixCold => 'C',
        Cause::LongPrefill => 'L',
        Cause::Neighbour => 'N',
        Cause::Interconnect => 'I',
        Cause::PcieTransfer => 'B',
        Cause::Straggler => 'G',
        Cause::HostCpu => 'H',
        Cause::Frontend => 'F',
        Cause::LaunchOverhead => 'O',
        Cause::Speculation => 'R',
        Cause::Heat => 'T',
        Cause::PowerBrake => 'b',
        Cause::PowerCap => 'P',
        Cause::TailLatency => 't',
        Cause::ThroughputDrop => 'd',
        Cause::KvMismatch => 'k',
        Cause::PageFaults => 'f',
        Cause::HostMemory => 'm',
        Cause::NetworkRetransmits => 'n',
        Cause::MemoryBandwidth => 'w',
        Cause::Compute => 'c',
        Cause::DemandLimited => 'l',
        Cause::Healthy => 'h',
        Cause::Idle => 'i',
        Cause::Unknown => 'u',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{Diagnosis, Span};
    use crate::model::Subject;
    use crate::ui::theme::{Charset, Depth};

    const END: Time = Time(1_000_000);

    /// A minute of which these seconds were bad.
    fn held(spans: &[(Cause, Severity, u64, u64)]) -> Held {
        let start = END - 60_000;
        let span = |&(cause, severity, from, to): &(Cause, Severity, u64, u64)| {
            let (from, to) = (start + from * 1_000, start + to * 1_000);
            Span { subject: Subject::Engine(0), cause, severity, from, to, headline: String::new() }
        };
        let diagnosis = Diagnosis { at: END, ..Diagnosis::default() };
        let timeline = Timeline::showing(diagnosis, spans.iter().map(span).collect());
        let mut held = Held::default();
        held.fill(&timeline, &View::new(END));
        held
    }

    fn row(held: &Held, columns: u16, theme: Theme, cursor: Option<u16>) -> String {
        let area = Rect::new(0, 0, columns, 1);
        let mut buf = Buffer::empty(area);
        held.draw(&mut buf, area, theme, cursor);
        buf.content.iter().map(ratatui::buffer::Cell::symbol).collect()
    }

    #[test]
    fn each_stretch_is_named_where_it_has_room_and_the_worst_covers_the_others() {
        let all = held(&[
            (Cause::PowerCap, Severity::Watch, 1, 50),
            (Cause::KvCapacity, Severity::Act, 21, 40),
            (Cause::Stalled, Severity::Act, 55, 57),
            (Cause::Healthy, Severity::Ok, 0, 60),
        ]);
        let full = row(&all, 60, Theme::FULL, None);
        assert_eq!(full, "power cap━━━━━━━━━━━KV cache full━━━━━━━power cap━    S━━   ");
        let ascii = Theme { depth: Depth::Mono, charset: Charset::Ascii };
        assert!(row(&all, 60, ascii, None).contains("power cap==="));
        assert_eq!(row(&all, 12, Theme::FULL, None), "P━━━K━━━P━S━");
    }

    #[test]
    fn the_cursor_reads_the_time_and_all_that_held() {
        let all = held(&[(Cause::PowerCap, Severity::Watch, 1, 50), (Cause::KvCapacity, Severity::Act, 21, 40)]);
        let at = |x| row(&all, 60, Theme::FULL, Some(x));
        assert!(at(10).contains("│ 00:15:50 power cap ━"), "{}", at(10));
        assert!(at(35).contains("00:16:15 KV cache full, power cap") && at(35).contains('│'), "{}", at(35));
        assert!(at(58).contains("00:16:38 nothing"), "{}", at(58));
        assert_eq!(row(&held(&[]), 60, Theme::FULL, None).trim(), "");
    }

    #[test]
    fn no_two_causes_share_a_letter() {
        for (place, &cause) in Cause::ALL.iter().enumerate() {
            assert!(Cause::ALL[..place].iter().all(|&other| letter(other) != letter(cause)), "{cause:?}");
        }
    }

    #[test]
    fn any_area_will_do() {
        let all = held(&[(Cause::PowerCap, Severity::Watch, 1, 50)]);
        for area in [Rect::ZERO, Rect::new(0, 0, 1, 1), Rect::new(0, 0, 300, 3), Rect::new(u16::MAX - 1, 9, 1, 1)] {
            for cursor in [None, Some(0), Some(7), Some(u16::MAX)] {
                all.draw(&mut Buffer::empty(Rect::new(0, 0, 20, 5)), area, Theme::FULL, cursor);
            }
        }
    }
}
