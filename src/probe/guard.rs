//! When a probe may run, and when it must end: rules over what is known of the machine.
//!
//! Pure: readings in, a verdict in words out. It must not know where readings come from. Invariants: what
//! is not known counts against the run; forcing overrules company, never heat, memory or a sick GPU; every
//! refusal says what to do; no endpoint that may be on another host is loaded unless that was said.

use std::fmt::Write as _;

use crate::model::{Reading, Why};
use crate::net;

use super::life::Refusal;
use super::spec::{Cost, Needs, Target};

/// Device memory that stays free for others, bytes: this much, or [`HEADROOM_SHARE`] of all.
const HEADROOM_BYTES: f64 = 2.0 * GIB;
/// Share of the device memory that stays free for others.
const HEADROOM_SHARE: f64 = 0.05;
/// A run ends this far below the slowdown temperature, °C.
const ABORT_MARGIN_C: f64 = 5.0;
/// A run does not start unless it is this far below, °C: it has to have room to heat.
const START_MARGIN_C: f64 = 15.0;
/// Activity from which a GPU counts as computing, %.
const BUSY_PCT: f64 = 1.0;
/// Device memory that others may take while a probe runs before it makes way, bytes.
const GROWTH_BYTES: f64 = 0.5 * GIB;
/// What a probe's process may hold besides what its cost counts (code and workspaces of libraries), bytes.
const BESIDES_BYTES: f64 = 0.75 * GIB;
/// Free memory of the host that a probe leaves, share of all.
const HOST_SHARE: f64 = 0.1;
/// Duty cycle of a run that was forced beside others, %, unless another was chosen.
pub const FORCED_DUTY_PCT: u8 = 10;
/// Clocks event reasons that mean trouble: HW slowdown, HW thermal slowdown, power brake (nvml.h).
const TROUBLE_BITS: u64 = 0x8 | 0x40 | 0x80;
const GIB: f64 = 1_073_741_824.0;

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct OnGpu {
    /// Its id, as the driver counts.
    pub pid: u32,
    /// Its device memory, bytes.
    pub mem: Reading,
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// NVML index.
    pub index: u8,
    /// Why the driver gives nothing at all; `None` while it answers.
    pub down: Option<String>,
    /// Processes that hold device memory, or why they are not listed.
    pub processes: Result<Vec<OnGpu>, Why>,
    /// How busy it is, %: SMs active, or where that is not counted the share of time with a kernel.
    pub busy_pct: Reading,
    /// Device memory in use, bytes.
    pub mem_used: Reading,
    /// Device memory in all, bytes.
    pub mem_total: Reading,
    /// Temperature of the die, °C.
    pub temp: Reading,
    /// Temperature at which the driver slows it, °C.
    pub temp_slowdown: Reading,
    /// Compute mode: 0 anybody, 1 and 3 one process, 2 nobody (nvml.h, `nvmlComputeMode_t`).
    pub compute_mode: Reading,
    /// Clocks event reasons that hold (nvml.h).
    pub reasons: Reading,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc: Reading,
    /// Xid errors since warptop watches.
    pub xids: Reading,
}

/// What is known of the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Memory in use, bytes.
    pub mem_used: Reading,
    /// Memory in all, bytes.
    pub mem_total: Reading,
    /// CPUs that are busy, % of all.
    pub cpu_busy_pct: Reading,
}

/// What is known of the endpoint that is to be loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its base URL.
    pub url: String,
    /// Why nothing answers there; `None` while something does.
    pub down: Option<String>,
    /// Requests that run there, mean of the last seconds: those of others.
    pub running: Reading,
}

/// The machine as a probe's target sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The GPUs that the probe is aimed at.
    pub gpus: Vec<Gpu>,
    /// The host.
    pub host: Host,
    /// Serving engines that answer here, by their URL: they share the host's memory.
    pub engines: Vec<String>,
    /// Why the driver shows no GPU at all; empty while it answers.
    pub no_gpu: String,
    /// The endpoint that the probe is aimed at.
    pub endpoint: Option<Endpoint>,
}

