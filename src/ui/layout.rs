//! Which pane goes where: a plan for a size, a focus and a set of panes.
//!
//! It knows no pane's content. Breakpoints are meanings, not percentages: a grid of everything, three
//! panes, one pane, one line of numbers. Invariant: the plan's areas are disjoint and inside the screen.

use ratatui::layout::{Rect, Size};

use super::pane::PaneSpec;

/// Smallest size of the grid.
pub const GRID: (u16, u16) = (120, 35);
/// Smallest size of three panes.
pub const THREE: (u16, u16) = (80, 24);
/// Smallest size of one pane with tabs.
pub const ONE: (u16, u16) = (40, 8);

/// The largest screen that is drawn. An 8K display with characters of four by eight pixels has 1,920 × 540; a terminal may
/// say 65,535 × 65,535, whose cells no memory holds. The two pictures of a screen of this size take 100 MB.
const LARGEST: (u16, u16) = (2_000, 600);

/// What is drawn of a terminal of this size: all of it, or its upper left part.
pub fn drawn(terminal: Size) -> Rect {
    Rect::new(0, 0, terminal.width.min(LARGEST.0), terminal.height.min(LARGEST.1))
}

/// Smallest height with a frame: around fewer rows it would be all frame, and only its title line stays.
const FRAMED: u16 = 7;

/// Rows of eight GPUs with title and head.
const EIGHT_GPUS: u16 = 10;

/// Height that a plot in the grid should have, and rows that strip and table take beside the plots.
const PLOT: u16 = 12;
const AROUND: u16 = 16;

/// Least height of a screen, and the most rows of the verdict on it.
const VERDICT: [(u16, u16); 5] = [(40, 6), (24, 5), (20, 4), (14, 3), (10, 2)];
/// Least height of a pane that shows something.
const LEAST_PANE: u16 = 5;

/// The pane that is a strip over the full width, as high as there are GPUs.
const STRIP: &str = "gpu_strip";
/// The panes side by side at the bottom of the grid: words and a table, which share no time axis.
const BELOW: [&str; 3] = ["diagnosis", "processes", "probes"];
/// The one of them that is a list, and the rows that it takes with a sentence above it.
const LIST: &str = "probes";
const LIST_ROWS: u16 = 14;
/// The one of them that gives way to the third when that has the focus and there is no room for all.
const GIVES_WAY: &str = "diagnosis";
/// The panes of a GPU and those of an engine: where there is none but the other, they leave the screen to those that can
/// have figures, unless they have the focus.
const OF_GPU: [&str; 3] = [STRIP, "sm_dram", "clocks"];
const OF_ENGINE: [&str; 5] = ["latency", "queue_kv", "concurrency", "kv", "sweep"];
/// Width from which three of them have room.
const THREE_BELOW: u16 = 160;

/// What the plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The screen.
    pub area: Rect,
    /// Place of the pane in focus.
    pub focus: usize,
    /// Whether it has the screen for itself.
    pub zoomed: bool,
    /// Number of GPUs.
    pub gpus: u16,
    /// Number of engines.
    pub engines: u16,
    /// Rows that notices want.
    pub notices: u16,
    /// Rows that the verdict wants.
    pub verdict: u16,
}

impl Wish {
    /// Whether a pane can have figures, as far as is known.
    fn can_show(&self, pane: &PaneSpec) -> bool {
        match (self.gpus, self.engines) {
            (0, 1..) => !OF_GPU.contains(&pane.id),
            (1.., 0) => !OF_ENGINE.contains(&pane.id),
            _ => true,
        }
    }

    /// Rows that the verdict may take: what is left beside the GPUs and the least height of a pane.
    pub fn verdict_room(&self) -> u16 {
        let (width, height) = (self.area.width, self.area.height);
        if width < ONE.0 || height < ONE.1 {
            return 0;
        }
        let most = VERDICT.iter().find(|(least, _)| height >= *least).map_or(1, |(_, most)| *most);
        let others = if width >= THREE.0 && height >= THREE.1 {
            let notices = self.notices.min(height / 4);
            // Header, host, footer, tabs.
            4 + u16::from(self.engines > 1) + notices + strip_rows(self.gpus).min(EIGHT_GPUS) + LEAST_PANE
        } else {
            2 + LEAST_PANE
        };
        height.saturating_sub(others).clamp(1, most)
    }
}

/// A pane's place on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Place of the pane in the table of panes.
    pub pane: usize,
    /// With its frame.
    pub area: Rect,
    /// The pane itself.
    pub inside: Rect,
}

