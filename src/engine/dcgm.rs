//! DCGM exporter: what its body says about each GPU.
//!
//! Not an engine, but read the same way: text in, values out. Names are those of DCGM's fields, old and
//! new, as dcgm-exporter 4.5 to 4.8 and DCGM's header of July 2026 have them; the exporter prints whatever
//! its list of counters names. Of the list that it comes with, SM activity and occupancy are commented out.
//! A GPU in MIG mode comes as its instances: what is of the board is told once for each and is one value here, memory
//! and SM activity are each instance's own. Memory is added up; the activity of the whole is that of the instances,
//! weighted by their slices of seven (four on an A30). DRAM activity is not told of the whole: how much of the
//! bandwidth an instance has does not follow from its profile alone.
//! Invariants: a part of a GPU is never taken for the whole; what DCGM marks as blank is missing, for the reason of its
//! mark. Other values are handed on as they are: which of them no GPU can have is judged where a
//! [`crate::model::Sample`] is made, as for the driver's.

use std::collections::HashMap;

use super::promtext::{Exposition, Sample};
use crate::model::metric::Domain;
use crate::model::{Metric, Reading, Why, limits};

/// What the body says about one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// `GPU-…`, as NVML gives it.
    pub uuid: String,
    /// PCI bus id; empty with older exporters.
    pub bus: String,
    /// Number that DCGM gives it.
    pub index: Option<u8>,
    /// Product name.
    pub name: String,
    /// Values in the metrics' units, or why there is none; one for each metric.
    pub values: Vec<(Metric, Reading)>,
    /// Profiles of the instances that it is split into (MIG), `3g.40gb`.
    pub instances: Vec<String>,
}

/// Name, metric, and factor to the metric's unit.
type Field = (&'static str, Metric, f64);

/// A share of time, 0 to 1; rounding may take it a little over.
const SHARE: f64 = 1.01;
/// DCGM's marks where it has no value (dcgm_structs.h): "blank", then "not found", "not supported" and "not permitted" in
/// steps of one. Of 32 bits (`DCGM_INT32_BLANK`, 0x7ffffff0) …
const BLANK_INT32: f64 = 2_147_483_632.0;
/// … of floats (`DCGM_FP64_BLANK`, 2^47) …
const BLANK_FP64: f64 = 140_737_488_355_328.0;
/// … and of 64 bits (`DCGM_INT64_BLANK`, 2^63 - 16; up to 2^64 where printed without a sign): an f64 does not tell these
/// apart, so this only bounds them.
const BLANK_INT64: f64 = 9.2e18;
const MIB: f64 = 1_048_576.0;

/// Activity and traffic: what only profiling counters give.
const ACTIVITY: &[Field] = &[
    ("DCGM_FI_PROF_SM_ACTIVE", Metric::SmActive, 100.0),
    ("DCGM_FI_PROF_SM_UTIL_RATIO", Metric::SmActive, 100.0),
    ("DCGM_FI_PROF_SM_OCCUPANCY", Metric::SmOccupancy, 100.0),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Metric::TensorActive, 100.0),
    ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", Metric::TensorActive, 100.0),
    ("DCGM_FI_PROF_DRAM_ACTIVE", Metric::DramActive, 100.0),
    ("DCGM_FI_PROF_DRAM_UTIL_RATIO", Metric::DramActive, 100.0),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", Metric::PcieRx, 1.0),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", Metric::PcieTx, 1.0),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", Metric::NvlinkRx, 1.0),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", Metric::NvlinkTx, 1.0),
];

