//! One GPU: which call gives which metric, in four classes by what they cost and how fast they change.
//!
//! Costs in the comments were measured on an H200 with driver 580 (idle, one GPU). Never called:
//! `pcie_throughput`, which blocks for 20 ms (GPM has the same), and anything that sets or resets.
//! Invariant: what a call does not give is missing, never the last known.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{
    Clock as ClockDomain, ComputeMode, EccCounter, MemoryError, P2pCapabilitiesIndex, P2pStatus, PerformancePolicy,
    TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::FieldValueSample;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, EventSet, Nvml};

use crate::model::{Batch, Clock, FactKey, Metric, SourceId, Subject, Why, gpu_specs, limits, text};

use super::super::gpu_ids::{GpuId, GpuIds};
use super::activity::Activity;
use super::gpm;
use super::health::{Health, Out, why};
use super::processes;
use super::raw;
use super::share::Shares;

/// One GPU and what has to be remembered about it.
#[derive(Debug)]
pub(super) struct Gpu<'n> {
    pub(super) index: u8,
    pub(super) name: String,
    device: Device<'n>,
    /// `None` where the driver offers no GPM.
    activity: Option<Activity<'n>>,
    throttled: [Throttled; 5],
    /// Reasons that held since the last slow reading.
    held: u64,
    xids: Option<Xids<'n>>,
    /// The driver splits it into instances (MIG).
    split: bool,
    /// Its memory, bytes, once that is known.
    total: Option<f64>,
    told: String,
    /// No kernel ran in the driver's last sampling period.
    idle: bool,
    shares: Shares,
    health: Health,
}

/// A counter of throttled time that takes longer than this is dear, µs. It is exact at any rate, so it is
/// read once a second while its reason holds and every 10 s otherwise. On an H200 the two hardware reasons
/// take 1 ms, the three others 35 µs; violation times take 700 µs each.
const DEAR_US: u64 = 300;

/// Where the time throttled for one reason is counted.
#[derive(Clone, Copy, Debug)]
struct Throttled {
    metric: Metric,
    /// Its bit among the clocks event reasons (nvml.h).
    bit: u64,
    field: u32,
    /// Older drivers count the same as a policy's violation time.
    policy: Option<PerformancePolicy>,
    by_policy: bool,
    dear: bool,
}

const fn throttled(metric: Metric, bit: u64, field: u32, policy: Option<PerformancePolicy>) -> Throttled {
    Throttled { metric, bit, field, policy, by_policy: false, dear: false }
}

/// The counters of throttled time (ns). The wrapper translates the ids to the numbering of the driver.
const THROTTLED: [Throttled; 5] = [
    throttled(
        Metric::ThrottledPowerCap,
        0x4,
        field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
        Some(PerformancePolicy::Power),
    ),
    throttled(
        Metric::ThrottledSyncBoost,
        0x10,
        field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST,
        Some(PerformancePolicy::SyncBoost),
    ),
    throttled(
        Metric::ThrottledSwThermal,
        0x20,
        field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        Some(PerformancePolicy::Thermal),
    ),
    throttled(Metric::ThrottledHwThermal, 0x40, field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, None),
    throttled(
        Metric::ThrottledPowerBrake,
        0x80,
        field_id::NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        None,
    ),
];

impl<'n> Gpu<'n> {
    /// Takes over an opened device.
    pub(super) fn new(index: u8, device: Device<'n>, nvml: &'n Nvml) -> Self {
        let name = device.name().map_or_else(|_| "GPU".to_owned(), |name| text::clean(&name));
        let split = is_split(&device);
        // Of a GPU in MIG mode GPM counts instances; whether it counts the whole as well shows.
        let offers = device.gpm_support().unwrap_or(false) && (!split || device.gpm_sample().is_ok());
        let activity = offers.then(Activity::default);
        let xids = Xids::watch(&device, nvml);
        let (shares, health) = (Shares::default(), Health::default());
        Self {
            index,
            name,
            device,
            activity,
            throttled: THROTTLED,
            held: 0,
            xids,
            split,
            total: None,
            told: String::new(),
            idle: false,
            shares,
            health,
        }
    }