/// A run that may start.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// Share of time it may keep the target busy, %.
    pub duty_pct: u8,
    /// Device memory it may take on each GPU, context included, bytes.
    pub most_bytes: u64,
    /// Who else was there, in words; empty when nobody was.
    pub company: String,
    /// What could not be told, in words; empty where all could.
    pub note: String,
}

/// What the preflight says.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Go.
    Admitted(Admission),
    /// Do not.
    Refused(Refusal),
    /// Something has not been read yet: ask again.
    NotYet,
}

fn refuse(can_force: bool, why: String, hint: &str) -> Verdict {
    Verdict::Refused(Refusal { why, can_force, hint: hint.to_owned() })
}

/// Requests of others from which an endpoint counts as used.
const USED: f64 = 0.5;
const FORCE_LOAD: &str =
    "wait until they are done, or force the run: both are then slower for it, and the report says so";
const FORCE: &str = "stop it, or force the run: it then keeps the target busy for a tenth of the time";

/// Share of time that a run may keep its target busy, %: as chosen, else all of it alone and a tenth in company. The load
/// on an endpoint is what its levels say, whoever else is there.
pub fn duty_pct(needs: Needs, chosen: Option<u8>, in_company: bool) -> u8 {
    match needs {
        Needs::Endpoint => 100,
        _ => chosen.unwrap_or(if in_company { FORCED_DUTY_PCT } else { 100 }),
    }
}

/// What the duty cycle of a run means, for the one who is asked whether to run it; empty when it goes without saying.
pub fn duty_words(needs: Needs, chosen: Option<u8>, forced: bool) -> String {
    match duty_pct(needs, chosen, forced) {
        _ if needs == Needs::Endpoint => String::new(),
        100 if forced => "Whoever else computes there gets next to nothing while it runs: it was given all of the \
                          time (--duty 100)."
            .to_owned(),
        100 => String::new(),
        pct => {
            let whom = if forced && chosen.is_none() { "Beside others it" } else { "It" };
            format!(
                "{whom} keeps the target busy for {pct} % of the time at most, and takes up to {} times as long.",
                100_u8.div_ceil(pct)
            )
        }
    }
}

/// Why a probe can never run on a target of so many GPUs, whatever is free on them; `no_gpu` says why there are none.
pub fn unfit(needs: Needs, gpus: usize, no_gpu: &str) -> Option<Refusal> {
    let lack = needs.lacks(gpus)?;
    let why = match (gpus, no_gpu) {
        (0, "") => "there is no such GPU on this machine".to_owned(),
        (0, _) => format!("it {lack:#}: {no_gpu}"),
        _ => format!("it {lack:#}"),
    };
    let hint = if gpus == 0 {
        "hostmem, which measures the host's own memory, needs no GPU"
    } else {
        "a container may show fewer than the machine has"
    };
    Some(Refusal { why, can_force: false, hint: hint.to_owned() })
}

/// Whether a run of this cost may start. Whoever forces it may also choose its duty cycle.
pub fn preflight(machine: &Machine, cost: &Cost, needs: Needs, forced: bool, duty: Option<u8>) -> Verdict {
    if needs == Needs::Endpoint {
        let unknown = || refuse(false, "no serving engine is known here".to_owned(), NAME_ONE);
        let may = || machine.endpoint.as_ref().map_or_else(unknown, |endpoint| endpoint_may(endpoint, forced));
        return host_may_not(&machine.host, cost).unwrap_or_else(may);
    }
    if let Some(refusal) = unfit(needs, machine.gpus.len(), &machine.no_gpu) {
        return Verdict::Refused(refusal);
    }
    let mut company = Vec::new();
    let mut most_bytes = u64::MAX;
    for gpu in &machine.gpus {
        match gpu_may(gpu, cost, forced, &mut company) {
            Ok(bytes) => most_bytes = most_bytes.min(bytes),
            Err(verdict) => return *verdict,
        }
    }
    if let Some(verdict) = host_may_not(&machine.host, cost) {
        return verdict;
    }
    if needs == Needs::Host && !machine.engines.is_empty() {
        company.push(format!("an engine serves here ({})", machine.engines.join(", ")));
    }
    if let Some(first) = company.first()
        && !forced
    {
        return refuse(true, company.join("; "), if first.is_empty() { "" } else { FORCE });
    }
    let duty_pct = duty_pct(needs, duty, !company.is_empty());
    Verdict::Admitted(Admission { duty_pct, most_bytes, company: company.join("; "), note: String::new() })
}