/// What NVML gives as well. Violation times are left out: their unit differs between versions.
const REST: &[Field] = &[
    ("DCGM_FI_DEV_GPU_UTIL", Metric::UtilGpuTime, 1.0),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", Metric::UtilMemTime, 1.0),
    ("DCGM_FI_DEV_SM_CLOCK", Metric::SmClock, 1.0),
    ("DCGM_FI_DEV_MAX_SM_CLOCK", Metric::SmClockMax, 1.0),
    ("DCGM_FI_DEV_MEM_CLOCK", Metric::MemClock, 1.0),
    ("DCGM_FI_DEV_GPU_TEMP", Metric::Temp, 1.0),
    ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", Metric::Temp, 1.0),
    ("DCGM_FI_DEV_MEMORY_TEMP", Metric::MemTemp, 1.0),
    ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", Metric::MemTemp, 1.0),
    ("DCGM_FI_DEV_POWER_USAGE", Metric::Power, 1.0),
    ("DCGM_FI_DEV_BOARD_POWER_WATTS", Metric::Power, 1.0),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", Metric::PowerLimit, 1.0),
    // Millijoules.
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Metric::Energy, 1e-3),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", Metric::ThrottleReasons, 1.0),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Metric::ThrottleReasons, 1.0),
];

/// Parts of the memory, MiB.
const MEMORY: [&str; 3] = ["DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_FREE"];

/// Whether an exporter of DCGM answers.
pub fn detect(body: Exposition<'_>) -> bool {
    body.samples().any(|sample| sample.name.starts_with("DCGM_FI_"))
}

/// Whether a metric is one that only profiling counters give.
pub fn is_activity(metric: Metric) -> bool {
    ACTIVITY.iter().any(|(_, of, ..)| *of == metric)
}

/// What is measured of a GPU and is not in the exporter's answer. What warptop itself knows of a GPU is none of it.
pub fn absent(row: &Row) -> impl Iterator<Item = Metric> {
    let own = [Metric::DramPeak, Metric::DramCeiling];
    let of_gpus =
        Metric::ALL.iter().copied().filter(move |metric| metric.domain() == Domain::Gpu && !own.contains(metric));
    of_gpus.filter(|metric| row.values.iter().all(|(known, _)| known != metric))
}

/// A GPU while its lines come in.
#[derive(Default)]
struct Gathered {
    row: Row,
    /// Parts of the memory, MiB.
    memory: [Option<f64>; 3],
    instances: Vec<MigInstance>,
}

/// An instance of a GPU in MIG mode.
#[derive(Default)]
struct MigInstance {
    id: String,
    profile: String,
    /// Of its own SMs, 0 to 1.
    sm: Option<f64>,
    tensor: Option<f64>,
    /// Memory that is taken there, MiB.
    used: Option<f64>,
}

/// The GPUs of the body in the order in which they come, [`limits::GPUS`] of them at most, and whether there are more.
pub fn rows(body: Exposition<'_>) -> (Vec<Row>, bool) {
    let (mut rows, mut more): (Vec<Gathered>, bool) = (Vec::new(), false);
    let mut places: HashMap<String, usize> = HashMap::new();
    for sample in body.samples().filter(|sample| sample.name.starts_with("DCGM_FI_")) {
        let uuid = first_label(&sample, &["UUID", "uuid", "gpu_uuid"]);
        if uuid.is_empty() {
            continue;
        }
        let place = match places.get(&uuid) {
            Some(&place) => place,
            None if rows.len() == limits::GPUS => {
                more = true;
                continue;
            }
            None => {
                places.insert(uuid.clone(), rows.len());
                rows.push(Gathered { row: Row { uuid, ..Row::default() }, ..Gathered::default() });
                rows.len() - 1
            }
        };
        rows[place].take(&sample);
    }
    (rows.into_iter().map(Gathered::whole).collect(), more)
}

impl Gathered {
    fn take(&mut self, sample: &Sample<'_>) {
        let row = &mut self.row;
        for (text, labels) in
            [(&mut row.bus, ["pci_bus_id", "pci_bus_id"]), (&mut row.name, ["modelName", "model_name"])]
        {
            if text.is_empty() {
                *text = first_label(sample, &labels);
            }
        }
        row.index = row.index.or_else(|| sample.label("gpu").parse().ok());
        let instance = first_label(sample, &["GPU_I_ID"]);
        if !instance.is_empty() {
            return self.take_instance(instance, sample);
        }
        if let Some(part) = MEMORY.iter().position(|name| *name == sample.name) {
            self.memory[part] = mebibytes(sample);
        }
        add(row, sample);
    }

