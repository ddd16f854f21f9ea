//! Rows of `metrics.jsonl.gz`: an engine's metrics as scraped, through the live program's adapters.

use std::path::Path;

use serde::Deserialize;
use warptop::engine::{self, Answers, Memory};
use warptop::model::{Batch, FactKey, Metric, SourceId, SourceState, Subject, Time};

use super::{host, rows};

const ENGINE: u8 = 0;
/// Where the bodies were read.
const PATH: &str = "/metrics";
/// It was scraped every second.
const VALID_MS: u32 = 3500;

#[derive(Deserialize)]
struct Row {
    unix_ms: u64,
    #[serde(default)]
    scrape_ms: f64,
    #[serde(default)]
    body: String,
}

/// All scrapes, and before them what the start-up log says.
pub(super) fn batches(dir: &Path) -> Result<Vec<Batch>, String> {
    let rows = rows::<Row>(dir, "metrics.jsonl.gz")?;
    let Some(adapter) = rows.iter().find_map(|row| engine::detect(PATH, &row.body)) else {
        if !rows.is_empty() {
            eprintln!("metrics.jsonl.gz: no adapter knows these bodies");
        }
        return Ok(Vec::new());
    };
    let log = std::fs::read_to_string(dir.join("vllm-start.log")).unwrap_or_default();
    let mut batches = vec![from_log(&log, Time(rows[0].unix_ms))];
    batches[0].fact(Subject::Engine(ENGINE), FactKey::Kind, adapter.spec().id);
    batches[0].fact(Subject::Engine(ENGINE), FactKey::Name, adapter.spec().name);
    let pids = host::pids(dir)?;
    if !pids.is_empty() {
        batches[0].fact(Subject::Engine(ENGINE), FactKey::Pids, &pids);
    }
    let (mut known, mut memory) = (Vec::new(), Memory::default());
    for row in &rows {
        let mut batch = Batch::new(SourceId::Engine(ENGINE), Time(row.unix_ms), VALID_MS);
        batch.took_us = (row.scrape_ms * 1000.0) as u32;
        if adapter.detect(PATH, &row.body) {
            adapter.translate(Answers::new(&[(PATH, &*row.body)]), ENGINE, &mut memory, &mut batch);
            engine::only_news(&mut batch.facts, &mut known);
        } else {
            batch.state = Some(SourceState::Failed("the scrape gave nothing".into()));
        }
        batches.push(batch);
    }
    Ok(batches)
}

/// URL, version, limits and the size of the KV pool, as vLLM logs them at its start.
fn from_log(log: &str, at: Time) -> Batch {
    let subject = Subject::Engine(ENGINE);
    let mut batch = Batch::new(SourceId::Engine(ENGINE), at, Batch::FOREVER);
    let after = |mark: &str| {
        let rest = log.split_once(mark)?.1;
        rest.split(|c: char| c.is_whitespace() || ",)}".contains(c)).next().filter(|word| !word.is_empty())
    };
    let number = |mark: &str| after(mark).and_then(|word| word.parse::<f64>().ok());
    batch.fact(subject, FactKey::Url, after("vLLM server on ").unwrap_or("imported"));
    if let Some(version) = after(" version ") {
        batch.fact(subject, FactKey::Version, version);
    }
    if let Some(length) = number("max_seq_len=") {
        batch.push(subject, Metric::MaxModelLen, length);
    }
    if let Some(cap) = number("'max_num_seqs': ") {
        batch.push(subject, Metric::RequestsCap, cap);
        batch.fact(subject, FactKey::RequestsCapSource, "start-up log: max_num_seqs");
    }
    let tokens = log.split_once("GPU KV cache size: ").and_then(|(_, rest)| rest.split_once(" tokens"));
    let tokens = tokens.and_then(|(number, _)| number.replace(',', "").parse::<f64>().ok());
    if let Some((gib, tokens)) = number("Available KV cache memory: ").zip(tokens) {
        batch.push(subject, Metric::KvBytesPerToken, gib * 1_073_741_824.0 / tokens);
        batch.fact(subject, FactKey::KvBytesSource, &format!("start-up log: {gib} GiB for {tokens} tokens"));
    }
    batch
}
