//! Lines about KV memory that two panes share: the split in a row, over-provision, prefix cache.
//!
//! It must not know where on the screen they go. Estimates carry a `~`.

use crate::derive::kv::{Basis, Kv, UsedLength};
use crate::model::{Metric, Reading, Why};
use crate::ui::panes::notice::Lack;
use crate::ui::panes::row::Flow;
use crate::ui::theme::{Role, Theme};
use crate::ui::units::{Bytes, Decimals, FinePercent, Number, Partly, Percent, Restarts};

use super::bar::Part;
use super::words::{Tilde, Times, Tokens};

/// Sharing below this is within what the estimate of it is off by.
const SHARED: f64 = 1.2;

/// "█ live ~39.3k of 166k  ▒ tail waste ~1.2 % of held  · idle 76 %  (tail at most 2.4 %)".
pub(in crate::ui::panes) fn split(flow: &mut Flow<'_>, theme: Theme, kv: &Kv) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let mark = |part: Part| (part.style(theme), part.mark(theme));
    let tilde = Tilde(kv.live_tokens_is == Basis::Estimate);
    let (live_style, live) = mark(Part::Live);
    if kv.live_tokens.value().is_some() {
        let tokens = format_args!("{tilde}{}", Number(kv.live_tokens));
        let pool = format_args!(" of {}", Number(kv.pool_tokens));
        flow.part(&[(live_style, format_args!("{live} ")), (dim, format_args!("live ")), (text, tokens), (dim, pool)]);
    } else {
        let held = format_args!("{}", Percent(kv.usage_pct));
        flow.part(&[(live_style, format_args!("{live} ")), (dim, format_args!("held ")), (text, held)]);
    }
    if kv.tail_waste_pct.value().is_some() {
        let (style, tail) = mark(Part::Tail);
        let share = format_args!("{tilde}{}", FinePercent(kv.tail_waste_pct));
        let name = if kv.has_slots() { "tails of busy slots " } else { "tail waste " };
        let words = [(style, format_args!("{tail} ")), (dim, format_args!("{name}")), (text, share)];
        flow.gap(2).part(&[words[0], words[1], words[2], (dim, format_args!(" of held"))]);
    }
    for (part, name, tokens) in
        [(Part::Reserved, "reserved", kv.reserved_tokens), (Part::Cached, "cached", kv.cached_tokens)]
    {
        if tokens.value().is_some_and(|tokens| tokens > 0.0) {
            let (style, mark) = mark(part);
            let estimate = part == Part::Reserved && kv.reserved_is == Basis::Estimate;
            let value = format_args!("{}{}", Tilde(estimate), Number(tokens));
            flow.gap(2).part(&[(style, format_args!("{mark} ")), (dim, format_args!("{name} ")), (text, value)]);
        }
    }
    let (style, idle) = mark(Part::Free);
    let (name, share) = match kv.cached_tokens {
        Reading::Value(_) => ("free", free_share(kv)),
        Reading::Missing(_) => ("idle", kv.idle_pct),
    };
    let words =
        [(style, format_args!("{idle} ")), (dim, format_args!("{name} ")), (text, format_args!("{}", Percent(share)))];
    flow.gap(2).part(&words);
    if kv.tail_waste_pct.value().is_some() && kv.live_tokens_is == Basis::Estimate {
        flow.gap(2).fit(&[(dim, format_args!("(tail at most {})", FinePercent(kv.tail_waste_max_pct)))]);
    }
}

fn free_share(kv: &Kv) -> Reading {
    match (kv.free_tokens, kv.pool_tokens) {
        (Reading::Value(free), Reading::Value(pool)) if pool > 0.0 => Reading::new(free / pool * 100.0),
        _ => kv.idle_pct,
    }
}

