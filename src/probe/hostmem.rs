//! Memory of the host: DRAM bandwidth of each NUMA node from its own CPUs, and latency of each level.
//!
//! Bandwidth as STREAM counts it: read 8, write 8, copy 16, triad 24 bytes an element; stores go past the
//! caches, so that no line is read only to be overwritten. Latency is a chain of dependent loads in random
//! order, one a cache line. Memory is placed by the first touch of a thread that is bound to the node.
//! Values are small whole numbers, so that every sum is exact and can be checked.

#[path = "hostmem/latency.rs"]
mod latency;
#[path = "hostmem/streams.rs"]
mod streams;

use super::plan::Plan;
use super::topology::{self, Node, Topology};
use super::{Better, Cost, Failure, Figure, Kind, Link, MIB, Needs, Outcome, Param, Params, Probe, ProbeSpec, Target};
use crate::model::text::Plural;
use streams::{Kernel, Streams};

pub(super) const PROBE: Probe = Probe { spec: SPEC, run };

const SPEC: ProbeSpec = ProbeSpec {
    id: "hostmem",
    key: 'm',
    name: "host memory",
    help: "DRAM bandwidth (read, write, copy, triad) of each NUMA node from its own CPUs, and latency of cache and DRAM. \
           What tokenizers, KV offloading and copies to a GPU share.",
    needs: Needs::Host,
    params: &[
        Param {
            name: "mib",
            help: "size of each of the three arrays, MiB; four times the last-level cache or more to measure DRAM",
            kind: Kind::Number { default: 1024.0, least: 16.0, most: 16_384.0 },
        },
        Param {
            name: "seconds",
            help: "time for each kernel on each node, s",
            kind: Kind::Number { default: 0.5, least: 0.05, most: 60.0 },
        },
        Param {
            name: "threads",
            help: "threads on each node, 0: one a CPU",
            kind: Kind::Count { default: 0.0, least: 0.0, most: 256.0 },
        },
    ],
    cost,
    cool_ms: 5_000,
    headline: "node0_triad",
    hidden: false,
};

/// Passes of every kernel that do not count, before the first that does.
const SETTLING: usize = 3;

/// Measurements for each node: the four kernels, then latencies.
const LATENCIES: usize = 4;

fn cost(params: &Params, _: &Target) -> Cost {
    let nodes = topology::count_nodes() as f64;
    let bytes = params.number("mib") * MIB * 3.0;
    // Pages are touched for the first time at some 2 GB/s, once for the arrays and once for the chain.
    let seconds = nodes * (params.number("seconds") * (4 + LATENCIES) as f64 + bytes / 1.5e9);
    Cost {
        seconds,
        gpu_bytes: 0,
        host_bytes: bytes as u64,
        watts: None,
        load: None,
        disturbs: "whatever uses the host's memory: tokenizers, KV offloading, copies to a GPU; node by node, at the \
                   lowest priority"
            .to_owned(),
    }
}

fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
    // Whoever wants a CPU gets it first.
    let _ = rustix::process::nice(19);
    let topology = Topology::read();
    let mut outcome = Outcome::default();
    outcome.facts.extend(topology.facts());
    if let Some(bound) = topology.bound() {
        outcome.notes.push(format!(
            "bound to {bound} (taskset, a container): these are figures of a part, held against runs of the same part only"
        ));
    }
    if cfg!(debug_assertions) {
        outcome.notes.push("built without optimisation: these figures say nothing about the machine".to_owned());
    }
    let seconds = params.number("seconds");
    let mut plan = Plan::new(topology.nodes.len() * (4 + LATENCIES), seconds);
    for node in &topology.nodes {
        bandwidth(link, params, node, &mut plan, &mut outcome)?;
        latencies(link, params, node, &mut plan, &mut outcome)?;
    }
    Ok(outcome)
}