/// The screen, divided. An empty area is not drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What runs where, and how old the data are.
    pub header: Rect,
    /// What is wrong, and what would help.
    pub verdict: Rect,
    /// The machine's own figures.
    pub host: Rect,
    /// The engines, where there are several.
    pub engines: Rect,
    /// What is missing, and why.
    pub notices: Rect,
    /// Names of the panes.
    pub tabs: Rect,
    /// All between header and footer: the help screen goes here.
    pub body: Rect,
    /// The panes on screen.
    pub slots: Vec<Slot>,
    /// Keys and own cost.
    pub footer: Rect,
    /// Numbers only: the screen is too small for a pane.
    pub numbers: Rect,
}

/// Cuts `rows` off the top of `rest`.
fn top(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    let cut = Rect { height: rows, ..*rest };
    *rest = Rect { y: rest.y + rows, height: rest.height - rows, ..*rest };
    cut
}

/// Cuts `rows` off the bottom of `rest`.
fn bottom(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    rest.height -= rows;
    Rect { y: rest.bottom(), height: rows, ..*rest }
}

/// Halves side by side.
fn halves(area: Rect) -> [Rect; 2] {
    let width = area.width / 2;
    [Rect { width, ..area }, Rect { x: area.x + width, width: area.width - width, ..area }]
}

impl Plan {
    /// Divides the screen.
    pub fn make(wish: &Wish, panes: &[PaneSpec]) -> Self {
        let mut rest = wish.area;
        let mut plan = Self::default();
        if rest.width < ONE.0 || rest.height < ONE.1 {
            plan.body = rest;
            plan.numbers = rest;
            return plan;
        }
        let fits = |(w, h): (u16, u16)| wish.area.width >= w && wish.area.height >= h;
        let (grid, three) = (fits(GRID) && !wish.zoomed, fits(THREE) && !wish.zoomed);
        plan.header = top(&mut rest, 1);
        plan.verdict = top(&mut rest, wish.verdict.min(wish.verdict_room()));
        if fits(THREE) {
            plan.host = top(&mut rest, 1);
            plan.engines = top(&mut rest, u16::from(wish.engines > 1));
        }
        if rest.height >= 10 {
            plan.footer = bottom(&mut rest, 1);
        }
        plan.body = rest;
        // Notices must not eat up the panes.
        let quarter = rest.height / 4;
        plan.notices = top(&mut rest, wish.notices.min(quarter));
        if grid {
            plan.grid(rest, wish, panes);
        } else {
            plan.tabs = top(&mut rest, 1);
            if three {
                plan.three(rest, wish, panes);
            } else if wish.focus < panes.len() {
                plan.slot(wish.focus, rest);
            }
        }
        plan
    }

    fn slot(&mut self, pane: usize, area: Rect) {
        self.place(pane, area, area.height >= FRAMED);
    }

    fn place(&mut self, pane: usize, area: Rect, framed: bool) {
        let inside = if framed {
            Rect::new(area.x + 1, area.y + 1, area.width.saturating_sub(2), area.height.saturating_sub(2))
        } else {
            let mut inside = area;
            top(&mut inside, 1);
            inside
        };
        if !area.is_empty() {
            self.slots.push(Slot { pane, area, inside });
        }
    }

    /// One to three panes in a row.
    fn row(&mut self, panes: &[usize], area: Rect) {
        match *panes {
            [one] => self.slot(one, area),
            [left, right] => {
                let [l, r] = halves(area);
                self.slot(left, l);
                self.slot(right, r);
            }
            [left, middle, right] => {
                let width = area.width / 3;
                let (l, rest) = (Rect { width, ..area }, Rect { x: area.x + width, width: area.width - width, ..area });
                let [m, r] = halves(rest);
                self.slot(left, l);
                self.slot(middle, m);
                self.slot(right, r);
            }
            _ => {}
        }
    }

    fn strip(&mut self, rest: &mut Rect, wish: &Wish, panes: &[PaneSpec]) {
        if let Some(strip) = panes.iter().position(|p| p.id == STRIP && wish.can_show(p)) {
            // A head and a row for each GPU below the title, but no more than half the screen unless it
            // takes that to show eight. A frame costs one row more, and no GPU its own.
            let bare = strip_rows(wish.gpus);
            let most = (rest.height / 2).max(rest.height.saturating_sub(LEAST_PANE).min(EIGHT_GPUS));
            let framed = bare >= FRAMED && bare < most;
            let area = top(rest, if framed { bare + 1 } else { bare.min(most) });
            self.place(strip, area, framed);
        }
    }

