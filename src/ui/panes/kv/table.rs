//! The table of the parts of the pool, what the engine does not expose of them, and what the estimates rest on.

use crate::derive::kv::{Basis, Kv};
use crate::model::{Metric, Reading, Why};
use crate::ui::panes::notice::Lack;
use crate::ui::panes::row::Flow;
use crate::ui::text::columns;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Bytes, Decimals, FinePercent, Number};

use super::bar::Part;
use super::words::Tilde;

/// A row: a part of the pool.
struct Row {
    part: Part,
    name: &'static str,
    tokens: Reading,
    estimate: bool,
}

/// The parts that are known, in the order of the bar.
fn rows(kv: &Kv) -> [Row; 5] {
    let estimate = kv.live_tokens_is == Basis::Estimate;
    let (free, tokens) = match kv.cached_tokens {
        Reading::Value(_) => ("free", kv.free_tokens),
        Reading::Missing(_) => ("cached or free", kv.idle_tokens),
    };
    let tail = if kv.has_slots() { "tails of slots" } else { "tail" };
    [
        Row { part: Part::Live, name: "live", tokens: kv.live_tokens, estimate },
        Row { part: Part::Tail, name: tail, tokens: kv.tail_tokens, estimate },
        Row {
            part: Part::Reserved,
            name: "reserved",
            tokens: kv.reserved_tokens,
            estimate: kv.reserved_is == Basis::Estimate,
        },
        Row { part: Part::Cached, name: "cached", tokens: kv.cached_tokens, estimate: false },
        Row { part: Part::Free, name: free, tokens, estimate: false },
    ]
}

/// Writes a row for each part that is known.
pub(super) fn write(flow: &mut Flow<'_>, theme: Theme, kv: &Kv, kind: &str) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    for Row { part, name, tokens, estimate } in rows(kv) {
        // That an engine sets nothing aside is no news.
        if tokens.value().is_none() || part == Part::Reserved && tokens == Reading::Value(0.0) {
            continue;
        }
        let tilde = Tilde(estimate);
        let mark = (part.style(theme), format_args!("{} ", part.mark(theme)));
        flow.line().part(&[mark, (dim, format_args!("{name:<15}"))]);
        let blank = usize::from(8_u16.saturating_sub(columns(format_args!("{tilde}{}", Number(tokens)))));
        flow.fit(&[(text, format_args!("{:blank$}{tilde}{}", "", Number(tokens)))]);
        let share = tokens.value().zip(kv.pool_tokens.value()).filter(|(_, pool)| *pool > 0.0);
        if let Some((tokens, pool)) = share {
            flow.fit(&[(text, format_args!("{:>7}", FinePercent(Reading::new(tokens / pool * 100.0))))]);
        }
        if kv.bytes(tokens).value().is_some() {
            flow.fit(&[(text, format_args!("{:>10}", Bytes(kv.bytes(tokens))))]);
        }
        let note = if estimate { "estimate" } else { "exact" };
        flow.gap(2).fit(&[(dim, format_args!("{note}"))]);
        if part == Part::Tail && kv.tail_waste_pct.value().is_some() {
            let share = format_args!(", {tilde}{} of held", FinePercent(kv.tail_waste_pct));
            flow.fit(&[(dim, share)]);
            if estimate {
                flow.fit(&[(dim, format_args!(" (at most {})", FinePercent(kv.tail_waste_max_pct)))]);
            }
        }
        if part == Part::Free && kv.idle_slots.value().is_some() {
            let idle = (kv.idle_slots.value().unwrap_or(0.0), kv.slots.value().unwrap_or(0.0));
            flow.fit(&[(dim, format_args!(", {} of {} slots idle", Decimals(idle.0, 0), Decimals(idle.1, 0)))]);
        }
    }
    if let Some(why) = kv.usage_pct.why() {
        let lack = Lack { kind, metric: Metric::KvUsage, why };
        flow.line().part(&[(dim, format_args!("held: {lack}"))]);
    }
}

/// "not exposed by vLLM: reserved, bytes a token, copies".
pub(super) fn missing(flow: &mut Flow<'_>, theme: Theme, kv: &Kv, kind: &str) {
    let dim = theme.style(Role::Dim);
    let figures = [
        (kv.live_tokens, "live tokens"),
        (kv.tail_tokens, "tails"),
        (kv.reserved_tokens, "reserved"),
        (kv.cached_tokens, "cached apart from free"),
        (kv.recomputed_per_s, "recomputed tokens"),
        (kv.bytes_per_token, "bytes a token"),
        (kv.copies, "copies"),
    ];
    let mut unexposed = figures.into_iter().filter(|(reading, _)| reading.why() == Some(Why::Unsupported));
    let Some((_, first)) = unexposed.next() else { return };
    let name = crate::engine::name(kind).unwrap_or("this engine");
    flow.part(&[(dim, format_args!("not exposed by {name}: {first}"))]);
    for (_, figure) in unexposed {
        flow.part(&[(dim, format_args!(", {figure}"))]);
    }
}

/// A line for each estimate: what it assumes, and what would make it exact.
pub(super) fn estimates(flow: &mut Flow<'_>, theme: Theme, kv: &Kv, kind: &str) {
    let dim = theme.style(Role::Dim);
    for figure in kv.estimates() {
        flow.line().part(&[(dim, format_args!("~ {}:", figure.words()))]);
        flow.text(dim, figure.assumes()).part(&[(dim, format_args!(";"))]);
        flow.text(dim, "exact with:").text(dim, figure.to_be_exact(kind));
    }
}