fn bandwidth(
    link: &mut Link,
    params: &Params,
    node: &Node,
    plan: &mut Plan,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let bytes = params.number("mib") * MIB;
    if bytes < 4.0 * node.cache_bytes as f64 {
        outcome.notes.push(format!(
            "arrays of {:.0} MiB are less than four times the {:.0} MiB of cache of node {}: part of it is the cache's",
            bytes / MIB,
            node.cache_bytes as f64 / MIB,
            node.id
        ));
    }
    let threads = match params.number("threads") as usize {
        0 => node.cpus.len(),
        n => n.min(node.cpus.len()),
    };
    plan.tell(link, 0.0, &format!("node {}: filling memory", node.id))?;
    let streams = Streams::new(&node.cpus[..threads], bytes as usize, link.clock());
    // A hypervisor maps memory while it is first used: none of that belongs into a figure.
    for _ in 0..SETTLING {
        for kernel in Kernel::ALL {
            streams.pass(kernel, 1, link)?;
        }
    }
    for kernel in Kernel::ALL {
        let what = format!("node {}: {}", node.id, kernel.name());
        let series = format!("node{}_{}", node.id, kernel.name());
        let (mut rates, mut spent) = (Vec::new(), 0_u64);
        let passes = streams.settle(kernel, link)?;
        let bytes = kernel.bytes_per_element() as f64 * streams.elements() as f64 * f64::from(passes);
        while rates.len() < 3 || (spent as f64) < params.number("seconds") * 1e6 {
            let ns = streams.pass(kernel, passes, link)?.max(1);
            // A pass that took no time would be repeated for ever.
            let (rate, us) = (bytes / ns as f64, (ns / 1_000).max(1));
            rates.push(rate);
            link.sample(&series, "GB/s", rate)?;
            spent += us;
            plan.tell(link, spent as f64 / 1e6 / params.number("seconds"), &what)?;
            link.rest(us)?;
        }
        plan.step();
        let label = format!("Node {} {}", node.id, kernel.name());
        let figure = Figure::median(&series, &label, "GB/s", Better::Higher, &rates);
        let method = format!(
            "{}, {} bytes an element, {}",
            threads_in_words(threads),
            kernel.bytes_per_element(),
            streams::STORES
        );
        outcome.figures.extend(figure.map(|figure| figure.by(&method)));
    }
    outcome.checks.extend(streams.finish().into_iter().map(|mut check| {
        check.what = format!("node {}: {}", node.id, check.what);
        check
    }));
    Ok(())
}

fn threads_in_words(threads: usize) -> String {
    Plural(threads as u64, "thread", "threads").to_string()
}

fn latencies(
    link: &mut Link,
    params: &Params,
    node: &Node,
    plan: &mut Plan,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let Some(&cpu) = node.cpus.first() else { return Ok(()) };
    let most = (params.number("mib") * MIB) as usize;
    for (level, bytes) in node.levels(most) {
        let what = format!("node {}: latency of {level}", node.id);
        plan.tell(link, 0.0, &what)?;
        let series = format!("node{}_latency_{}", node.id, level.to_ascii_lowercase());
        let (times, closed) = latency::measure(link, cpu, bytes, params.number("seconds"), &series, |link, share| {
            plan.tell(link, share, &what)
        })?;
        plan.step();
        let label = format!("Node {} latency of {level}", node.id);
        let method = format!("chain of dependent loads over {:.2} MiB, one a line of 64 bytes", bytes as f64 / MIB);
        let figure = Figure::median(&series, &label, "ns", Better::Lower, &times);
        outcome.figures.extend(figure.map(|figure| figure.by(&method)));
        outcome.checks.push(super::Check {
            what: format!("node {}: the chain over {level} closes", node.id),
            passed: closed,
            detail: if closed { String::new() } else { "it does not".to_owned() },
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::model::SystemClock;
    use crate::probe::protocol::tests::request;
    use crate::probe::protocol::{Message, Request};

    /// What a probe says, kept.
    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn link(said: &Said, stop: bool) -> (Link, Params) {
        let mut params = Params::of(&SPEC);
        params.put("mib", super::super::Value::Number(16.0));
        params.put("seconds", super::super::Value::Number(0.05));
        let request = Request { params: params.clone(), ..request("hostmem") };
        let stop = Arc::new(AtomicBool::new(stop));
        (Link::new(request, Arc::new(SystemClock::start()), stop, Box::new(said.clone())), params)
    }

    #[test]
    fn every_node_has_its_figures_and_they_were_computed_right() {
        let said = Said::default();
        let (mut link, params) = link(&said, false);
        let outcome = run(&mut link, &params).unwrap();
        for id in ["node0_read", "node0_write", "node0_copy", "node0_triad", "node0_latency_dram"] {
            let figure = outcome.figures.iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no {id}"));
            assert!(
                figure.value > 0.0 && figure.n >= 3 && figure.lo <= figure.value && figure.value <= figure.hi,
                "{id}"
            );
        }
        assert!(outcome.checks.len() >= 5 && outcome.checks.iter().all(|check| check.passed), "{:?}", outcome.checks);
        let said = said.0.lock().unwrap();
        let lines: Vec<Message> = said.split(|&b| b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect();
        let samples = lines.iter().filter(|message| matches!(message, Message::Sample(_))).count();
        assert!(samples >= 15, "{samples} measurements were said");
    }

    #[test]
    fn a_run_that_shall_stop_stops_at_its_next_word() {
        let (mut link, params) = link(&Said::default(), true);
        assert_eq!(run(&mut link, &params), Err(Failure::Stopped));
    }
}
