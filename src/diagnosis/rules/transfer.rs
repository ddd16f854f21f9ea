//! Requests that wait for KV blocks which another node computed, or which lie in host memory.

use super::super::scene::{EngineScene, Scene};
use super::super::words::{Mem, Num, Secs, gb};
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use super::queue::{cost, counted};
use crate::derive::exposed::rate;
use crate::model::{Metric, Subject};
use crate::store::Window;

pub(super) const RULE: Rule = Rule { causes: &[Cause::WaitsForTransfer], judge };

/// Transfers are few: their figures are those of this long, ms.
const TRANSFERS_MS: u64 = 20_000;
/// Share of the transfer time that goes into posting it, from which on its many pieces are what takes long.
const POSTING: f64 = 0.4;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let read = scene.engines.iter().filter(|engine| engine.is_read() && engine.waits_for_transfer());
    findings.extend(read.map(|engine| of(scene, engine)));
}

/// Means of one transfer; zero transfers have none.
struct Transfer {
    seconds: f64,
    posting: Option<f64>,
    bytes: Option<f64>,
    pieces: Option<f64>,
}

impl Transfer {
    fn of(scene: &Scene<'_>, engine: &EngineScene) -> Option<Self> {
        let window = Window::last(scene.at, TRANSFERS_MS);
        let per_s = |metric| rate(scene.data, engine.index, metric, window).value();
        let transfers = per_s(Metric::KvTransfers).filter(|&n| n > 0.0)?;
        let each = |metric| per_s(metric).map(|total| total / transfers);
        Some(Self {
            seconds: each(Metric::KvTransferTime)?,
            posting: each(Metric::KvTransferPostTime),
            bytes: each(Metric::KvTransferBytes),
            pieces: each(Metric::KvTransferDescriptors),
        })
    }

    /// Share of its time that goes into posting it.
    fn posting_share(&self) -> Option<f64> {
        self.posting.filter(|_| self.seconds > 0.0).map(|posting| posting / self.seconds)
    }
}

fn of(scene: &Scene<'_>, engine: &EngineScene) -> Finding {
    let waiting = engine.waiting_for_kv.unwrap_or(0.0);
    let transfer = Transfer::of(scene, engine);
    let posts = transfer.as_ref().and_then(Transfer::posting_share).filter(|&share| share >= POSTING);
    let how = posts.map_or_else(String::new, |share| {
        format!(
            "; {:.0} % of a transfer goes into posting its many small pieces, so the link is not what is slow",
            share * 100.0
        )
    });
    let words = Sentence::new(
        format!("{} requests wait for KV blocks from another node or from host memory{how}", Num(waiting)),
        format!("{} wait for KV transfer", Num(waiting)),
    );
    let mut finding =
        Finding::new(Subject::Engine(engine.index), Cause::WaitsForTransfer, Severity::Act, cost(engine), words).shows(
            ("waiting_by_reason.kv_fetch", "requests", "engine"),
            Some(waiting),
            |n| format!("{} requests wait for KV from elsewhere", Num(n)),
        );
    if let Some(transfer) = &transfer {
        finding = shown(finding, transfer);
    }
    let finding = finding.shows(("prompt_tokens_external", "%", "engine"), external_pct(scene, engine), |pct| {
        format!("{pct:.1} % of the prompt tokens come from elsewhere")
    });
    counted(finding, engine).fix(if posts.is_some() {
        Fix::todo(
            "Make the pieces larger (larger KV blocks, a layout that keeps a block's layers together) or use a transport that posts them in bulk",
            "fewer, larger pieces",
        )
    } else {
        Fix::todo(
            "Look at the link between the nodes; more room for running requests does not help",
            "look at the link between nodes",
        )
    })
}

/// Share of the prompt tokens whose KV came from outside, %; `None` where none did.
fn external_pct(scene: &Scene<'_>, engine: &EngineScene) -> Option<f64> {
    let window = Window::last(scene.at, TRANSFERS_MS);
    let per_s = |metric| rate(scene.data, engine.index, metric, window).value().filter(|&rate| rate > 0.0);
    Some(per_s(Metric::PromptTokensExternal)? / per_s(Metric::PromptTokens)? * 100.0)
}

fn shown(finding: Finding, transfer: &Transfer) -> Finding {
    let speed = transfer.bytes.filter(|_| transfer.seconds > 0.0).map(|bytes| bytes / transfer.seconds);
    let piece = transfer.bytes.zip(transfer.pieces).filter(|(_, n)| *n > 0.0).map(|(bytes, n)| bytes / n);
    finding
        .shows(("kv_transfer_s", "s", "engine"), Some(transfer.seconds), |s| format!("a transfer takes {}", Secs(s)))
        .shows(("kv_transfer_post_s", "s", "engine"), transfer.posting, |s| {
            format!("posting it takes {} of that", Secs(s))
        })
        .shows(("kv_transfer_bytes", "bytes/s", "engine"), speed, |rate| format!("it moves {}", gb(rate)))
        .shows(("kv_transfer_bytes", "bytes", "engine"), transfer.bytes, |bytes| format!("it has {}", Mem(bytes)))
        .shows(("kv_transfer_descriptors", "bytes", "engine"), piece, |bytes| {
            format!("in pieces of {:.0} kB", bytes / 1e3)
        })
}