    /// How others name it.
    pub(super) fn id(&self) -> GpuId {
        let (uuid, bus) = (self.device.uuid().ok(), self.device.pci_info().ok().map(|pci| pci.bus_id));
        GpuId { index: self.index, uuid, bus, active: self.activity.is_some(), exported: (Vec::new(), 0) }
    }

    /// What reading it has shown so far.
    pub(super) const fn health(&self) -> &Health {
        &self.health
    }

    /// Whether the driver gave its activity up.
    pub(super) fn has_lapsed(&self) -> bool {
        self.activity.as_ref().is_some_and(Activity::has_lapsed)
    }

    /// Whether the driver splits it into instances (MIG), and gives no utilisation of the whole.
    pub(super) fn is_split(&self) -> bool {
        self.split
    }

    /// How long to wait before [`Gpu::fast`], so that GPM can be read in this tick, µs.
    pub(super) fn patience(&self, now: u64) -> u64 {
        self.activity.as_ref().map_or(0, |activity| activity.patience(now))
    }

    /// What never changes: name, maxima, thresholds. Once: a maximum clock alone takes 1.3 ms.
    pub(super) fn once(&mut self, clock: &dyn Clock, nvml: &'n Nvml, batch: &mut Batch) {
        let subject = Subject::Gpu(self.index);
        batch.fact(subject, FactKey::Name, &self.name);
        batch.fact(subject, FactKey::ActivitySource, if self.activity.is_some() { "gpm" } else { "time" });
        if let Ok(uuid) = self.device.uuid() {
            batch.fact(subject, FactKey::Uuid, &uuid);
        }
        let Self { index, device, health, name, activity, .. } = self;
        let mut out = Out { batch, subject, health };
        if activity.is_none() {
            for metric in gpm::METRICS {
                out.put(metric, Err(Why::Unsupported));
            }
        }
        let threshold = |which| device.temperature_threshold(which).map(f64::from);
        out.read(Metric::P2pPeersBlocked, || peers_blocked(device, *index, nvml));
        out.read(Metric::SmClockMax, || device.max_clock_info(ClockDomain::SM).map(f64::from));
        out.read(Metric::MemClockMax, || device.max_clock_info(ClockDomain::Memory).map(f64::from));
        out.read(Metric::TempSlowdown, || threshold(TemperatureThreshold::Slowdown));
        out.read(Metric::TempShutdown, || threshold(TemperatureThreshold::Shutdown));
        out.read(Metric::MemTempMax, || threshold(TemperatureThreshold::MemoryMax));
        if let Some(peak) = gpu_specs::dram_peak_bytes_per_s(name) {
            out.batch.fact(subject, FactKey::DramPeakSource, "datasheet");
            out.put(Metric::DramPeak, Ok(peak));
        } else {
            out.batch.fact(subject, FactKey::DramPeakSource, "highest memory clock × bus width");
            out.read(Metric::DramPeak, || peak_from_clock(device));
        }
        self.choose_counters(clock);
    }

    /// Takes the violation times of those reasons whose field the driver does not know, and sees what
    /// reading each costs: the best of three, as the first call may set something up.
    fn choose_counters(&mut self, clock: &dyn Clock) {
        let fields = self.device.field_values_for(&self.throttled.map(|t| FieldId(t.field)));
        let mut trial = Batch::new(SourceId::Nvml, clock.now(), 0);
        for (i, throttled) in self.throttled.iter_mut().enumerate() {
            let works = fields.as_ref().is_ok_and(|fields| fields.get(i).is_some_and(|f| field(f).is_ok()));
            let fallback = || throttled.policy.is_some_and(|policy| self.device.violation_status(policy).is_ok());
            throttled.by_policy = !works && fallback();
            let cost = (0..3).map(|_| {
                let began = clock.micros();
                let mut out = Out { batch: &mut trial, subject: Subject::Gpu(self.index), health: &mut self.health };
                read_throttled(&self.device, std::iter::once(&*throttled), &mut out);
                clock.micros().saturating_sub(began)
            });
            throttled.dear = cost.min().is_some_and(|us| us > DEAR_US);
        }
        // What the trial refused is still to be said.
        self.health.try_again();
    }

