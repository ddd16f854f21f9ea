//! The whole screen: panes in their places and what surrounds them.
//!
//! `prepare` plans (again only when something the plan depends on has changed) and copies from the
//! store; `draw` is pure and allocates nothing. It must not read a clock or change the app.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::{App, Cost};
use crate::diagnosis::{Slo, Timeline};
use crate::log::LogLine;
use crate::probe::board::Board;
use crate::store::Data;

use super::chrome::{self, Chrome};
use super::evidence::Page;
use super::held::Held;
use super::help;
use super::layout::{Plan, Wish};
use super::log::LogPage;
use super::pane::{Context, Pane, PaneSpec};
use super::panes;
use super::shade::Shade;
use super::text::to_ascii;
use super::theme::Theme;
use super::verdict::Verdict;

/// The screen.
pub struct Screen {
    theme: Theme,
    specs: &'static [PaneSpec],
    panes: Vec<Box<dyn Pane>>,
    chrome: Chrome,
    timeline: Timeline,
    verdict: Verdict,
    evidence: Page,
    log: LogPage,
    /// Whether the help is open.
    helping: bool,
    shade: Shade,
    held: Held,
    wish: Option<Wish>,
    plan: Plan,
}

impl Screen {
    /// A screen with these panes.
    pub fn new(theme: Theme, specs: &'static [PaneSpec]) -> Self {
        let panes = specs.iter().map(|spec| (spec.new)()).collect();
        Self {
            theme,
            specs,
            panes,
            chrome: Chrome::default(),
            timeline: Timeline::default(),
            verdict: Verdict::default(),
            evidence: Page::default(),
            log: LogPage::default(),
            helping: false,
            shade: Shade::default(),
            held: Held::default(),
            wish: None,
            plan: Plan::default(),
        }
    }

    /// Judges by these objectives from now on.
    pub fn judge_by(&mut self, slo: Slo) {
        self.timeline = Timeline::new(slo);
    }

    /// Columns and rows that the cursor moves on: those of the pane in focus, the only one that draws it.
    pub fn cursor_range(&self) -> Option<(u16, u16)> {
        let slot = self.plan.slots.iter().find(|slot| Some(slot.pane) == self.wish.map(|wish| wish.focus))?;
        let range = self.panes[slot.pane].cursor_range(slot.inside);
        let range = range.or_else(|| panes::cursor_range(self.specs[slot.pane].id, slot.inside));
        range.filter(|(columns, rows)| *columns > 0 && *rows > 0)
    }

    /// The last line that a pane can be scrolled to, if one shows something that can be.
    pub fn last_line(&self) -> Option<u16> {
        let of_pane = || self.plan.slots.iter().find_map(|slot| self.panes[slot.pane].last_line());
        let of_help = self.helping.then(|| help::last_line(self.page(), self.specs));
        let of_page = of_help.or_else(|| self.evidence.last_line(self.plan.body));
        let of_page = of_page.or_else(|| self.log.last_line(self.page()));
        of_page.or_else(of_pane)
    }

    /// Shows the lines of the log and where its file is; `None`: there is none.
    pub fn log(&mut self, log: Option<(&[LogLine], Result<&str, &str>)>) {
        self.log.fill(log);
    }

    /// Where a page goes that takes the place of the verdict too.
    const fn page(&self) -> Rect {
        let (header, body) = (self.plan.header, self.plan.body);
        let above = body.y.saturating_sub(header.y.saturating_add(header.height));
        Rect { y: body.y - above, height: body.height + above, ..body }
    }

    /// Whether a question to the user is on the screen, whole.
    pub fn asks(&self) -> bool {
        self.plan.slots.iter().any(|slot| self.panes[slot.pane].asks())
    }

    /// Shows where the probes stand to whichever pane wants to know; `None` where none can be run.
    pub fn probes(&mut self, board: Option<&Board>) {
        self.chrome.probes(board);
        self.panes.iter_mut().for_each(|pane| pane.probes(board));
    }

    /// Copies everything that will be drawn on `area`. `words` are notices from outside the store.
    pub fn prepare(&mut self, data: &Data, app: &App, area: Rect, cost: Cost, words: &[String]) {
        self.timeline.follow(data, app.view.end);
        self.chrome.prepare(data, app, cost, words);
        let mut wish = Wish {
            area,
            focus: app.focus,
            zoomed: app.zoomed,
            gpus: u16::try_from(app.seen.gpus.count_ones()).unwrap_or(u16::MAX),
            engines: u16::try_from(app.seen.engines.count_ones()).unwrap_or(u16::MAX),
            notices: self.chrome.notice_rows(area.width),
            verdict: 0,
        };
        let room = (area.width, wish.verdict_room());
        self.verdict.prepare(data, self.timeline.diagnosis(), app.view.engine, room, self.theme);
        wish.verdict = self.verdict.rows();
        if self.wish != Some(wish) {
            self.plan = Plan::make(&wish, self.specs);
            self.wish = Some(wish);
        }
        self.helping = app.help.is_some();
        self.log.open(app.log.is_some());
        self.evidence.prepare(data, &self.timeline, app.evidence.is_some(), self.theme);
        self.shade.fill(data, &app.view);
        self.held.fill(&self.timeline, &app.view);
        for slot in &self.plan.slots {
            let focused = slot.pane == app.focus;
            let context = Context { view: &app.view, theme: &self.theme, timeline: &self.timeline, focused };
            self.panes[slot.pane].prepare(data, &context, slot.inside);
        }
    }

    /// Draws what was prepared.
    pub fn draw(&self, buf: &mut Buffer, app: &App) {
        self.draw_parts(buf, app);
        if !self.theme.unicode() {
            to_ascii(buf);
        }
    }

    fn draw_parts(&self, buf: &mut Buffer, app: &App) {
        let (plan, theme) = (&self.plan, self.theme);
        self.chrome.draw_header(buf, plan.header, theme);
        self.chrome.draw_footer(buf, plan.footer, theme, app);
        if let Some(first) = app.help {
            help::draw(buf, self.page(), theme, self.specs, first);
            return;
        }
        if let Some(back) = app.log {
            self.log.draw(buf, self.page(), theme, back);
            return;
        }
        self.verdict.draw(buf, plan.verdict, theme);
        self.chrome.draw_host(buf, plan.host, theme);
        self.chrome.draw_engines(buf, plan.engines, theme);
        if let Some(first) = app.evidence {
            self.evidence.draw(buf, plan.body, theme, first);
            return;
        }
        let numbers = self.verdict.draw_brief(buf, plan.numbers, theme);
        self.chrome.draw_numbers(buf, numbers, theme);
        self.chrome.draw_notices(buf, plan.notices, theme);
        chrome::draw_tabs(buf, plan.tabs, theme, self.specs, app.focus);
        for slot in &plan.slots {
            let (pane, focused) = (&self.panes[slot.pane], slot.pane == app.focus);
            chrome::draw_frame(buf, slot, theme, self.specs[slot.pane].tab, pane.title(), focused);
            let context = Context { view: &app.view, theme: &self.theme, timeline: &self.timeline, focused };
            pane.draw(slot.inside, buf, &context);
            let plots = pane.timeline(slot.inside);
            self.shade.draw(buf, plots, theme, pane.of());
            if !plots.is_empty() {
                let cursor = app.view.cursor.filter(|_| focused).map(|(column, _)| column);
                self.held.draw(buf, pane.strip(slot.inside), theme, cursor);
            }
        }
    }
}