/// What to do where no endpoint is known.
pub const NAME_ONE: &str = "name one: warptop probe sweep --engine http://127.0.0.1:8000";

/// Why an endpoint can never be loaded like this, whoever else uses it; `None` where it can.
pub fn unloadable(target: &Target, cost: &Cost) -> Option<Refusal> {
    let refusal = |why: String, hint: &str| Some(Refusal { why, can_force: false, hint: hint.to_owned() });
    let load = cost.load.as_ref()?;
    let Some(url) = &target.endpoint else {
        return refusal("no serving engine is known here".to_owned(), NAME_ONE);
    };
    let Ok(endpoint) = net::endpoint::Endpoint::parse(url) else {
        return refusal(format!("{url} is no URL that can be asked"), NAME_ONE);
    };
    if !load.wrong.is_empty() {
        return refusal(load.wrong.clone(), "`warptop probe sweep --help` says what each option means");
    }
    if endpoint.is_local() || load.remote {
        return None;
    }
    let why = format!("{url} may be on another host, where others may depend on it or pay for it");
    refusal(why, "if it is yours to load, say so: warptop probe sweep --engine URL --remote")
}

/// Whether the endpoint may be loaded now: it answers, and nobody else waits for it.
fn endpoint_may(endpoint: &Endpoint, forced: bool) -> Verdict {
    let Endpoint { url, down, running } = endpoint;
    if let Some(why) = down {
        return refuse(false, format!("{url}: {why}"), "it has to answer before it can be loaded");
    }
    let (company, note) = match running {
        Reading::Missing(Why::NotYet) => return Verdict::NotYet,
        Reading::Value(n) if *n > USED => (format!("{n:.0} requests of others run there ({url})"), String::new()),
        Reading::Value(_) => Default::default(),
        Reading::Missing(why) => {
            (String::new(), format!("how many requests of others ran there is not told ({})", why.word()))
        }
    };
    if !company.is_empty() && !forced {
        return refuse(true, company, FORCE_LOAD);
    }
    Verdict::Admitted(Admission { duty_pct: 100, most_bytes: 0, company, note })
}

/// A number that has to be known. What will never be known can be forced past.
fn known(reading: Reading, what: &str, gpu: u8, forced: bool) -> Result<Option<f64>, Box<Verdict>> {
    match reading {
        Reading::Value(value) => Ok(Some(value)),
        Reading::Missing(Why::NotYet) => Err(Box::new(Verdict::NotYet)),
        Reading::Missing(_) if forced => Ok(None),
        Reading::Missing(why) => {
            let why = format!("the {what} of GPU {gpu} cannot be read ({})", why.word());
            Err(Box::new(refuse(true, why, "make it readable, or force the run if you know the GPU is free and cool")))
        }
    }
}

/// Whether a run may start on this GPU, and how much memory it may take.
fn gpu_may(gpu: &Gpu, cost: &Cost, forced: bool, company: &mut Vec<String>) -> Result<u64, Box<Verdict>> {
    let i = gpu.index;
    if let Some(why) = &gpu.down {
        return Err(Box::new(refuse(
            false,
            format!("GPU {i} cannot be read: {why}"),
            "nothing runs on what is not seen",
        )));
    }
    mode_may(gpu)?;
    let used = known(gpu.mem_used, "memory", i, forced)?;
    let total = known(gpu.mem_total, "memory", i, forced)?;
    let temp = known(gpu.temp, "temperature", i, forced)?;
    let slowdown = known(gpu.temp_slowdown, "slowdown temperature", i, forced)?;
    let busy = known(gpu.busy_pct, "activity", i, forced)?;
    if let (Some(temp), Some(slowdown)) = (temp, slowdown)
        && temp > slowdown - START_MARGIN_C
    {
        let why = format!("GPU {i} has {temp:.0} °C, its clocks are slowed at {slowdown:.0} °C");
        let hint = format!("wait until it has {:.0} °C or less, and look at the cooling", slowdown - START_MARGIN_C);
        return Err(Box::new(refuse(false, why, &hint)));
    }
    if trouble(gpu.reasons) {
        let why = format!("hardware slowdown holds GPU {i} down right now");
        return Err(Box::new(refuse(false, why, "look at power supply and cooling first; the clocks pane says which")));
    }
    neighbours(gpu, busy, forced, company)?;
    let least = cost.least_gpu_bytes();
    let (Some(used), Some(total)) = (used, total) else { return Ok(least) };
    let room = total - used - headroom(total);
    if room < least as f64 {
        let why = format!(
            "GPU {i} has {} free, of which {} stay free for others; the probe takes {}",
            Size(total - used),
            Size(headroom(total)),
            Size(least as f64)
        );
        return Err(Box::new(refuse(
            false,
            why,
            "give it a smaller working set (`--mib` or `--n`, see its --help), or free device memory",
        )));
    }
    Ok(room as u64)
}