    /// All panes, or where they do not fit: the page of plots that the focus belongs to, and tabs.
    fn grid(&mut self, mut rest: Rect, wish: &Wish, panes: &[PaneSpec]) {
        let plots = plots(wish, panes);
        let rows = (rest.height.saturating_sub(AROUND) / PLOT).max(2);
        let page = usize::from(rows) * 2;
        if plots.len() > page {
            self.tabs = top(&mut rest, 1);
        }
        self.strip(&mut rest, wish, panes);
        let below = row_below(rest.width, wish.focus, panes);
        let below_area = if below.is_empty() { 0 } else { (rest.height / 4).max(7) };
        // A list that is looked at needs more rows than one that is glanced at.
        let listed = panes.get(wish.focus).is_some_and(|pane| pane.id == LIST);
        let below_area = below_area.max(if listed { (rest.height / 3).min(LIST_ROWS) } else { 0 });
        let below_area = bottom(&mut rest, below_area);
        let mut pages = plots.chunks(page);
        let shown = pages.find(|page| page.contains(&wish.focus)).or_else(|| plots.chunks(page).next());
        let shown = shown.unwrap_or_default();
        let rows = u16::try_from(shown.len().div_ceil(2)).unwrap_or(u16::MAX);
        for (i, pair) in (0_u16..).zip(shown.chunks(2)) {
            let height = rest.height / (rows - i);
            let area = top(&mut rest, height);
            self.row(pair, area);
        }
        self.row(&below, below_area);
    }

    /// The strip, and the pair of panes that the focus belongs to.
    fn three(&mut self, mut rest: Rect, wish: &Wish, panes: &[PaneSpec]) {
        self.strip(&mut rest, wish, panes);
        let mut others = plots(wish, panes);
        others.extend(panes_below(panes));
        let shown = others.chunks(2).find(|pair| pair.contains(&wish.focus)).or_else(|| others.chunks(2).next());
        let Some(pair) = shown else { return };
        if rest.height >= 14 && pair.len() == 2 {
            // One above the other: both on the same time axis, column by column.
            let half = rest.height / 2;
            let upper = top(&mut rest, half);
            self.slot(pair[0], upper);
            self.slot(pair[1], rest);
        } else {
            self.row(pair, rest);
        }
    }
}

/// Rows of the strip without a frame.
fn strip_rows(gpus: u16) -> u16 {
    gpus.max(1).saturating_add(2)
}

/// The panes on the time axis.
fn plots(wish: &Wish, panes: &[PaneSpec]) -> Vec<usize> {
    let plots = |&i: &usize| panes[i].id != STRIP && !BELOW.contains(&panes[i].id);
    (0..panes.len()).filter(plots).filter(|&i| i == wish.focus || wish.can_show(&panes[i])).collect()
}

/// The panes at the bottom of a grid of this width: the one in focus is among them, if it is one of theirs.
fn row_below(width: u16, focus: usize, panes: &[PaneSpec]) -> Vec<usize> {
    let mut below: Vec<_> = panes_below(panes).collect();
    if below.len() > 2 && width < THREE_BELOW {
        let goes = if below.last() == Some(&focus) {
            below.iter().position(|&pane| panes[pane].id == GIVES_WAY).unwrap_or(0)
        } else {
            below.len() - 1
        };
        below.remove(goes);
    }
    below
}