/// "over-provision ~27×: max 32 768 tok, requests used P99 ~1195 (600–1200), n 881  fits 5.1 of max, 259 of the mean".
pub(in crate::ui::panes) fn overprovision(flow: &mut Flow<'_>, theme: Theme, kv: &Kv, kind: &str) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let max = match kv.max_model_len {
        Reading::Value(max) => max,
        Reading::Missing(why) => {
            let lack = Lack { kind, metric: Metric::MaxModelLen, why };
            flow.part(&[(dim, format_args!("max context: {lack}"))]);
            return;
        }
    };
    if let (Some(times), Some(length)) = (kv.overprovision_x.value(), kv.used_length) {
        let name = format_args!("over-provision ");
        let admits = format_args!(": max {} tok, ", Tokens(max));
        flow.part(&[(dim, name), (text, format_args!("~{}", Times(times))), (dim, admits)]);
        used(flow, theme, &length, kv);
    } else {
        flow.part(&[(dim, format_args!("max context {} tok", Tokens(max)))]);
        let why = if kv.used_mean.why() == Some(Why::Unsupported) {
            "lengths of requests are not exposed"
        } else {
            "too few requests finished to compare"
        };
        flow.part(&[(dim, format_args!("; {why}"))]);
    }
    if let Some(fit) = kv.full_length_requests.value() {
        flow.gap(2).part(&[(dim, format_args!("fits {} of max", Decimals(fit, 1)))]);
        if let Some(fit) = kv.mean_length_requests.value() {
            flow.part(&[(dim, format_args!(", {} of the mean", Decimals(fit, 0)))]);
        }
    }
}

/// "requests used P99 ~1194 (600–1200), n 400".
fn used(flow: &mut Flow<'_>, theme: Theme, length: &UsedLength, kv: &Kv) {
    let (partly, lives) = (Partly(kv.partial), Restarts(kv.used_lives));
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let name = format_args!("requests used P{:.0} ", length.q * 100.0);
    flow.part(&[(dim, name), (text, format_args!("~{}{partly}", Tokens(length.tokens)))]);
    let (lo, n) = (Tokens(length.lo), length.n);
    match length.hi {
        Some(hi) => flow.gap(1).part(&[(dim, format_args!("({lo}–{}), n {n}{lives}", Tokens(hi)))]),
        None => flow.gap(1).part(&[(dim, format_args!("(> {lo}), n {n}{lives}"))]),
    };
}

/// "prefix cache 12 % of looked-up prompt tokens found", and what has to be known to read that.
pub(in crate::ui::panes) fn prefix(flow: &mut Flow<'_>, theme: Theme, kv: &Kv, kind: &str) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let name = (dim, format_args!("prefix cache "));
    match kv.prefix_hit_pct {
        Reading::Value(_) => {
            let share = format_args!("{}{}", FinePercent(kv.prefix_hit_pct), Partly(kv.partial));
            flow.part(&[name, (text, share), (dim, format_args!(" of looked-up prompt tokens found"))]);
            if let Some(note) = kv.prefix_note {
                flow.gap(2).part(&[(theme.style(Role::Warn), format_args!("{}", note.head()))]);
                flow.gap(1).part(&[(dim, format_args!("{}", note.rest()))]);
            }
            flow
        }
        Reading::Missing(Why::NotYet) => flow.part(&[name, (dim, format_args!("not looked up in this window"))]),
        Reading::Missing(why) => {
            let lack = Lack { kind, metric: Metric::PrefixHits, why };
            flow.part(&[name, (dim, format_args!("{lack}"))])
        }
    };
}

/// "recomputed ~1.7k tok/s" and "sharing ~3.0×", "copies 2×": only where there is anything to say.
pub(in crate::ui::panes) fn losses(flow: &mut Flow<'_>, theme: Theme, kv: &Kv) {
    let (text, dim) = (theme.style(Role::Text), theme.style(Role::Dim));
    let warn = theme.style(Role::Warn);
    if kv.recomputed_per_s.value().is_some_and(|rate| rate > 0.0) {
        let (tilde, partly) = (Tilde(kv.recomputed_is == Basis::Estimate), Partly(kv.partial));
        let rate = format_args!("{tilde}{}{partly} tok/s", Number(kv.recomputed_per_s));
        flow.part(&[(dim, format_args!("recomputed after preemption ")), (warn, rate)]).gap(2);
    }
    if let Some(times) = kv.copies.value().filter(|times| *times > 1.0) {
        flow.part(&[(dim, format_args!("copies ")), (warn, format_args!("{}", Times(times)))]);
        if kv.copied_bytes(kv.held_tokens).value().is_some() {
            flow.part(&[(dim, format_args!(", {} of held repeat", Bytes(kv.copied_bytes(kv.held_tokens))))]);
        }
        flow.gap(2);
    }
    if let Some(times) = kv.sharing_x.value().filter(|times| *times >= SHARED) {
        let value = format_args!("{}{}", Tilde(kv.sharing_is == Basis::Estimate), Times(times));
        flow.part(&[(dim, format_args!("sharing ")), (text, value), (dim, format_args!(": requests share blocks"))]);
    }
}
