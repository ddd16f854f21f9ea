//! Rows of `metrics.jsonl.gz`: an engine's metrics as scraped, through the live program's adapters.

use std::path::Path;

use serde::Deserialize;
use warptop::engine::continuity::Continuity;
use warptop::engine::{self, Adapter, Answers, Memory};
use warptop::model::{Batch, Fact, FactKey, Metric, SourceId, SourceState, Subject, Time, text};

use super::rows;

const ENGINE: u8 = 0;
/// Where the bodies were read.
const PATH: &str = "/metrics";
/// Scrapes and readings of `/proc` that are this close belong together.
const SAME_MOMENT_MS: u64 = 500;
/// It was scraped every second.
const VALID_MS: u32 = 3500;

#[derive(Deserialize)]
struct Row {
    unix_ms: u64,
    scrape_ms: Option<f64>,
    /// None where the scrape failed.
    body: Option<String>,
    /// What the client said of a scrape that failed.
    error: Option<String>,
}

/// All scrapes, and before them what the start-up log says. `pids`: from when on the server consists of which processes.
pub(super) fn batches(dir: &Path, pids: &[(Time, String)]) -> Result<Vec<Batch>, String> {
    let rows = rows::<Row>(dir, "metrics.jsonl.gz")?;
    let Some(adapter) = rows.iter().find_map(|row| engine::detect(PATH, row.body.as_deref()?)) else {
        if !rows.is_empty() {
            eprintln!("metrics.jsonl.gz: no adapter knows these bodies");
        }
        return Ok(Vec::new());
    };
    let mut first = from_log(&log(dir), Time(rows[0].unix_ms));
    first.state = Some(SourceState::Starting);
    first.fact(Subject::Engine(ENGINE), FactKey::Kind, adapter.spec().id);
    first.fact(Subject::Engine(ENGINE), FactKey::Name, adapter.spec().name);
    let mut life = Life::new(adapter);
    Ok(std::iter::once(first).chain(rows.iter().map(|row| life.scrape(row, pids))).collect())
}

/// The start-up log, under the names that captures have for it.
fn log(dir: &Path) -> String {
    ["vllm-start.log", "vllm.log"]
        .iter()
        .find_map(|name| std::fs::read_to_string(dir.join(name)).ok())
        .unwrap_or_default()
}

/// The engine from one scrape to the next, as the program follows it.
struct Life {
    adapter: &'static dyn Adapter,
    known: Vec<Fact>,
    memory: Memory,
    continuity: Continuity,
    /// When it was last read.
    last: Option<Time>,
    /// The state told last.
    state: Option<SourceState>,
}

impl Life {
    fn new(adapter: &'static dyn Adapter) -> Self {
        let (memory, continuity) = (Memory::default(), Continuity::default());
        Self { adapter, known: Vec::new(), memory, continuity, last: None, state: None }
    }

    fn scrape(&mut self, row: &Row, pids: &[(Time, String)]) -> Batch {
        let mut batch = Batch::new(SourceId::Engine(ENGINE), Time(row.unix_ms), VALID_MS);
        batch.took_us = (row.scrape_ms.unwrap_or_default() * 1000.0) as u32;
        // Both are read in the same moment; of a list that came first later, nothing else is known before.
        let list = pids.iter().rfind(|(from, _)| *from <= batch.at + SAME_MOMENT_MS).or_else(|| pids.first());
        let body = row.body.as_deref().filter(|body| self.adapter.detect(PATH, body));
        let state =
            body.map_or_else(|| SourceState::Failed(row.trouble().into()), |body| self.translate(body, &mut batch));
        if let Some((_, list)) = list.filter(|_| body.is_some()) {
            batch.fact(Subject::Engine(ENGINE), FactKey::Pids, list);
        }
        engine::only_news(&mut batch.facts, &mut self.known);
        // As the program does: a scrape that fails says so each time, and its levels are over.
        batch.state = (state.is_down() || self.state.as_ref() != Some(&state)).then(|| state.clone());
        self.state = Some(state);
        batch
    }

    fn translate(&mut self, body: &str, batch: &mut Batch) -> SourceState {
        self.adapter.translate(Answers::new(&[(PATH, body)]), ENGINE, &mut self.memory, batch);
        let down = self.last.is_some_and(|last| batch.at.since(last) > u64::from(VALID_MS));
        self.continuity.mark(batch, down || self.state.as_ref().is_some_and(SourceState::is_down));
        self.last = Some(batch.at);
        SourceState::Ok
    }
}

impl Row {
    /// Why it gave nothing.
    fn trouble(&self) -> String {
        self.error.as_deref().map_or_else(|| "the scrape gave nothing".to_owned(), text::clean)
    }
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
        // The log has the memory of one GPU, and the tokens of all together.
        let gpus = number("tensor_parallel_size=").unwrap_or(1.0) * number("pipeline_parallel_size=").unwrap_or(1.0);
        batch.push(subject, Metric::KvBytesPerToken, gpus * gib * 1_073_741_824.0 / tokens);
        let words = if gpus > 1.0 { format!(" on each of {gpus} GPUs") } else { String::new() };
        batch.fact(subject, FactKey::KvBytesSource, &format!("start-up log: {gib} GiB{words} for {tokens} tokens"));
    }
    batch
}