    /// Activity, clocks, power, reasons: 20 µs a call, GPM about 0.15 ms.
    pub(super) fn fast(&mut self, clock: &dyn Clock, ids: &GpuIds, batch: &mut Batch) {
        let Self { index, device, activity, health, throttled, held, idle, .. } = self;
        health.begin();
        if let Some(activity) = activity {
            activity.read((*index, device), (clock, ids), health, batch);
        }
        let mut out = Out { batch, subject: Subject::Gpu(*index), health };
        out.read_all([Metric::UtilGpuTime, Metric::UtilMemTime], || {
            *idle = false;
            let rates = device.utilization_rates()?;
            *idle = rates.gpu == 0;
            Ok([f64::from(rates.gpu), f64::from(rates.memory)])
        });
        out.read(Metric::SmClock, || device.clock_info(ClockDomain::SM).map(f64::from));
        out.read(Metric::MemClock, || device.clock_info(ClockDomain::Memory).map(f64::from));
        // The mean over 1 s that the power limit is held against. The instantaneous reading (field 186) of an
        // H200 at its 700 W cap jumps between 600 and 760 W.
        out.read(Metric::Power, || device.power_usage().map(|mw| f64::from(mw) / 1e3));
        out.read(Metric::ThrottleReasons, || {
            let bits = raw::event_reasons(device)?;
            *held |= bits;
            Ok(bits as f64)
        });
        read_throttled(device, throttled.iter().filter(|t| !t.dear), &mut out);
        health.end();
    }

    /// Memory, temperatures, and what the link does.
    pub(super) fn slow(&mut self, batch: &mut Batch) {
        let Self { device, health, throttled, held, xids, total, .. } = self;
        let mut out = Out { batch, subject: Subject::Gpu(self.index), health };
        out.read_all([Metric::GpuMemUsed, Metric::GpuMemTotal], || {
            // What the driver reserves for itself is in use as well; version 2 of the call counts it apart.
            let m = device.memory_info()?;
            let used = m.used.saturating_add(m.reserved);
            // More than there is: one of the two is garbage, and nothing says which.
            let [used, all] = if used > m.total { [f64::NAN; 2] } else { [used as f64, m.total as f64] };
            *total = Some(all).filter(|all| all.is_finite()).or(*total);
            Ok([used, all])
        });
        out.read(Metric::Temp, || match device.temperature(TemperatureSensor::Gpu) {
            Err(error) if why(&error) == Why::Unsupported => raw::temperature(device).map(f64::from),
            other => other.map(f64::from),
        });
        read_fields(device, &[(Metric::MemTemp, field_id::NVML_FI_DEV_MEMORY_TEMP)], 1.0, &mut out);
        // An idle link is slowed down: only what it does while data flows says how good it is. 12 µs each on an H200.
        out.read(Metric::PcieGen, || device.current_pcie_link_gen().map(f64::from));
        out.read(Metric::PcieWidth, || device.current_pcie_link_width().map(f64::from));
        out.read(Metric::XidErrors, || xids.as_mut().map_or(Err(NvmlError::NotSupported), Xids::count));
        let held = std::mem::take(held);
        read_throttled(device, throttled.iter().filter(|t| t.dear && held & t.bit != 0), &mut out);
    }

    /// Processes with memory on this GPU, computing and drawing ones; `strangers` are known to be no engine's.
    pub(super) fn processes(&mut self, strangers: &[u32], batch: &mut Batch) {
        batch.gpu_processes.get_or_insert_default();
        let mut out = Out { batch, subject: Subject::Gpu(self.index), health: &mut self.health };
        if out.passes_over(&[Metric::GpuProcesses]) {
            return;
        }
        let lists = [raw::computing(&self.device), raw::drawing(&self.device)];
        // Where those that compute are not listed, an empty list would say that there are none.
        let listed = lists[0].as_ref().map_err(|error| out.judge(error)).map(|_| ());
        let [computing, drawing] = lists.map(Result::unwrap_or_default);
        let (mut list, count) = processes::merge(self.index, [&computing, &drawing], self.total);
        self.shares.fill(&self.device, &mut list, self.idle, strangers);
        batch.gpu_processes.get_or_insert_default().extend(list);
        let count = listed.map(|()| count as f64);
        Out { batch, subject: Subject::Gpu(self.index), health: &mut self.health }.put(Metric::GpuProcesses, count);
    }