fn mode_may(gpu: &Gpu) -> Result<(), Box<Verdict>> {
    let alone = gpu.processes.as_ref().is_ok_and(Vec::is_empty);
    let i = gpu.index;
    // A mode is set by an administrator for a reason: it is never overruled, and never changed.
    match gpu.compute_mode.value().map(|mode| mode as u64) {
        Some(2) => Err(Box::new(refuse(
            false,
            format!("the compute mode of GPU {i} is 'prohibited': no process may compute on it"),
            "an administrator can allow it: nvidia-smi -c 0",
        ))),
        Some(1 | 3) if !alone => Err(Box::new(refuse(
            false,
            format!("the compute mode of GPU {i} is 'exclusive' and a process has it"),
            "stop that process first",
        ))),
        _ => Ok(()),
    }
}

/// Notes who else computes on the GPU.
fn neighbours(gpu: &Gpu, busy: Option<f64>, forced: bool, company: &mut Vec<String>) -> Result<(), Box<Verdict>> {
    let i = gpu.index;
    match gpu.processes.as_deref() {
        Err(Why::NotYet) => return Err(Box::new(Verdict::NotYet)),
        Err(_) if forced => {}
        Err(_) => {
            let why = format!("the driver does not list the processes on GPU {i}: whether it is free is not known");
            return Err(Box::new(refuse(true, why, "force the run if you know that it is free")));
        }
        Ok([]) => {
            if let Some(busy) = busy.filter(|busy| *busy > BUSY_PCT) {
                company.push(format!("GPU {i} is {busy:.0} % busy with a process that is not listed here"));
            }
        }
        Ok(processes) => {
            let mut words = format!("on GPU {i} ");
            for (n, process) in processes.iter().take(3).enumerate() {
                let _ = write!(words, "{}process {}", if n > 0 { ", " } else { "" }, process.pid);
                if let Reading::Value(bytes) = process.mem {
                    let _ = write!(words, " ({})", Size(bytes));
                }
            }
            if processes.len() > 3 {
                let _ = write!(words, " and {} more", processes.len() - 3);
            }
            words.push_str(if processes.len() == 1 { " computes" } else { " compute" });
            company.push(words);
        }
    }
    Ok(())
}

fn host_may_not(host: &Host, cost: &Cost) -> Option<Verdict> {
    let (Reading::Value(used), Reading::Value(total)) = (host.mem_used, host.mem_total) else {
        let missing = host.mem_used.why().or(host.mem_total.why());
        return Some(if missing == Some(Why::NotYet) {
            Verdict::NotYet
        } else {
            refuse(false, "how much memory the host has free cannot be read".to_owned(), "is /proc mounted here?")
        });
    };
    let room = total * (1.0 - HOST_SHARE) - used;
    (room < cost.host_bytes as f64).then(|| {
        let why = format!(
            "the host has {} free, of which a tenth of all stays free; the probe takes {}",
            Size(total - used),
            Size(cost.host_bytes as f64)
        );
        refuse(false, why, "give it a smaller working set, or free memory")
    })
}