    fn take_instance(&mut self, id: String, sample: &Sample<'_>) {
        let known = self.instances.iter().position(|known| known.id == id);
        if known.is_none() && self.instances.len() == limits::INSTANCES {
            return;
        }
        let place = known.unwrap_or_else(|| {
            let profile = sample.label("GPU_I_PROFILE").into_owned();
            self.instances.push(MigInstance { id, profile, ..MigInstance::default() });
            self.instances.len() - 1
        });
        let instance = &mut self.instances[place];
        let share = Some(sample.value).filter(|share| (0.0..=SHARE).contains(share)).map(|share| share.min(1.0));
        match ACTIVITY.iter().find(|(name, ..)| *name == sample.name).map(|(_, metric, ..)| *metric) {
            Some(Metric::SmActive) => instance.sm = share,
            Some(Metric::TensorActive) => instance.tensor = share,
            Some(_) => {}
            None if MEMORY[0] == sample.name => instance.used = mebibytes(sample),
            None if MEMORY.contains(&&*sample.name) || sample.name.ends_with("_UTIL") => {}
            // What is of the board is the same in each line.
            None => add(&mut self.row, sample),
        }
    }

    fn whole(self) -> Row {
        let mut row = with_memory(self.row, self.memory);
        let slices = if row.name.contains("A30") { 4.0 } else { 7.0 };
        let weighted = |of: fn(&MigInstance) -> Option<f64>| {
            self.instances.iter().map(|instance| Some(of(instance)? * instance.slices()? / slices)).sum::<Option<f64>>()
        };
        let parts = [
            (Metric::SmActive, weighted(|instance| instance.sm).map(|share| share * 100.0)),
            (Metric::TensorActive, weighted(|instance| instance.tensor).map(|share| share * 100.0)),
            (
                Metric::GpuMemUsed,
                self.instances.iter().map(|instance| instance.used).sum::<Option<f64>>().map(|n| n * MIB),
            ),
        ];
        for (metric, value) in parts.into_iter().filter(|_| !self.instances.is_empty()) {
            if let Some(value) = value.filter(|_| row.values.iter().all(|(known, _)| *known != metric)) {
                row.values.push((metric, value.into()));
            }
        }
        row.instances = self.instances.into_iter().map(|instance| instance.profile).collect();
        row
    }
}

impl MigInstance {
    /// Of the GPU's compute slices: the number before the `g` of its profile.
    fn slices(&self) -> Option<f64> {
        self.profile.split_once('g')?.0.parse().ok()
    }
}

/// A part of the memory, MiB.
fn mebibytes(sample: &Sample<'_>) -> Option<f64> {
    Some(sample.value).filter(|mib| *mib >= 0.0 && blank(*mib, BLANK_INT32).is_none())
}

/// Why DCGM has no value where it gives one of its marks; marks as high as `least` are looked for. Each kind of number has
/// marks of its own, and an exporter may print any of them.
fn blank(value: f64, least: f64) -> Option<Why> {
    if value >= BLANK_INT64 {
        return Some(Why::Unsupported);
    }
    let why = |mark: f64| match value - mark {
        0.0 | 1.0 | 2.0 => Some(Why::Unsupported),
        3.0 => Some(Why::NotPermitted),
        _ => None,
    };
    [BLANK_INT32, BLANK_FP64].into_iter().filter(|mark| *mark >= least).find_map(why)
}

fn first_label(sample: &Sample<'_>, names: &[&str]) -> String {
    names.iter().map(|name| sample.label(name).into_owned()).find(|text| !text.is_empty()).unwrap_or_default()
}

