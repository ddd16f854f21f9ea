//! The log: a page of what happened to the program and its sources, the newest last.
//!
//! It words nothing itself. Invariant: drawing allocates nothing, whatever the rectangle.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::log::{LogLevel, LogLine};

use super::sheet::Sheet;
use super::theme::{Role, Theme};
use super::units::TimeOfDay;

/// Column at which texts begin, after the time of day.
const INDENT: u16 = 9;
/// Widest text that is still easy to read.
const WIDEST: u16 = 120;

/// What a page says where there is no log.
pub const NO_LOG: &str = "A replay has no log: it is kept where the machine is read.";

/// One line, ready to be drawn.
#[derive(Debug)]
struct Entry {
    time: String,
    text: String,
    role: Role,
}

/// The page.
#[derive(Debug, Default)]
pub(super) struct LogPage {
    open: bool,
    entries: Vec<Entry>,
    /// What stands below the lines.
    foot: String,
}

impl LogPage {
    /// Shows these lines, and where the file is; `None`: there is no log.
    pub(super) fn fill(&mut self, log: Option<(&[LogLine], Result<&str, &str>)>) {
        self.entries.clear();
        let place = match log {
            None => NO_LOG.to_owned(),
            Some((lines, place)) => {
                self.entries.extend(lines.iter().map(entry));
                place.map_or_else(|why| format!("No file: {why}."), |path| format!("File: {path}."))
            }
        };
        self.foot = format!("{place} Times are UTC. L or Esc closes, arrows scroll.");
    }

    /// Whether it is open.
    pub(super) const fn open(&mut self, open: bool) {
        self.open = open;
    }

    fn lay(&self, sheet: &mut Sheet<'_>, theme: Theme) {
        let dim = theme.style(Role::Dim);
        for Entry { time, text, role } in &self.entries {
            sheet.paragraph(INDENT, (dim, format_args!("{time}")), (theme.style(*role), text));
        }
        sheet.paragraph(0, (dim, format_args!("")), (dim, &self.foot));
    }

    fn count(&self, area: Rect) -> u16 {
        let mut sheet = Sheet::count(area, 1);
        self.lay(&mut sheet, Theme::MONO);
        sheet.last_line()
    }

    /// Lines above the last screenful; `None` while the page is closed.
    pub(super) fn last_line(&self, area: Rect) -> Option<u16> {
        self.open.then(|| self.count(Rect { width: area.width.min(WIDEST), ..area }))
    }

    /// Draws the page, scrolled up by `back` lines from its end.
    pub(super) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme, back: u16) {
        let area = Rect { width: area.width.min(WIDEST), ..area }.intersection(buf.area);
        let first = self.count(area).saturating_sub(back);
        self.lay(&mut Sheet::draw(buf, area, 1, first), theme);
    }
}

fn entry(line: &LogLine) -> Entry {
    let (level, subject, text) = (line.level.word(), &line.subject, line.text());
    let (role, text) = match line.level {
        LogLevel::Info => (Role::Text, format!("{subject}: {text}")),
        LogLevel::Warning | LogLevel::Error => (Role::Warn, format!("{level}, {subject}: {text}")),
    };
    Entry { time: TimeOfDay(line.at).to_string(), text, role }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Time;

    fn line(s: u64, level: LogLevel, subject: &str, words: &str, again: u64) -> LogLine {
        let at = Time(1_795_960_436_789 + s * 1000);
        LogLine { at, level, subject: subject.to_owned(), words: words.to_owned(), again }
    }

    fn page() -> LogPage {
        let lines = [
            line(0, LogLevel::Info, "warptop", "0.1.0 started as process 4711: warptop --engine gpu7:8000", 0),
            line(1, LogLevel::Info, "NVML", "ok", 0),
            line(3, LogLevel::Error, "engine 0", "connection refused at :8000: is it running?", 0),
            line(63, LogLevel::Error, "engine 0", "connection refused at :8000: is it running?", 59),
            line(64, LogLevel::Warning, "engine 1", "present, needs a key (HTTP 401)", 0),
            line(70, LogLevel::Info, "probe", "hbm began on gpu0 (run 20261129-135506-hbm-4711)", 0),
        ];
        let mut page = LogPage::default();
        page.open(true);
        page.fill(Some((&lines, Ok("/home/a/.local/state/warptop/warptop.log"))));
        page
    }

    fn rows(page: &LogPage, (width, height): (u16, u16), back: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        page.draw(&mut buf, area, Theme::MONO, back);
        let row = |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
        buf.content.chunks(usize::from(width)).map(|cells| row(cells).trim_end().to_owned()).collect()
    }

    #[test]
    fn it_is_read_at_three_sizes() {
        for size in [(38, 8), (78, 12), (118, 20)] {
            insta::assert_snapshot!(format!("log-{}x{}", size.0, size.1), rows(&page(), size, 0).join("\n"));
        }
    }

    #[test]
    fn the_newest_line_is_the_last_and_it_scrolls_to_the_first() {
        let page = page();
        let area = Rect::new(0, 0, 38, 8);
        let most = page.last_line(area).unwrap();
        assert!(rows(&page, (38, 8), 0)[7].ends_with("scroll."), "{:?}", rows(&page, (38, 8), 0));
        for back in [most, most + 9, u16::MAX] {
            assert!(rows(&page, (38, 8), back)[0].starts_with("13:53:56 warptop: 0.1.0"));
        }
        assert!(!rows(&page, (38, 8), most - 1)[0].starts_with("13:53:56"));
        let mut page = page;
        page.fill(None);
        assert!(rows(&page, (118, 2), 0)[0].starts_with(NO_LOG));
        page.open(false);
        assert_eq!(page.last_line(area), None);
    }

    #[test]
    fn any_area_will_do() {
        for area in [Rect::ZERO, Rect::new(0, 0, 3, 3), Rect::new(0, 0, 300, 300), Rect::new(u16::MAX - 1, 9, 1, 1)] {
            for back in [0, 5, u16::MAX] {
                page().draw(&mut Buffer::empty(Rect::new(0, 0, 20, 5)), area, Theme::MONO, back);
            }
        }
    }
}
