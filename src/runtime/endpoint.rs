//! The endpoint that a probe is aimed at: which engine that is, how it is doing, what opens it, and which GPUs it may use.
//!
//! It must not ask anything itself. Invariants: what opens an endpoint is made for that one alone, when a run starts, and is
//! kept nowhere; the token of the environment goes to engines that were named, never to one that was merely found.

use crate::derive::energy::{self, NoEnergy};
use crate::model::{FactKey, Metric, Reading, SourceId, SourceState, Subject, Time, Why};
use crate::net::access::Access;
use crate::net::endpoint::Endpoint;
use crate::net::sealed::Sealed;
use crate::net::tls::Authorities;
use crate::probe::guard::{self, NAME_ONE};
use crate::probe::life::Refusal;
use crate::sampler::Options;
use crate::store::{Data, Window};

/// How far back requests of others are looked for before a run, ms.
const USED_MS: u64 = 2_000;

/// How endpoints may be reached: the part of the options that concerns it.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    named: Vec<Endpoint>,
    access: Access,
    authorities: Authorities,
}

impl Reach {
    /// As these options say.
    pub fn of(options: &Options) -> Self {
        Self {
            named: options.engine_urls.iter().filter_map(|url| Endpoint::parse(url).ok()).collect(),
            access: options.access.clone(),
            authorities: options.authorities.clone(),
        }
    }

    /// What opens the endpoint that is shown as `url`.
    pub(super) fn seal(&self, url: &str) -> Option<Sealed> {
        let named = self.named.iter().find(|named| named.shown() == url);
        let endpoint = named.cloned().or_else(|| Endpoint::parse(url).ok())?;
        let endpoint = self.access.equip(endpoint, named.is_some());
        Some(Sealed::new(&endpoint, &self.authorities))
    }
}

fn url(data: &Data, engine: u8, now: Time) -> Option<&str> {
    data.fact(Subject::Engine(engine), FactKey::Url, now)
}

/// The number of the engine at this URL.
pub(super) fn engine(data: &Data, url: &str, now: Time) -> Option<u8> {
    data.engines().find(|&engine| self::url(data, engine, now) == Some(url))
}

/// The engine that is meant where none was pointed at: the one that was named, else the only one that was found.
///
/// # Errors
/// What is missing, or between which it has to be chosen.
pub(super) fn chosen(data: &Data, named: &[String], now: Time) -> Result<u8, Refusal> {
    let refuse = |why: String, hint: &str| Err(Refusal { why, can_force: false, hint: hint.to_owned() });
    let mut known: Vec<(u8, &str)> = data.engines().filter_map(|i| Some((i, url(data, i, now)?))).collect();
    if !named.is_empty() {
        let is_named = |url: &str| named.iter().any(|n| Endpoint::parse(n).is_ok_and(|n| n.shown() == url));
        known.retain(|(_, url)| is_named(url));
    }
    match (known.as_slice(), named) {
        ([(one, _)], _) => Ok(*one),
        ([], []) => refuse("no serving engine is known here".to_owned(), NAME_ONE),
        ([], [first, ..]) => {
            let shown = Endpoint::parse(first).map_or_else(|bad| bad.shown, |named| named.shown().to_owned());
            refuse(format!("nothing is known of {shown} yet"), "is it an http URL? see `warptop snapshot --json`")
        }
        (several, _) => {
            let urls: Vec<_> = several.iter().map(|(_, url)| *url).collect();
            let why = format!("there are several engines: {}", urls.join(", "));
            refuse(why, "one of them is loaded: give its URL with one --engine")
        }
    }
}

/// What the guard has to know of the endpoint at `url`.
pub(super) fn seen(data: &Data, url: &str, now: Time) -> Option<guard::Endpoint> {
    let engine = engine(data, url, now)?;
    let source = data.source(SourceId::Engine(engine));
    let state = source.map_or(&SourceState::Starting, |source| source.state_at(now));
    // Late, but there: it is for the load to say what it is like.
    let is_down = state.is_down() && !matches!(state, SourceState::NoMetrics(_));
    let down = is_down.then(|| state.why().to_owned());
    Some(guard::Endpoint { url: url.to_owned(), down, running: running(data, engine, state, now) })
}