    /// Which instances it is split into, where that has changed.
    fn instances(&mut self, batch: &mut Batch) {
        if self.health.lost {
            return;
        }
        self.split = is_split(&self.device);
        let now = if self.split { instances(&self.device) } else { String::new() };
        if now != self.told {
            batch.fact(Subject::Gpu(self.index), FactKey::Instances, &now);
            self.told = now;
        }
    }

    /// Errors, limits, energy (a counter, so exact at any rate, that takes 4 ms to read); and what was
    /// not supported is tried again.
    pub(super) fn rare(&mut self, batch: &mut Batch) {
        self.instances(batch);
        let Self { device, health, throttled, shares, .. } = self;
        health.try_again();
        shares.try_again();
        let mut out = Out { batch, subject: Subject::Gpu(self.index), health };
        read_throttled(device, throttled.iter().filter(|t| t.dear), &mut out);
        out.read(Metric::ComputeMode, || {
            device.compute_mode().map(|mode| match mode {
                ComputeMode::Default => 0.0,
                ComputeMode::ExclusiveThread => 1.0,
                ComputeMode::Prohibited => 2.0,
                ComputeMode::ExclusiveProcess => 3.0,
            })
        });
        out.read(Metric::Energy, || device.total_energy_consumption().map(|mj| mj as f64 / 1e3));
        out.read(Metric::PowerLimit, || device.enforced_power_limit().map(|mw| f64::from(mw) / 1e3));
        out.read_all([Metric::NvlinkLinks, Metric::NvlinkLinksUp], || nvlinks(device));
        out.read(Metric::PcieGenMax, || device.max_pcie_link_gen().map(f64::from));
        out.read(Metric::PcieWidthMax, || device.max_pcie_link_width().map(f64::from));
        let ecc = |error| device.total_ecc_errors(error, EccCounter::Volatile).map(|n| n as f64);
        out.read(Metric::EccCorrected, || ecc(MemoryError::Corrected));
        out.read(Metric::EccUncorrected, || ecc(MemoryError::Uncorrected));
        out.read_all([Metric::RemappedRows, Metric::RemapPending], || {
            raw::remapped_rows(device).map(|r| [f64::from(r.rows), f64::from(r.pending)])
        });
    }
}

/// Whether the driver splits it into instances (MIG). 0.36 ms on an H200.
fn is_split(device: &Device<'_>) -> bool {
    device.mig_mode().is_ok_and(|mode| mode.current == 1)
}

/// The instances of a GPU in MIG mode, as NVIDIA names them: `3g.40gb, 2g.20gb`.
fn instances(device: &Device<'_>) -> String {
    /// More than any GPU can be split into (seven).
    const MOST: u32 = 16;
    let count = device.mig_device_count().unwrap_or(0).min(MOST);
    let names = (0..count).filter_map(|place| device.mig_device_by_index(place).ok()?.name().ok());
    // "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    let profiles = names.filter_map(|name| Some(text::clean(name.split_once("MIG ")?.1)));
    profiles.collect::<Vec<_>>().join(", ")
}

/// Counts critical Xid errors of one GPU as the driver reports them.
#[derive(Debug)]
struct Xids<'n> {
    events: EventSet<'n>,
    seen: u64,
}

impl<'n> Xids<'n> {
    /// Listens from now on; `None` where that is not offered.
    fn watch(device: &Device<'n>, nvml: &'n Nvml) -> Option<Self> {
        let events = nvml.create_event_set().ok()?;
        let events = device.register_events(EventTypes::CRITICAL_XID_ERROR, events).ok()?;
        Some(Self { events, seen: 0 })
    }

