//! Stress probes: what each one is, the rules it runs under, and what it leaves.
//!
//! # A probe is one file and one line
//!
//! `src/probe/NAME.rs` holds a [`ProbeSpec`] and a function, and [`PROBES`] names it:
//!
//! ```ignore
//! pub(super) const PROBE: Probe = Probe { spec: SPEC, run };
//!
//! fn run(link: &mut Link, params: &Params) -> Result<Outcome, Failure> {
//!     let library = load().map_err(Failure::Unavailable)?;      // what, why, what to do
//!     for pass in 0..passes {
//!         link.progress(share, Some(eta_s), "triad")?;           // `?` is how a probe stops
//!         let us = kernel_of_at_most_5_ms(link)?;
//!         link.sample("triad", "GB/s", rate)?;                   // kept one by one in the report
//!         link.rest(us)?;                                        // keeps the duty cycle beside others
//!     }
//!     let figure = Figure::median("triad", "Triad", "GB/s", Better::Higher, &rates);
//!     Ok(Outcome { figures, checks, notes, facts })
//! }
//! ```
//!
//! Command line, confirmation, pane, report, comparison and tests of conformance come from the table. A
//! figure that has a reference or a datasheet value gets its per cent when [`mod@reference`] has a row for it.
//!
//! # What a probe can rely on
//!
//! It runs in a process of its own ([`link`]), which dies with its parent, is killed with its group when it
//! does not stop within 0.4 s, and whose panics become words. Its standard output belongs to the link. With
//! one GPU as its target that GPU is CUDA's only device. [`Link::most_bytes`] is what it may allocate,
//! context included: its `cost` states what it wants, and the guard ([`guard`]) makes sure it is there.
//! It starts no processes and sets nothing on a GPU (`tests/tidy.rs` looks for both).
//!
//! # How a run goes
//!
//! [`life`] says what follows on what, [`guard`] when it may not, [`child`] does it, [`report`] and [`page`]
//! say what came of it, [`files`] keeps that. `src/runtime/probes.rs` puts them together on a thread.

pub mod board;
pub mod ceiling;
pub mod child;
pub mod files;
pub mod guard;
pub mod life;
pub mod link;
pub mod page;
pub mod protocol;
pub mod reference;
pub mod report;
pub mod spec;

mod cuda;
#[cfg(any(test, debug_assertions))]
mod fake;
mod frag;
mod gemm;
mod hbm;
mod hostmem;
mod kvload;
mod lane;
mod launch;
mod moe;
mod p2p;
mod pci;
mod pcie;
mod place;
mod plan;
mod soak;
mod sweep;
mod topology;

pub use link::Link;
pub use protocol::{Better, Check, Failure, Figure, Outcome};
pub use spec::{Aim, Cost, GpuName, Kind, LoadCost, Needs, Param, Params, ProbeSpec, Target, Value};

use crate::model::Time;
use crate::model::clock::date;

/// A MiB, bytes.
const MIB: f64 = 1_048_576.0;

/// A probe: what it is, and what its process does.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Its description.
    pub spec: ProbeSpec,
    /// Measures. Called in a process of its own.
    pub run: fn(&mut Link, &Params) -> Result<Outcome, Failure>,
}

/// Every probe, in the order of the pane.
pub const PROBES: &[Probe] = &[
    hbm::PROBE,
    pcie::PROBE,
    p2p::PROBE,
    launch::PROBE,
    gemm::PROBE,
    soak::PROBE,
    hostmem::PROBE,
    kvload::PROBE,
    frag::PROBE,
    moe::PROBE,
    sweep::PROBE,
    // Misbehaves on request: what the framework is tested with. Not in a release.
    #[cfg(any(test, debug_assertions))]
    fake::PROBE,
];

/// To what part of the host this process and those that it starts are bound, for a probe that is about the host; `None`:
/// all of it.
pub fn bound(needs: Needs) -> Option<String> {
    (needs == Needs::Host).then(|| topology::Topology::read().bound()).flatten()
}

/// The probe with this name.
pub fn find(id: &str) -> Option<&'static Probe> {
    PROBES.iter().find(|probe| probe.spec.id == id)
}

/// Those that people are shown.
pub fn listed() -> impl Iterator<Item = &'static Probe> {
    PROBES.iter().filter(|probe| !probe.spec.hidden)
}

/// What a run costs, with the files read that its parameters name; `None` where no parameter can name one. It waits for the
/// disk.
///
/// # Errors
/// Why the parameters come to nothing: what, why, what to do.
pub fn costs_with_files(spec: &ProbeSpec, params: &Params) -> Result<Option<Cost>, String> {
    (spec.id == sweep::ID).then(|| sweep::cost_with_files(params)).transpose()
}

/// Longest a run may take, ms: three times what it says, and time to load the driver.
pub fn most_ms(cost: &Cost) -> u64 {
    30_000_u64.saturating_add((cost.seconds.max(0.0) * 3_000.0) as u64)
}

/// A name for a run that no other has, and that rises with time: `20261129-212401-123-hbm-4711`.
pub fn run_name(now: Time, probe: &str, process: u32) -> String {
    let (year, month, day) = date(now.0 / 86_400_000);
    let (s, ms) = (now.0 / 1000 % 86_400, now.0 % 1000);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}-{ms:03}-{probe}-{process}", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_describes_itself() {
        for (place, Probe { spec, .. }) in PROBES.iter().enumerate() {
            let id = spec.id;
            assert!(!id.is_empty() && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{id}");
            assert!(!spec.name.is_empty() && spec.help.len() > 40 && spec.help.ends_with('.'), "{id}");
            assert!(!spec.headline.is_empty() && spec.cool_ms <= 120_000, "{id}");
            for other in &PROBES[..place] {
                assert!(other.spec.id != id && other.spec.key != spec.key, "{id} and {}", other.spec.id);
            }
            let params = Params::of(spec);
            assert!(params.fit(spec), "{id}: a default is out of its bounds");
            let cost = (spec.cost)(&params, &Target::default());
            assert!(cost.seconds > 0.0 && cost.seconds.is_finite() && !cost.disturbs.is_empty(), "{id}");
            for param in spec.params {
                assert!(
                    !param.help.is_empty() && !["gpu", "yes", "force", "duty", "json"].contains(&param.name),
                    "{id}"
                );
            }
        }
    }

    #[test]
    fn names_of_runs_rise_with_time() {
        let name = |ms| run_name(Time(ms), "hbm", 7);
        assert_eq!(name(1_795_960_436_789), "20261129-135356-789-hbm-7");
        assert!(name(1_795_960_436_789) < name(1_795_960_437_000) && name(999) < name(86_400_000));
    }

    #[test]
    fn a_run_may_take_three_times_its_cost() {
        let cost =
            |seconds| Cost { seconds, gpu_bytes: 0, host_bytes: 0, watts: None, disturbs: String::new(), load: None };
        assert_eq!([most_ms(&cost(2.0)), most_ms(&cost(-1.0))], [36_000, 30_000]);
    }
}
