//! The KV pool as a bar: live, tail, reserved, cached, free, each a character and a colour of its own.
//!
//! It must not know where the split comes from. Invariant: what is there at all takes at least a column.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::derive::kv::Kv;
use crate::model::Reading;
use crate::ui::text::put;
use crate::ui::theme::{Role, Theme};

/// A part of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ui::panes) enum Part {
    /// Holds state of live requests.
    Live,
    /// Held and empty.
    Tail,
    /// Set aside.
    Reserved,
    /// Kept for reuse.
    Cached,
    /// Holds nothing, or is not told apart from what is cached.
    Free,
}

impl Part {
    /// Its character.
    pub(in crate::ui::panes) const fn mark(self, theme: Theme) -> char {
        let (unicode, ascii) = match self {
            Self::Live => ('█', '#'),
            Self::Tail => ('▒', '%'),
            Self::Reserved => ('▓', '='),
            Self::Cached => ('░', ':'),
            Self::Free => ('·', '.'),
        };
        if theme.unicode() { unicode } else { ascii }
    }

    /// Its colour.
    pub(in crate::ui::panes) fn style(self, theme: Theme) -> Style {
        let colour = |role| theme.colour(role).map_or(Style::new(), |c| Style::new().fg(c));
        match self {
            Self::Live => colour(Role::Good),
            Self::Tail => theme.style(Role::Warn),
            Self::Reserved => colour(Role::Third),
            Self::Cached => colour(Role::Fourth),
            Self::Free => theme.style(Role::Border),
        }
    }
}

/// Shares of the pool, 0 to 1: of every part but what is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::ui::panes) struct Bar([(Part, f64); 4]);

impl Bar {
    /// The bar of a split, where it is known how much is held.
    pub(in crate::ui::panes) fn of(kv: &Kv) -> Option<Self> {
        let held = kv.usage_pct.value()? / 100.0;
        // Nothing held wastes nothing; where the tail is not known the held part is one.
        let tail = kv.tail_waste_pct.value().map_or(0.0, |share| held * share / 100.0);
        let pool = kv.pool_tokens.value().filter(|pool| *pool > 0.0);
        let of_pool = |tokens: Reading| tokens.value().zip(pool).map_or(0.0, |(tokens, pool)| tokens / pool);
        let reserved = of_pool(kv.reserved_tokens);
        let live = held - tail - if kv.reserved_in_held { reserved } else { 0.0 };
        Some(Self([
            (Part::Live, live),
            (Part::Tail, tail),
            (Part::Reserved, reserved),
            (Part::Cached, of_pool(kv.cached_tokens)),
        ]))
    }

    /// The part in each column. Ends are rounded; a part too small for a column takes one from the part
    /// before it, where that has two.
    fn column(&self, x: u16, width: u16) -> Part {
        let (mut share, mut start) = (0.0, 0);
        let rounded = |share: f64| (share * f64::from(width)).round() as u16;
        let parts = || self.0.iter().filter(|(_, of_pool)| *of_pool > 0.0);
        for (i, &(part, of_pool)) in parts().enumerate() {
            share += of_pool;
            let mut end = rounded(share).max(start + 1);
            let next = parts().nth(i + 1).map(|(_, of_pool)| rounded(share + of_pool));
            if next.is_some_and(|next| next <= end) && end > start + 1 {
                end -= 1;
            }
            if x < end {
                return part;
            }
            start = end;
        }
        Part::Free
    }

    /// Draws it into the first row of `area`.
    pub(in crate::ui::panes) fn draw(&self, buf: &mut Buffer, area: Rect, theme: Theme) {
        for x in 0..area.width {
            let part = self.column(x, area.width);
            put(buf, area, (x, 0), part.style(theme), format_args!("{}", part.mark(theme)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shares: [f64; 4], width: u16) -> String {
        let parts = [Part::Live, Part::Tail, Part::Reserved, Part::Cached];
        let bar = Bar(std::array::from_fn(|i| (parts[i], shares[i])));
        (0..width).map(|x| bar.column(x, width).mark(Theme::FULL)).collect()
    }

    #[test]
    fn each_part_has_its_columns_and_none_is_lost() {
        assert_eq!(drawn([0.5, 0.0, 0.0, 0.0], 10), "█████·····");
        assert_eq!(drawn([0.3, 0.1, 0.2, 0.1], 10), "███▒▓▓░···");
        assert_eq!(drawn([0.001, 0.001, 0.001, 0.001], 10), "█▒▓░······");
        assert_eq!(drawn([0.237, 0.003, 0.0, 0.0], 100).matches(['█', '▒']).count(), 24);
        assert_eq!(drawn([0.99, 0.01, 0.0, 0.0], 10), "█████████▒");
        assert_eq!(drawn([0.0; 4], 10), "··········");
        assert_eq!(drawn([1.0, 0.0, 0.0, 0.0], 0), "");
    }
}