    /// How many there were since; waits for none.
    fn count(&mut self) -> Result<f64, NvmlError> {
        /// In one reading, at most.
        const MOST: u64 = 16;
        for _ in 0..MOST {
            match self.events.wait(0) {
                Ok(_) => self.seen += 1,
                Err(NvmlError::Timeout) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.seen as f64)
    }
}

/// NVLinks that the GPU has, and those that are up: 5 µs each on an H200. A link that it has not is refused, as is each
/// on a GPU without any.
fn nvlinks(device: &Device<'_>) -> Result<[f64; 2], NvmlError> {
    /// Links of a GPU that NVML numbers (nvml.h, `NVML_NVLINK_MAX_LINKS`).
    const MOST: u32 = 18;
    let (mut links, mut up) = (0_u32, 0_u32);
    for link in 0..MOST {
        match device.link_wrapper_for(link).is_active() {
            Ok(active) => (links, up) = (links + 1, up + u32::from(active)),
            Err(error) if why(&error) == Why::Unsupported => {
                // The first says whether there can be others: asking 18 times for nothing is not free.
                if link == 0 {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok([f64::from(links), f64::from(up)])
}

/// Other GPUs of the machine whose memory this one cannot read directly.
fn peers_blocked(device: &Device<'_>, index: u8, nvml: &Nvml) -> Result<f64, NvmlError> {
    let mut blocked = 0_u32;
    // However many the driver counts: what no GPU is read of is asked nothing.
    for other in (0..nvml.device_count()?).take(limits::GPUS).filter(|other| *other != u32::from(index)) {
        let status = device.p2p_status(&nvml.device_by_index(other)?, P2pCapabilitiesIndex::Read)?;
        blocked += u32::from(status != P2pStatus::Ok);
    }
    Ok(f64::from(blocked))
}

/// Two transfers a clock (DDR), bus width in bits.
fn peak_from_clock(device: &Device<'_>) -> Result<f64, NvmlError> {
    let mhz = device.max_clock_info(ClockDomain::Memory)?;
    Ok(f64::from(mhz) * 1e6 * 2.0 * f64::from(device.memory_bus_width()?) / 8.0)
}

fn read_throttled<'t>(device: &Device<'_>, throttled: impl Iterator<Item = &'t Throttled>, out: &mut Out<'_>) {
    const MS_PER_NS: f64 = 1e-6;
    let mut fields = Vec::with_capacity(THROTTLED.len());
    for throttled in throttled {
        match throttled.policy.filter(|_| throttled.by_policy) {
            Some(policy) => out.read(throttled.metric, || {
                device.violation_status(policy).map(|v| v.violation_time as f64 * MS_PER_NS)
            }),
            None => fields.push((throttled.metric, throttled.field)),
        }
    }
    read_fields(device, &fields, MS_PER_NS, out);
}

/// Reads several field values with one call and multiplies them by `scale`.
fn read_fields(device: &Device<'_>, fields: &[(Metric, u32)], scale: f64, out: &mut Out<'_>) {
    let wanted: Vec<_> = fields.iter().filter(|(metric, _)| !out.passes_over(&[*metric])).collect();
    if wanted.is_empty() {
        return;
    }
    let ids: Vec<_> = wanted.iter().map(|(_, id)| FieldId(*id)).collect();
    match device.field_values_for(&ids) {
        // By place: the ids that come back are those of the driver's own numbering.
        Ok(answers) => {
            for ((metric, _), answer) in wanted.into_iter().zip(&answers) {
                let value = field(answer).map(|v| v * scale).map_err(|error| out.judge(error));
                out.put(*metric, value);
            }
        }
        Err(error) => wanted.into_iter().for_each(|(metric, _)| out.put_all(&[*metric], &error)),
    }
}

/// The number in a field's answer.
fn field(answer: &Result<FieldValueSample, NvmlError>) -> Result<f64, &NvmlError> {
    match answer.as_ref()?.value.as_ref()? {
        SampleValue::F64(v) => Ok(*v),
        SampleValue::U32(v) => Ok(f64::from(*v)),
        SampleValue::U64(v) => Ok(*v as f64),
        SampleValue::I64(v) => Ok(*v as f64),
    }
}