fn add(row: &mut Row, sample: &Sample<'_>) {
    let field = ACTIVITY.iter().chain(REST).find(|(name, ..)| *name == sample.name);
    let Some(&(_, metric, factor)) = field else { return };
    // An old and a new name for one thing are one value.
    if row.values.iter().any(|(known, _)| *known == metric) {
        return;
    }
    let least = match metric {
        // Integers of 64 bits, or rates, that may have the value of a smaller mark.
        Metric::Energy => BLANK_INT64,
        Metric::PcieRx | Metric::PcieTx | Metric::NvlinkRx | Metric::NvlinkTx => BLANK_FP64,
        _ => BLANK_INT32,
    };
    let reading = blank(sample.value, least).map_or_else(|| Reading::new(sample.value * factor), Reading::Missing);
    row.values.push((metric, reading));
}

fn with_memory(mut row: Row, [used, reserved, free]: [Option<f64>; 3]) -> Row {
    if let Some(used) = used {
        // What the driver reserves for itself is in use as well.
        let taken = used + reserved.unwrap_or(0.0);
        row.values.push((Metric::GpuMemUsed, (taken * MIB).into()));
        if let Some(free) = free {
            row.values.push((Metric::GpuMemTotal, ((taken + free) * MIB).into()));
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together from the names and labels that the exporter's source and its list of counters have; no
    /// exporter was run.
    const ASSEMBLED: &str = r#"# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-aaaa",pci_bus_id="00000000:17:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1"} 1410
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-bbbb",pci_bus_id="00000000:65:00.0",device="nvidia1",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1"} 210
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-aaaa"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aaaa"} 312.5
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aaaa"} 123456789
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aaaa"} 1000
DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-aaaa"} 24
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-aaaa"} 79896
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-aaaa"} 0
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-aaaa"} 0.8125
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-aaaa"} 0.25
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-aaaa"} 1.004
DCGM_FI_PROF_PCIE_RX_BYTES{gpu="0",UUID="GPU-aaaa"} 1500000
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-bbbb",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.5
"#;

    fn rows(body: Exposition<'_>) -> Vec<Row> {
        super::rows(body).0
    }

    fn value(row: &Row, metric: Metric) -> Option<f64> {
        row.values.iter().find(|(of, _)| *of == metric).and_then(|(_, reading)| reading.value())
    }

    fn known(row: &Row) -> Vec<(Metric, f64)> {
        row.values.iter().filter_map(|(metric, reading)| Some((*metric, reading.value()?))).collect()
    }

    #[test]
    fn a_body_assembled_from_the_documented_names() {
        let rows = rows(Exposition::new(ASSEMBLED));
        assert!(detect(Exposition::new(ASSEMBLED)));
        let who: Vec<_> = rows.iter().map(|r| (r.uuid.as_str(), r.bus.as_str(), r.index, r.name.as_str())).collect();
        assert_eq!(
            who,
            [
                ("GPU-aaaa", "00000000:17:00.0", Some(0), "NVIDIA A100-SXM4-80GB"),
                ("GPU-bbbb", "00000000:65:00.0", Some(1), "NVIDIA A100-SXM4-80GB"),
            ]
        );
        for (metric, expected) in [
            (Metric::SmActive, 81.25),
            (Metric::DramActive, 25.0),
            (Metric::TensorActive, 100.4),
            (Metric::PcieRx, 1.5e6),
            (Metric::SmClock, 1410.0),
            (Metric::Temp, 61.0),
            (Metric::Power, 312.5),
            (Metric::Energy, 123_456.789),
            (Metric::GpuMemUsed, 1024.0 * MIB),
            (Metric::GpuMemTotal, 80_920.0 * MIB),
        ] {
            assert!(value(&rows[0], metric).is_some_and(|v| (v - expected).abs() < 1e-6), "{metric:?}: {rows:?}");
        }
        assert_eq!(value(&rows[0], Metric::SmOccupancy), None, "commented out in the list");
        assert_eq!(rows[1].instances, ["1g.10gb"]);
        let part = value(&rows[1], Metric::SmActive).unwrap();
        assert!((part - 50.0 / 7.0).abs() < 1e-9, "a seventh of a GPU is not the GPU: {part}");
    }

    #[test]
    fn new_names_mean_the_same_and_are_not_taken_twice() {
        let body = "DCGM_FI_PROF_SM_ACTIVE{UUID=\"a\"} 0.5\nDCGM_FI_PROF_SM_UTIL_RATIO{UUID=\"a\"} 0.5\n\
            DCGM_FI_PROF_DRAM_UTIL_RATIO{uuid=\"a\"} 0.25\nDCGM_FI_DEV_BOARD_POWER_WATTS{UUID=\"a\"} 70\n";
        let rows = rows(Exposition::new(body));
        assert_eq!(rows.len(), 1);
        assert_eq!(known(&rows[0]), [(Metric::SmActive, 50.0), (Metric::DramActive, 25.0), (Metric::Power, 70.0)]);
    }

    #[test]
    fn what_dcgm_marks_as_blank_is_missing_with_a_reason() {
        let of = |name: &str, value: &str| {
            rows(Exposition::new(&format!("{name}{{UUID=\"a\"}} {value}\n")))[0].values.clone()
        };
        let (power, sm, energy) =
            ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION");
        for (name, value, why) in [
            ("DCGM_FI_DEV_SM_CLOCK", "2147483632", Why::Unsupported),
            ("DCGM_FI_DEV_GPU_TEMP", "2147483634", Why::Unsupported),
            ("DCGM_FI_DEV_GPU_TEMP", "2.147483635e+09", Why::NotPermitted),
            ("DCGM_FI_DEV_MEMORY_TEMP", "9223372036854775792", Why::Unsupported),
            ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "1.8446744073709552e19", Why::Unsupported),
            (power, "140737488355328", Why::Unsupported),
            (power, "140737488355330.0", Why::Unsupported),
            (power, "140737488355331", Why::NotPermitted),
            (sm, "140737488355328", Why::Unsupported),
            ("DCGM_FI_PROF_PCIE_RX_BYTES", "9.223372036854775e18", Why::Unsupported),
            (energy, "9223372036854775792", Why::Unsupported),
        ] {
            let values = of(name, value);
            assert_eq!(
                values.iter().map(|(_, reading)| *reading).collect::<Vec<_>>(),
                [Reading::Missing(why)],
                "{name} {value}"
            );
        }
        // These are no marks for what counts further than a mark.
        let [(_, joules)] = of(energy, "2147483632")[..] else { panic!() };
        assert!(joules.value().is_some_and(|j| (j - 2_147_483.632).abs() < 1e-6), "{joules:?}");
        assert_eq!(of("DCGM_FI_PROF_PCIE_RX_BYTES", "2147483632"), [(Metric::PcieRx, 2_147_483_632.0.into())]);
        for blank in ["2147483632", "1e19"] {
            assert_eq!(of("DCGM_FI_DEV_FB_USED", blank), [], "memory {blank}");
        }
    }

    #[test]
    fn what_the_exporter_does_not_list_is_told_apart_from_what_it_marks() {
        let body = "DCGM_FI_DEV_SM_CLOCK{UUID=\"a\"} 2147483632\nDCGM_FI_DEV_GPU_TEMP{UUID=\"a\"} 50\n";
        let absent: Vec<_> = super::absent(&rows(Exposition::new(body))[0]).collect();
        assert!(absent.contains(&Metric::SmActive) && absent.contains(&Metric::ThrottledPowerCap), "{absent:?}");
        for has in [Metric::SmClock, Metric::Temp, Metric::DramPeak, Metric::RequestsRunning] {
            assert!(!absent.contains(&has), "{has:?}");
        }
    }

    #[test]
    fn what_is_of_no_gpu_is_left_out() {
        assert_eq!(rows(Exposition::new("DCGM_FI_DEV_SM_CLOCK 1410\n")), []);
        assert!(!detect(Exposition::new("vllm:num_requests_running 1\n")));
        assert!(is_activity(Metric::SmActive) && !is_activity(Metric::Power));
    }

    #[test]
    fn garbage_is_handed_on_to_be_judged() {
        use crate::model::{Batch, Reading, SourceId, Subject, Time, Why};
        let body = "DCGM_FI_DEV_GPU_TEMP{UUID=\"a\"} -1\nDCGM_FI_DEV_POWER_USAGE{UUID=\"a\"} 4294967.3\n\
            DCGM_FI_PROF_SM_ACTIVE{UUID=\"a\"} 7.5\n";
        let mut batch = Batch::new(SourceId::Dcgm, Time(0), 0);
        for (metric, value) in &rows(Exposition::new(body))[0].values {
            batch.push(Subject::Gpu(0), *metric, *value);
        }
        assert_eq!(batch.samples.len(), 3);
        assert!(batch.samples.iter().all(|sample| sample.reading == Reading::Missing(Why::Failed)), "{batch:?}");
    }

    #[test]
    fn more_gpus_than_a_machine_has_are_left_out_and_told() {
        let lines = |of: std::ops::Range<usize>, name: &str| -> String {
            of.fold(String::new(), |body, i| body + &format!("{name}{{UUID=\"GPU-{i}\",GPU_I_ID=\"\"}} {i}\n"))
        };
        let temps = |n| lines(0..n, "DCGM_FI_DEV_GPU_TEMP");
        let (fit, more) = super::rows(Exposition::new(&temps(limits::GPUS)));
        assert_eq!((fit.len(), more), (limits::GPUS, false));
        let body = temps(130_000) + &lines(0..130_000, "DCGM_FI_DEV_SM_CLOCK");
        let (fit, more) = super::rows(Exposition::new(&body));
        assert_eq!((fit.len(), more, value(&fit[63], Metric::SmClock)), (limits::GPUS, true, Some(63.0)));
        let instances = (0..1000)
            .fold(String::new(), |body, i| body + &format!("DCGM_FI_DEV_FB_USED{{UUID=\"a\",GPU_I_ID=\"{i}\"}} 1\n"));
        assert_eq!(rows(Exposition::new(&instances))[0].instances.len(), limits::INSTANCES);
    }

    #[test]
    fn instances_make_one_gpu_with_the_board_s_figures_once() {
        let line = |name: &str, profile: &str, id: u8, value: &str| {
            format!(
                "{name}{{UUID=\"a\",modelName=\"NVIDIA A30\",GPU_I_PROFILE=\"{profile}\",GPU_I_ID=\"{id}\"}} {value}\n"
            )
        };
        let half = line("DCGM_FI_PROF_SM_ACTIVE", "2g.12gb", 1, "0.5");
        let quarter = line("DCGM_FI_PROF_SM_ACTIVE", "1g.6gb", 3, "1.004");
        let power = ["2g.12gb", "1g.6gb"].map(|profile| line("DCGM_FI_DEV_POWER_USAGE", profile, 1, "99")).concat();
        let found = rows(Exposition::new(&format!("{half}{quarter}{power}")));
        assert_eq!(found.len(), 1);
        assert_eq!(known(&found[0]), [(Metric::Power, 99.0), (Metric::SmActive, 50.0)], "2/4 · 0.5 + 1/4");
        let unknown = half.replace("2g.12gb", "odd");
        let found = rows(Exposition::new(&format!("{unknown}{quarter}{power}")));
        assert_eq!(known(&found[0]), [(Metric::Power, 99.0)], "a part of unknown size");
    }
}