/// Requests that run there, mean of the last seconds. Of an engine that was read and has no such figure it will never be
/// known; of one that was not read yet, soon.
fn running(data: &Data, engine: u8, state: &SourceState, now: Time) -> Reading {
    let subject = Subject::Engine(engine);
    match data.mean(subject, Metric::RequestsRunning, Window::last(now, USED_MS)) {
        Reading::Missing(_) => match data.latest(subject, Metric::RequestsRunning, now).reading {
            Reading::Missing(Why::NotYet) if *state != SourceState::Starting => Reading::Missing(Why::Unsupported),
            reading => reading,
        },
        reading @ Reading::Value(_) => reading,
    }
}

/// Whether an engine has said how it is.
pub(super) fn spoke(data: &Data, engine: u8, now: Time) -> bool {
    data.source(SourceId::Engine(engine)).is_some_and(|source| *source.state_at(now) != SourceState::Starting)
}

/// Whether all is known that there is to know before an engine is chosen: those that were named have spoken, else the
/// search has come to an end and those it found have.
pub(super) fn is_known(data: &Data, options: &Options, now: Time) -> bool {
    let searched = options.engine_urls.is_empty();
    let found = data.source(SourceId::Discovery).is_some_and(|source| *source.state_at(now) != SourceState::Starting);
    let mut engines = data.engines().take(if searched { usize::MAX } else { options.engine_urls.len() }).peekable();
    (searched && found || engines.peek().is_some()) && engines.all(|engine| spoke(data, engine, now))
}

