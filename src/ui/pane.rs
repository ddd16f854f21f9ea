//! What a pane is. A new pane is one file in `panes/` and one line in its table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::app::View;
use crate::diagnosis::Timeline;
use crate::probe::board::Board;
use crate::store::Data;

use super::shade::Of;
use super::theme::Theme;

/// Everything a pane may look at besides the store.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What part of the data is shown.
    pub view: &'a View,
    /// Colours and characters.
    pub theme: &'a Theme,
    /// What is wrong, and what was before.
    pub timeline: &'a Timeline,
    /// Whether this pane has the focus (only then does it show a cursor).
    pub focused: bool,
}

/// A pane's description.
#[derive(Clone, Copy, Debug)]
pub struct PaneSpec {
    /// Name in tests, layouts and screenshots.
    pub id: &'static str,
    /// Short name for tabs.
    pub tab: &'static str,
    /// What it shows and how to read it: a sentence or two for the help screen.
    pub help: &'static str,
    /// Makes one.
    pub new: fn() -> Box<dyn Pane>,
}

/// A pane. `area` is always the inside, without the frame: the layout draws the frame and the title.
pub trait Pane {
    /// Shows it where the probes stand; `None` where none can be run. Only a pane of probes looks.
    fn probes(&mut self, _board: Option<&Board>) {}

    /// Copies what it will draw from the store into its own reused buffers, and words its title.
    /// The store is locked meanwhile: O(width) work, no IO. Allocation only while buffers grow.
    fn prepare(&mut self, data: &Data, context: &Context<'_>, area: Rect);

    /// The answer this pane gives, for its frame's title, e.g. "compute-bound: SM 81 %, DRAM 46 %".
    fn title(&self) -> &str;

    /// The rows of its plots inside `area`, the time axis as the last one: where the runs of probes are shaded.
    fn timeline(&self, _area: Rect) -> Rect {
        Rect::ZERO
    }

    /// The row below its time axis for what held when, as wide as its plots; empty where there is none.
    fn strip(&self, _area: Rect) -> Rect {
        Rect::ZERO
    }

    /// What the figures on its time axis are of.
    fn of(&self) -> Of {
        Of::Gpu
    }

    /// The last line that may be the first of what it shows in pages; `None` while it shows none.
    fn last_line(&self) -> Option<u16> {
        None
    }

    /// Columns and rows that a cursor moves on, where that depends on what the pane shows; `None` elsewhere.
    fn cursor_range(&self, _area: Rect) -> Option<(u16, u16)> {
        None
    }

    /// Whether it shows a question whole, with what a yes would cost.
    fn asks(&self) -> bool {
        false
    }

    /// Draws what was prepared. Total: any area, also one outside the buffer. No allocation.
    fn draw(&self, area: Rect, buf: &mut Buffer, context: &Context<'_>);
}
