//! The evidence: a page of all findings, each with the figures it was judged from, its rule and what would help.
//!
//! Words are made once a second while the page is open; drawing only writes. It words what the diagnosis says and judges
//! nothing.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::diagnosis::{Diagnosis, Finding, Fix, Timeline};
use crate::model::Time;
use crate::probe::PROBES;
use crate::store::Data;

use super::sheet::Sheet;
use super::theme::{Role, Theme};
use super::units::{Span, TimeOfDay};
use super::verdict::{events, words};

/// Column at which texts begin, after their labels.
const INDENT: u16 = 9;
/// Widest text that is still easy to read.
const WIDEST: u16 = 120;

/// Events that are listed at most.
const MOST_EVENTS: usize = 500;

/// A paragraph with a label before it.
#[derive(Debug)]
struct Paragraph {
    label: &'static str,
    text: String,
    role: Role,
    /// Whether it begins at the left edge.
    heads: bool,
}

/// The page.
#[derive(Debug, Default)]
pub(super) struct Page {
    open: bool,
    worded: Option<(Time, usize)>,
    paragraphs: Vec<Paragraph>,
}

impl Page {
    /// Words the findings, where the page is open and they are not worded yet.
    pub(super) fn prepare(&mut self, data: &Data, timeline: &Timeline, open: bool, theme: Theme) {
        self.open = open;
        let diagnosis = timeline.diagnosis();
        let key = (diagnosis.at, timeline.spans().len());
        if !open || self.worded.replace(key) == Some(key) {
            return;
        }
        self.paragraphs.clear();
        for finding in &diagnosis.findings {
            self.finding(data, finding, diagnosis, theme);
        }
        if diagnosis.findings.is_empty() {
            self.add("", Role::Dim, "Nothing to judge from yet.".to_owned());
        }
        let events = events::lines(data, timeline, theme, (WIDEST, MOST_EVENTS));
        if !events.is_empty() {
            let text = "What came and went, newest first".to_owned();
            self.paragraphs.push(Paragraph { label: "", text, role: Role::Dim, heads: true });
        }
        for (role, text) in events {
            self.paragraphs.push(Paragraph { label: "", text, role, heads: true });
        }
        self.add("", Role::Dim, "Times are UTC. Enter or Esc closes, arrows scroll.".to_owned());
    }

    fn add(&mut self, label: &'static str, role: Role, text: String) {
        self.paragraphs.push(Paragraph { label, text, role, heads: false });
    }

    fn finding(&mut self, data: &Data, finding: &Finding, diagnosis: &Diagnosis, theme: Theme) {
        let held = Span(diagnosis.at.since(finding.since));
        let (mark, level) = (words::mark(theme, finding.severity), finding.severity.name());
        let of = events::subject(data, finding.subject, diagnosis);
        let since = TimeOfDay(finding.since);
        let text = format!("{mark} {level}  {}  {of}  since {since} ({held})", finding.cause.label());
        self.paragraphs.push(Paragraph { label: "", text, role: words::role(finding.severity), heads: true });
        self.add("what", Role::Text, finding.headline.full.clone());
        for (place, evidence) in finding.evidence.iter().enumerate() {
            let label = if place == 0 { "figures" } else { "" };
            self.add(label, Role::Text, format!("{} ({})", evidence.text, evidence.source));
        }
        self.add("rule", Role::Dim, finding.cause.rule().to_owned());
        for (place, fix) in finding.fixes.iter().enumerate() {
            self.add(if place == 0 { "fix" } else { "" }, Role::Text, all_of(fix, theme));
        }
        self.add("", Role::Text, String::new());
    }

    fn lay(&self, sheet: &mut Sheet<'_>, theme: Theme) {
        for Paragraph { label, text, role, heads } in &self.paragraphs {
            let indent = if *heads { 0 } else { INDENT };
            let label = (theme.style(Role::Dim), format_args!("{label}"));
            sheet.paragraph(indent, label, (theme.style(*role), text));
        }
    }

    /// The last line that may be the first on `area`; `None` while the page is closed.
    pub(super) fn last_line(&self, area: Rect) -> Option<u16> {
        let mut sheet = Sheet::count(Rect { width: area.width.min(WIDEST), ..area }, 1);
        self.lay(&mut sheet, Theme::MONO);
        self.open.then(|| sheet.last_line())
    }

    /// Draws the page from its line `first` on.
    pub(super) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme, first: u16) {
        let area = Rect { width: area.width.min(WIDEST), ..area }.intersection(buf.area);
        self.lay(&mut Sheet::draw(buf, area, 1, first), theme);
    }
}

/// All that is known of a fix: what to do, which option to change, what that would bring, and the probe that settles it.
fn all_of(fix: &Fix, theme: Theme) -> String {
    let mut text = fix.text.full.clone();
    let change = words::fix(fix, theme).into_iter().next().filter(|change| *change != text);
    if let Some(change) = change {
        text = format!("{text} [{change}]");
    }
    let probe = fix.probe.and_then(|id| PROBES.iter().find(|probe| probe.spec.id == id));
    if let Some(probe) = probe {
        text = format!("{text} (p, then {} runs the probe {})", probe.spec.key, probe.spec.id);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Retention, Store};
    use crate::ui::verdict::tests::slow;

    fn rows(page: &Page, (width, height): (u16, u16), first: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        page.draw(&mut buf, area, Theme::FULL, first);
        let row = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        buf.content.chunks(usize::from(width)).map(|cells| row(cells).trim_end().to_owned()).collect()
    }

    fn page() -> Page {
        let (store, mut page) = (Store::new(Retention::HOUR), Page::default());
        page.prepare(&store.read(), &Timeline::showing(slow(), Vec::new()), true, Theme::FULL);
        page
    }

    #[test]
    fn each_finding_says_since_when_from_what_by_which_rule_and_what_would_help() {
        let all = rows(&page(), (120, 14), 0);
        let expected = [
            "▲ act  KV cache full  engine 0  since 00:00:00 (1 s)",
            "what     KV cache is full (99 %): 220 requests wait, 1.9 preemptions/s",
            "figures  220 requests wait (engine)",
            "rule     Requests wait or are preempted while one more running request would not fit into the KV cache.",
            "fix      give the KV cache more of the GPU's memory [--gpu-memory-utilization 0.25 → 0.9: 101 GiB unused, room for 4.6",
            "         times the tokens] (p, then k runs the probe kvload)",
        ];
        assert_eq!(all[..4], expected[..4]);
        assert!(all[4].starts_with("fix      give the KV") && all[5].contains("(p, then "), "{all:#?}");
        assert!(all.iter().any(|row| row.starts_with("● watch  power cap  GPU 0")), "{all:#?}");
    }

    #[test]
    fn it_scrolls_to_its_last_line_and_no_further() {
        let page = page();
        let last = page.last_line(Rect::new(0, 0, 60, 6)).unwrap();
        assert!(last > 4);
        assert!(rows(&page, (60, 6), last)[5].ends_with("scroll."));
        assert!(!rows(&page, (60, 6), last - 1)[5].ends_with("scroll."));
        assert_eq!(page.last_line(Rect::new(0, 0, 120, 60)), Some(0));
    }

    #[test]
    fn any_area_will_do() {
        let page = page();
        for area in [Rect::ZERO, Rect::new(0, 0, 3, 3), Rect::new(0, 0, 300, 300), Rect::new(u16::MAX - 1, 9, 1, 1)] {
            for first in [0, 5, u16::MAX] {
                page.draw(&mut Buffer::empty(Rect::new(0, 0, 20, 5)), area, Theme::FULL, first);
            }
        }
    }
}