/// An amount of memory: "36.0 GiB", "1 MiB".
struct Size(f64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 >= GIB { write!(f, "{:.1} GiB", self.0 / GIB) } else { write!(f, "{:.0} MiB", self.0 * 1024.0 / GIB) }
    }
}

/// Device memory that stays free for others, of `total`, bytes.
pub(super) fn headroom(total: f64) -> f64 {
    HEADROOM_BYTES.max(total * HEADROOM_SHARE)
}

fn trouble(reasons: Reading) -> bool {
    // Exact: the bits fit into the f64 that carries them.
    reasons.value().is_some_and(|bits| bits as u64 & TROUBLE_BITS != 0)
}

/// What a running probe is held against: the machine when it started.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    before: Vec<Gpu>,
    cost: Cost,
    forced: bool,
}

impl Watch {
    /// Watches a run that starts on this machine now.
    pub fn new(machine: &Machine, cost: &Cost, forced: bool) -> Self {
        Self { before: machine.gpus.clone(), cost: cost.clone(), forced }
    }

    /// Why the run must end; `None` while it may go on. `child` is its process.
    pub fn abort(&self, machine: &Machine, child: Option<u32>) -> Option<String> {
        self.before.iter().find_map(|before| match machine.gpus.iter().find(|gpu| gpu.index == before.index) {
            Some(gpu) => self.abort_on(before, gpu, child),
            None => Some(format!("GPU {} is gone", before.index)),
        })
    }

    fn abort_on(&self, before: &Gpu, gpu: &Gpu, child: Option<u32>) -> Option<String> {
        let i = gpu.index;
        if let Some(why) = &gpu.down {
            return Some(format!("GPU {i} can no longer be read: {why}"));
        }
        let grew = |then: Reading, now: Reading| now.value().unwrap_or(0.0) - then.value().unwrap_or(0.0) > 0.0;
        if before.ecc.value().is_some() && grew(before.ecc, gpu.ecc) {
            return Some(format!("GPU {i} had an uncorrected ECC error"));
        }
        if grew(before.xids, gpu.xids) {
            return Some(format!("GPU {i} reported an Xid error; dmesg says which"));
        }
        if let (Reading::Value(temp), Reading::Value(slowdown)) = (gpu.temp, gpu.temp_slowdown)
            && temp >= slowdown - ABORT_MARGIN_C
        {
            return Some(format!("GPU {i} has {temp:.0} °C, its clocks are slowed at {slowdown:.0} °C"));
        }
        if trouble(gpu.reasons) {
            return Some(format!("hardware slowdown holds GPU {i} down"));
        }
        self.crowded(before, gpu, child)
    }

    /// Whether somebody else wants the memory or the GPU.
    fn crowded(&self, before: &Gpu, gpu: &Gpu, child: Option<u32>) -> Option<String> {
        let i = gpu.index;
        let old = before.processes.as_deref().unwrap_or_default();
        let new: Vec<&OnGpu> =
            gpu.processes.iter().flatten().filter(|process| old.iter().all(|o| o.pid != process.pid)).collect();
        // In a container the driver may count processes differently: then the only new one is the child.
        let own = new.iter().find(|process| Some(process.pid) == child).or_else(|| new.first());
        if let Some(stranger) = new.iter().find(|process| Some(process.pid) != own.map(|own| own.pid))
            && !self.forced
        {
            return Some(format!("process {} began to compute on GPU {i}", stranger.pid));
        }
        let (used_before, used, total) = (before.mem_used.value()?, gpu.mem_used.value()?, gpu.mem_total.value()?);
        let may = if self.cost.takes_the_rest() {
            total - used_before - headroom(total)
        } else {
            self.cost.gpu_bytes as f64 + BESIDES_BYTES
        };
        let own_bytes = own.and_then(|own| own.mem.value()).unwrap_or(0.0).max(may);
        let growth = used - used_before - own_bytes;
        let short = total - used < headroom(total);
        // Before anybody is out of memory, the probe is.
        if growth > 0.0 && short || growth > GROWTH_BYTES && !self.forced {
            return Some(format!("others took {} more of the memory of GPU {i}", Size(growth)));
        }
        None
    }
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
