//! Latencies of all levels beside each other, as shades of text: a column a level, rows on a log scale.
//!
//! It must not know levels' other figures. Invariant: a shade is the share of its own level, so that a level with few
//! requests is as dark as one with many; a level of which nothing is known has a dash and no shade.

use std::fmt::Write as _;

use crate::load::Level;
use crate::load::buckets;
use crate::load::level::Slice;
use crate::probe::page::number;

/// Rows at most.
const ROWS: usize = 14;
/// Columns beside each other at most.
const COLUMNS: usize = 12;
/// Width of the row's name, and of a column.
const NAME: usize = 18;
const WIDTH: usize = 8;
/// Shares from which on each shade is used.
const SHADES: [(f64, char); 4] = [(0.5, '█'), (0.25, '▓'), (0.1, '▒'), (0.0, '░')];

/// What falls into which bucket in a piece.
type Counts = fn(&Slice) -> &[(u16, u32)];

/// Appends the maps of TTFT and E2E.
pub(super) fn maps(out: &mut String, levels: &[&Level]) {
    let kinds: [(&str, Counts); 2] = [("TTFT", |slice| &slice.ttft), ("E2E", |slice| &slice.e2e)];
    let before = out.len();
    for (what, counts) in kinds {
        for some in levels.chunks(COLUMNS) {
            map(out, what, some, counts);
        }
    }
    if out.len() > before {
        out.push_str(
            "Share of a level's requests: ░ some, ▒ from 10 %, ▓ from 25 %, █ from 50 %; – nothing measured.\n\n",
        );
    }
}

/// The buckets of a level, all pieces together.
fn total(level: &Level, counts: Counts) -> Vec<(usize, u64)> {
    let all = level.slices.iter().flat_map(counts);
    all.filter(|(_, n)| *n > 0).map(|&(bucket, n)| (usize::from(bucket), u64::from(n))).collect()
}

fn map(out: &mut String, what: &str, levels: &[&Level], counts: Counts) {
    let columns: Vec<_> = levels.iter().map(|level| total(level, counts)).collect();
    let buckets = || columns.iter().flatten().map(|(bucket, _)| *bucket);
    let (Some(least), Some(most)) = (buckets().min(), buckets().max()) else { return };
    // Whole fractions of a doubling, or whole doublings.
    let each = [1, 2, 4, 8, 16, 32].into_iter().find(|each| most / each - least / each < ROWS).unwrap_or(64);
    out.push_str("```text\n");
    let mut line = format!("{:<NAME$}", format!("{what}, ms"));
    for level in levels {
        let _ = write!(line, "{:>WIDTH$}", short(level));
    }
    let _ = writeln!(out, "{}", line.trim_end());
    for row in (least / each..=most / each).rev() {
        let mut line = format!("{:<NAME$}", span(row * each, (row + 1) * each - 1));
        for column in &columns {
            let shade = shade(column, row, each, row == least / each);
            let _ = write!(line, "{shade:>WIDTH$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push_str("```\n\n");
}

/// A level's name without words.
fn short(level: &Level) -> String {
    let name = super::name(level);
    name.replace(" users", "").replace(" user", "").replace(" requests/s", "/s").replace(" #", "#")
}

/// What the buckets from `first` to `last` hold: "8.2 – 9.0".
fn span(first: usize, last: usize) -> String {
    let edges = buckets::edges();
    let ms = |edge: usize| edges.get(edge).map(|edge| number(Some(edge * 1000.0)));
    let lo = first.checked_sub(1).and_then(ms).unwrap_or_else(|| "0".to_owned());
    ms(last).map_or_else(|| format!("{lo} and more"), |hi| format!("{lo} – {hi}"))
}

/// Three characters for a row of a level.
fn shade(column: &[(usize, u64)], row: usize, each: usize, lowest: bool) -> String {
    let all: u64 = column.iter().map(|(_, n)| n).sum();
    let here: u64 = column.iter().filter(|(bucket, _)| bucket / each == row).map(|(_, n)| n).sum();
    if all == 0 {
        return if lowest { "–".to_owned() } else { String::new() };
    }
    let share = here as f64 / all as f64;
    let shade = SHADES.iter().find(|(from, _)| here > 0 && share >= *from);
    shade.map_or_else(|| "·".to_owned(), |(_, shade)| shade.to_string().repeat(3))
}