fn panes_below(panes: &[PaneSpec]) -> impl Iterator<Item = usize> {
    (0..panes.len()).filter(|&i| BELOW.contains(&panes[i].id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ui::pane::{Context, Pane};

    struct Nothing;
    impl Pane for Nothing {
        fn prepare(&mut self, _: &crate::store::Data, _: &Context<'_>, _: Rect) {}
        fn title(&self) -> &'static str {
            ""
        }
        fn draw(&self, _: Rect, _: &mut ratatui::buffer::Buffer, _: &Context<'_>) {}
    }

    const fn spec(id: &'static str) -> PaneSpec {
        PaneSpec { id, tab: id, help: "", new: || Box::new(Nothing) }
    }
    const SEVEN: [PaneSpec; 7] = [
        spec(STRIP),
        spec("sm_dram"),
        spec("latency"),
        spec("clocks"),
        spec("queue_kv"),
        spec("diagnosis"),
        spec("processes"),
    ];

    fn wish(width: u16, height: u16) -> Wish {
        Wish {
            area: Rect::new(0, 0, width, height),
            focus: 2,
            zoomed: false,
            gpus: 1,
            engines: 1,
            notices: 0,
            verdict: 0,
        }
    }
    fn shown(plan: &Plan) -> Vec<usize> {
        plan.slots.iter().map(|s| s.pane).collect()
    }

    #[test]
    fn the_size_decides_what_is_shown() {
        assert_eq!(shown(&Plan::make(&wish(120, 35), &SEVEN)), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shown(&Plan::make(&wish(119, 35), &SEVEN)), [0, 1, 2]);
        assert_eq!(shown(&Plan::make(&wish(80, 24), &SEVEN)), [0, 1, 2]);
        assert_eq!(shown(&Plan::make(&wish(79, 24), &SEVEN)), [2]);
        assert_eq!(shown(&Plan::make(&wish(40, 8), &SEVEN)), [2]);
        let small = Plan::make(&wish(39, 8), &SEVEN);
        assert!(small.slots.is_empty() && small.numbers == Rect::new(0, 0, 39, 8));
    }

    #[test]
    fn panes_that_cannot_have_figures_leave_the_screen_to_those_that_can() {
        let plan = |gpus, engines, focus| Plan::make(&Wish { focus, gpus, engines, ..wish(120, 35) }, &SEVEN);
        assert_eq!(shown(&plan(0, 1, 2)), [2, 4, 5, 6], "no GPU");
        assert_eq!(shown(&plan(1, 0, 1)), [0, 1, 3, 5, 6], "no engine");
        assert_eq!(shown(&plan(1, 0, 2)), [0, 1, 2, 3, 5, 6], "what has the focus says why it is empty");
        assert_eq!(shown(&plan(0, 0, 2)), [0, 1, 2, 3, 4, 5, 6], "nothing is known yet");
        let three = Plan::make(&Wish { gpus: 0, ..wish(80, 24) }, &SEVEN);
        assert_eq!(shown(&three), [2, 4]);
    }

    #[test]
    fn plots_that_do_not_fit_have_a_page_of_their_own() {
        let mut eight = SEVEN.to_vec();
        eight.push(spec("concurrency"));
        let plan = |focus, height| Plan::make(&Wish { focus, ..wish(140, height) }, &eight);
        assert_eq!(shown(&plan(2, 45)), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shown(&plan(7, 45)), [0, 7, 5, 6]);
        assert_eq!((plan(7, 45).tabs.height, plan(7, 45).slots[1].area.width), (1, 140));
        assert_eq!(shown(&plan(7, 60)), [0, 1, 2, 3, 4, 7, 5, 6], "three rows");
        assert!(plan(7, 60).tabs.is_empty(), "all is on screen");
    }

    #[test]
    fn a_third_pane_below_shows_where_there_is_room_or_it_has_the_focus() {
        let mut eight = SEVEN.to_vec();
        eight.push(spec("probes"));
        let plan = |focus, width| Plan::make(&Wish { focus, ..wish(width, 45) }, &eight);
        assert_eq!(shown(&plan(2, 140)), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shown(&plan(7, 140)), [0, 1, 2, 3, 4, 6, 7]);
        assert_eq!(shown(&plan(2, 160)), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(plan(7, 140).slots[6].inside.height >= 11, "{:?}", plan(7, 140).slots);
        assert!(plan(2, 160).slots.iter().all(|slot| slot.area.width >= 53));
    }

    #[test]
    fn eight_gpus_fit_into_80_by_24() {
        for (notices, engines) in [(0, 1), (1, 1), (2, 1), (0, 3), (1, 3)] {
            let plan = Plan::make(&Wish { gpus: 8, notices, engines, verdict: 4, ..wish(80, 24) }, &SEVEN);
            assert!(plan.verdict.height >= 1);
            // One more for the head.
            assert!(plan.slots[0].inside.height >= 9, "{:?}", plan.slots[0]);
            assert_eq!(shown(&plan), [0, 1, 2]);
            assert!(plan.slots[1].inside.height >= 4, "{:?}", plan.slots[1]);
        }
    }

    #[test]
    fn the_focus_is_always_on_screen() {
        for focus in 0..7 {
            for (w, h) in [(120, 35), (80, 24), (60, 20), (40, 8)] {
                for zoomed in [false, true] {
                    let plan = Plan::make(&Wish { focus, zoomed, ..wish(w, h) }, &SEVEN);
                    assert!(shown(&plan).contains(&focus), "pane {focus} at {w}x{h}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn areas_are_disjoint_and_inside(
            w in 0_u16..400, h in 0_u16..150, focus in 0_usize..9, zoomed: bool,
            gpus in 0_u16..20, engines in 0_u16..20, notices in 0_u16..30, verdict in 0_u16..9, panes in 0_usize..=7,
        ) {
            let area = Rect::new(0, 0, w, h);
            let plan = Plan::make(&Wish { area, focus, zoomed, gpus, engines, notices, verdict }, &SEVEN[..panes]);
            let mut all = vec![plan.header, plan.verdict, plan.host, plan.engines, plan.notices, plan.tabs, plan.footer, plan.numbers];
            all.extend(plan.slots.iter().map(|s| s.area));
            for (i, a) in all.iter().enumerate() {
                prop_assert!(a.is_empty() || area.intersection(*a) == *a, "{a:?} leaves {area:?}");
                for b in &all[i + 1..] {
                    prop_assert!(a.is_empty() || b.is_empty() || !a.intersects(*b), "{a:?} and {b:?}");
                }
            }
            for slot in &plan.slots {
                prop_assert!(slot.inside.is_empty() || slot.area.intersection(slot.inside) == slot.inside);
            }
        }
    }
}
