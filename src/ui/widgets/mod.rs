//! Raster widgets: they turn columns of numbers into cells.
//!
//! They know bins, scales and the theme, not where a value comes from. Invariants: no allocation; total
//! for every `Rect`, also one outside the buffer; time runs to the right edge, one bin a step, so a
//! plot scrolls and never rescales in x; a column without data stays blank, while a measured zero
//! shows on the base line.

pub mod axes;
pub mod bars;
pub mod heatmap;
pub mod plot;
pub mod scale;

pub use axes::{Axes, TimeEnd, time_axis, value_axis_left, value_axis_right};
pub use bars::{Band, bands, meter, spark};
pub use heatmap::{Heatmap, pixel_rows, swatch};
pub use plot::{Area, Line, Plot};
pub use scale::Scale;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;

use crate::store::Bin;

/// The cell at column `x`, row `y` of `area`, if it is inside `area` and the buffer.
pub(super) fn cell(buf: &mut Buffer, area: Rect, (x, y): (u16, u16)) -> Option<&mut Cell> {
    if x >= area.width || y >= area.height {
        return None;
    }
    buf.cell_mut((area.x.checked_add(x)?, area.y.checked_add(y)?))
}

/// The bin of column `x` when the last of `bins` stands at the right edge of `columns` columns.
fn anchored(bins: &[Bin], columns: usize, x: usize) -> Option<&Bin> {
    bins.get((bins.len() + x).checked_sub(columns)?)
}
