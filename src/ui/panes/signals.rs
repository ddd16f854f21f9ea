//! Signals: what is wrong, the figures that show it, and what would help, the most serious first.
//!
//! It words nothing itself: evidence and advice are those of `signal`, the same that the snapshot gives.
//! Signals are judged anew once a second at most, which is the only time this pane allocates.

use std::fmt::Write;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::signal::{self, Level, SIGNALS, Signal};
use crate::store::{Data, Window};
use crate::ui::pane::{Context, Pane, PaneSpec};
use crate::ui::text::{put, put_wrapped, wrapped_rows};
use crate::ui::theme::{Role, Theme};

use super::notice;

/// The pane.
pub(super) const SPEC: PaneSpec = PaneSpec {
    id: "signals",
    tab: "Signals",
    help: "What is wrong, judged over the visible time: ▲ asks for a change, ● for a look now and then, · is well. \
           Behind each stand the figures it was judged from and, where there is room, what would help. Signals that \
           nothing is known about are not listed.",
    new: || Box::new(Signals::default()),
};

/// What is drawn.
#[derive(Debug, Default)]
struct Signals {
    title: String,
    judged: Vec<Signal>,
    /// Name and evidence of each in one, for narrow panes.
    short: Vec<String>,
    /// Second and length of the window that was judged, and the second of the newest data.
    moment: Option<(u64, u64, u64)>,
}

impl Pane for Signals {
    fn prepare(&mut self, data: &Data, context: &Context<'_>, _: Rect) {
        let view = context.view;
        let moment = (view.end.0 / 1000, view.span_ms, data.newest().0 / 1000);
        if self.moment.replace(moment) != Some(moment) {
            self.judged = signal::all(data, Window::last(view.end, view.span_ms));
            self.judged.sort_by_key(|signal| std::cmp::Reverse(signal.level));
            let short = |s: &Signal| format!("{}: {}", Spaced(s.id), s.evidence.first().map_or("", String::as_str));
            self.short = self.judged.iter().map(short).collect();
            self.word_title();
        }
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>) {
        let theme = *context.theme;
        if self.judged.is_empty() {
            notice::draw(buf, area, theme, &self.title);
            return;
        }
        // Each signal has its line first; advice fills what is left, the most serious first.
        let mut spare = area.height.saturating_sub(u16::try_from(self.judged.len()).unwrap_or(u16::MAX));
        let mut y = 0;
        for (signal, short) in self.judged.iter().zip(&self.short) {
            if y >= area.height {
                break;
            }
            let rows = draw_signal(
                buf,
                Rect { y: area.y + y, height: area.height - y, ..area },
                theme,
                (signal, short),
                &mut spare,
            );
            y += rows;
        }
    }
}

/// Columns of the mark and of the name.
const MARK: u16 = 2;
const NAME: u16 = 18;

impl Signals {
    fn word_title(&mut self) {
        self.title.clear();
        if self.judged.is_empty() {
            self.title.push_str("nothing to judge from yet");
            return;
        }
        for (level, verb) in [(Level::Act, "act on"), (Level::Watch, "watch")] {
            for (i, signal) in self.judged.iter().filter(|s| s.level == level).enumerate() {
                let between = match (i, self.title.is_empty()) {
                    (0, true) => "",
                    (0, false) => "; ",
                    _ => ", ",
                };
                let verb = if i == 0 { verb } else { "" };
                let space = if i == 0 { " " } else { "" };
                // Writing to a String never fails.
                let _ = write!(self.title, "{between}{verb}{space}{}", Spaced(signal.id));
            }
        }
        if !self.title.is_empty() {
            return;
        }
        let (judged, all) = (self.judged.len(), SIGNALS.len());
        if judged == all {
            self.title.push_str("all is well");
        } else {
            let _ = write!(self.title, "{judged} of {all} judged: nothing to act on");
        }
    }
}

/// Draws a signal with as much advice as `spare` rows allow; returns the rows it took.
fn draw_signal(buf: &mut Buffer, area: Rect, theme: Theme, (signal, short): (&Signal, &str), spare: &mut u16) -> u16 {
    let style = style(theme, signal.level);
    put(buf, area, (0, 0), style, format_args!("{}", mark(theme, signal.level)));
    let wide = area.width >= 60;
    let indent = if wide { MARK + NAME } else { MARK };
    if wide {
        put(buf, area, (MARK, 0), style, format_args!("{}", Spaced(signal.id)));
    }
    let evidence = if wide { signal.evidence.first().map_or("", String::as_str) } else { short };
    let head = Rect { x: area.x + indent, width: area.width.saturating_sub(indent), ..area };
    let mut rows = 1;
    let wanted = wrapped_rows(evidence, head.width).max(1);
    let more = (wanted - 1).min(*spare);
    *spare -= more;
    rows += more;
    put_wrapped(buf, Rect { height: rows.min(head.height), ..head }, theme.style(Role::Text), evidence);
    if wanted > rows && head.width > 0 {
        let cut = if theme.unicode() { '…' } else { '~' };
        put(buf, head, (head.width - 1, rows - 1), theme.style(Role::Dim), format_args!("{cut}"));
    }
    let advice = wrapped_rows(&signal.advice, head.width);
    if signal.level > Level::Ok && advice > 0 && advice <= *spare {
        let below = Rect { y: head.y + rows, height: advice.min(head.height.saturating_sub(rows)), ..head };
        put_wrapped(buf, below, theme.style(Role::Dim), &signal.advice);
        *spare -= advice;
        rows += advice;
    }
    rows
}

/// A signal's id as words.
struct Spaced(&'static str);

impl std::fmt::Display for Spaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, word) in self.0.split('_').enumerate() {
            f.write_str(if i > 0 { " " } else { "" })?;
            f.write_str(if word == "kv" { "KV" } else { word })?;
        }
        Ok(())
    }
}

fn style(theme: Theme, level: Level) -> Style {
    match level {
        Level::Ok => theme.style(Role::Dim),
        Level::Watch => theme.style(Role::Text),
        Level::Act => theme.style(Role::Warn),
    }
}

/// A shape for each level, since colour alone tells nothing.
const fn mark(theme: Theme, level: Level) -> char {
    match (level, theme.unicode()) {
        (Level::Act, true) => '▲',
        (Level::Watch, true) => '●',
        (Level::Ok, true) => '·',
        (Level::Act, false) => '!',
        (Level::Watch, false) => '*',
        (Level::Ok, false) => '.',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_well_is_said_only_where_all_was_judged() {
        let title = |count: usize, level| {
            let of = |(i, detector): (usize, &signal::Detector)| Signal {
                id: detector.id,
                level: if i == 0 { level } else { Level::Ok },
                evidence: Vec::new(),
                advice: "".into(),
            };
            let judged = SIGNALS.iter().take(count).enumerate().map(of).collect();
            let mut pane = Signals { judged, ..Signals::default() };
            pane.word_title();
            pane.title
        };
        let all = SIGNALS.len();
        assert_eq!(title(all, Level::Ok), "all is well");
        assert_eq!(title(3, Level::Ok), format!("3 of {all} judged: nothing to act on"));
        assert_eq!(title(3, Level::Act), "act on down");
        assert_eq!(title(0, Level::Ok), "nothing to judge from yet");
    }
}
