//! The split of the KV pool against what the clients of the H200 capture know: every one of their requests
//! has 512 prompt and 128 output tokens, so what is live at a scrape can be counted from their clocks.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::io::Read;

use flate2::read::GzDecoder;
use warptop::derive::kv::{Basis, Buffers, kv};
use warptop::model::{Metric, Subject, Time};
use warptop::recording::Reader;
use warptop::sampler::replay::load;
use warptop::store::{Retention, Store, Window};

static RECORDING: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1.jsonl.gz");
static REQUESTS: &[u8] = include_bytes!("../assets/recordings/h200-vllm-0.25.1-requests.csv.gz");

/// A request by its client's clock, Unix ms: sent, first token, last token.
struct Request {
    sent: f64,
    first: f64,
    last: f64,
}

fn requests() -> Vec<Request> {
    let mut text = String::new();
    GzDecoder::new(REQUESTS).read_to_string(&mut text).unwrap();
    let number = |field: Option<&str>| field.unwrap().parse::<f64>().unwrap();
    let request = |line: &str| {
        let mut fields = line.split(',').skip(1);
        let sent = number(fields.next());
        Request { sent, first: sent + number(fields.next()), last: sent + number(fields.next()) }
    };
    text.lines().skip(1).map(request).collect()
}

/// Tokens live at a moment, or `None` while a prompt is being taken in: how much of it is, clients cannot know.
fn live_tokens(requests: &[Request], at: f64) -> Option<f64> {
    let running = requests.iter().filter(|r| r.sent <= at && at < r.last);
    running.map(|r| (at >= r.first).then(|| 513.0 + 127.0 * (at - r.first) / (r.last - r.first))).sum()
}

#[test]
fn the_estimate_of_live_tokens_is_within_two_per_cent() {
    let store = Store::new(Retention::HOUR);
    let (start, _) = load(&mut Reader::new(RECORDING).unwrap(), &store, None).unwrap();
    let requests = requests();
    let (data, mut buffers) = (store.read(), Buffers::default());
    let mut errors = Vec::new();
    for second in 0..60 {
        let end = start + second * 1000;
        let Some(Time(scraped)) = data.latest(Subject::Engine(0), Metric::KvUsage, end).at else { continue };
        let Some(truth) = live_tokens(&requests, scraped as f64).filter(|&n| n > 0.0) else { continue };
        let split = kv(&data, 0, Window::last(end, 10_000), &mut buffers);
        assert_eq!(split.live_tokens_is, Basis::Estimate);
        errors.push((split.live_tokens.value().unwrap() / truth - 1.0).abs());
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() >= 25, "{}", errors.len());
    // The server's gauge and the clients' clocks are a few tens of ms apart: a request that ends in between
    // is one of the outliers.
    let (median, most) = (errors[errors.len() / 2], errors[errors.len() * 8 / 10]);
    assert!(median < 0.012 && most < 0.03, "median {median}, 80 % below {most}: {errors:?}");
}