/// The GPUs that an engine may use: those that hold its memory; all of this host where that is not told; none where it is
/// on another host.
pub(super) fn gpus(data: &Data, engine: u8, now: Time) -> Vec<u8> {
    match energy::gpus(data, engine, now) {
        Ok((gpus, _)) => gpus.iter().collect(),
        Err(NoEnergy::OtherHost) => Vec::new(),
        // The driver tells who is on its GPUs, and it is not this one; in a container it may tell nothing of all that.
        Err(NoEnergy::NotOnGpu)
            if data.processes(now).is_some_and(|table| table.rows.iter().any(|row| !row.gpus.is_empty())) =>
        {
            Vec::new()
        }
        Err(_) => data.gpus().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Batch, ProcessSample};
    use crate::net::access::Token;
    use crate::store::{Retention, Store};

    const AT: Time = Time(1_000_000);
    const SECRET: &str = "hunter2-and-more";

    fn named(urls: &[&str]) -> Vec<String> {
        urls.iter().map(ToString::to_string).collect()
    }

    /// A store with engines at these URLs, each in this state, with so many requests running.
    fn store(engines: &[(&str, SourceState, Option<f64>)]) -> Store {
        let store = Store::new(Retention::HOUR);
        for (i, (url, state, running)) in engines.iter().enumerate() {
            let i = u8::try_from(i).unwrap();
            let mut batch = Batch::new(SourceId::Engine(i), AT, 3_500);
            batch.fact(Subject::Engine(i), FactKey::Url, url);
            batch.state = Some(state.clone());
            if let Some(running) = running {
                batch.push(Subject::Engine(i), Metric::RequestsRunning, *running);
            }
            store.push(&batch);
        }
        store
    }

    #[test]
    fn the_one_that_was_named_is_meant_else_the_only_one() {
        let ok = |url| (url, SourceState::Ok, None);
        let (a, b) = ("http://127.0.0.1:8000", "http://127.0.0.1:8001");
        let both = store(&[ok(a), ok(b)]);
        let choose =
            |store: &Store, urls: &[&str]| chosen(&store.read(), &named(urls), AT).map_err(|r| r.why + &r.hint);
        assert_eq!(choose(&both, &["127.0.0.1:8001"]), Ok(1));
        assert_eq!(choose(&store(&[ok(a)]), &[]), Ok(0));
        let several = choose(&both, &[]).unwrap_err();
        assert!(several.contains(a) && several.contains(b) && several.contains("--engine"), "{several}");
        assert!(choose(&both, &["127.0.0.1:8000", "127.0.0.1:8001"]).unwrap_err().contains("several"));
        assert!(choose(&store(&[]), &[]).unwrap_err().contains("--engine http://"));
        let bad = choose(&both, &["http://ann:hunter2@gpu 7"]).unwrap_err();
        assert!(bad.contains("nothing is known") && !bad.contains("hunter2"), "{bad}");
    }

    #[test]
    fn an_engine_without_metrics_can_be_loaded_and_one_that_is_down_cannot() {
        let url = "http://127.0.0.1:8000";
        let see = |state: SourceState, running| {
            let seen = seen(&store(&[(url, state, running)]).read(), url, AT + 1_000).unwrap();
            (seen.down, seen.running)
        };
        let unsupported = Reading::Missing(Why::Unsupported);
        assert_eq!(see(SourceState::Ok, Some(3.0)), (None, Reading::Value(3.0)));
        assert_eq!(see(SourceState::Ok, None), (None, unsupported), "an engine without this gauge blocks nothing");
        assert_eq!(see(SourceState::Starting, None), (None, Reading::Missing(Why::NotYet)));
        assert_eq!(see(SourceState::NoMetrics("answers, but /metrics is not there".into()), None), (None, unsupported));
        for down in [SourceState::Failed("refused".into()), SourceState::Unauthorized("answers not".into())] {
            assert!(see(down.clone(), None).0.is_some(), "{down:?}");
        }
        assert!(seen(&store(&[]).read(), url, AT).is_none());
    }

    #[test]
    fn the_token_goes_to_what_was_named_and_the_password_of_its_url_too() {
        let options = Options {
            engine_urls: named(&["http://ann:pass1234@gpu7:8000"]),
            access: Access { token: Token::parse(SECRET).unwrap(), ..Access::default() },
            ..Options::default()
        };
        let reach = Reach::of(&options);
        let opened = |url| reach.seal(url).unwrap().open(url).unwrap().0;
        assert!(opened("http://gpu7:8000").url("").as_str().contains("ann:pass1234"));
        assert!(opened("http://gpu7:8001").key().headers().is_empty(), "found, not named");
        let reach = Reach::of(&Options { engine_urls: named(&["gpu7:8001"]), ..options });
        let endpoint = reach.seal("http://gpu7:8001").unwrap().open("http://gpu7:8001").unwrap().0;
        assert!(endpoint.key().headers().contains_key("authorization"));
    }

    #[test]
    fn the_gpus_are_those_that_hold_its_memory_else_all_of_this_host() {
        let gpus = |url: &str, pids: &str, on: &[(u32, u8)]| {
            let store = store(&[(url, SourceState::Ok, None)]);
            let mut batch = Batch::new(SourceId::Nvml, AT, 3_500);
            for gpu in [0, 1] {
                batch.fact(Subject::Gpu(gpu), FactKey::Name, "GPU");
                batch.push(Subject::Gpu(gpu), Metric::GpuProcesses, 1.0);
            }
            store.push(&batch);
            let mut batch = Batch::new(SourceId::Engine(0), AT, 3_500);
            batch.fact(Subject::Engine(0), FactKey::Pids, pids);
            let none = Reading::Missing(Why::Unsupported);
            let row = |&(pid, gpu): &(u32, u8)| ProcessSample {
                pid,
                start: 1,
                user: "a".into(),
                command: "vllm".into(),
                gpus: vec![(gpu, Reading::Value(1.0))],
                cpu_ms: none,
                rss: none,
                majflt: none,
                page_table: none,
                ..ProcessSample::default()
            };
            batch.processes = Some(on.iter().map(row).collect());
            store.push(&batch);
            gpus(&store.read(), 0, AT)
        };
        let here = "http://127.0.0.1:8000";
        assert_eq!(gpus(here, "7", &[(7, 1), (8, 0)]), [1]);
        assert_eq!(gpus(here, "7", &[(8, 0)]), [0_u8; 0], "it computes on none of them");
        assert_eq!(gpus(here, "7", &[]), [0, 1], "nobody is told of");
        assert_eq!(gpus(here, "", &[(8, 0)]), [0, 1]);
        assert_eq!(gpus("http://gpu7:8000", "", &[(8, 0)]), [0_u8; 0]);
    }
}
