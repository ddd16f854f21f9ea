//! Single processes as a sampler read them: totals are still totals.
//!
//! It must not know how they are read nor how rates are made. Invariant: what an older recording does not have
//! loads as not known, and is not written again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Reading, Why};

/// Device memory held by a process on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// NVML index of the GPU.
    pub gpu: u8,
    /// Process id in the namespace of the driver (the host's).
    pub pid: u32,
    /// Bytes of device memory.
    pub mem: Reading,
    /// Share of time in which its kernels ran, %, of the driver's last sampling period; asked for only where it
    /// tells processes apart.
    #[serde(default = "not_yet", skip_serializing_if = "is_not_yet")]
    pub share: Reading,
}

/// What the main thread of a process is doing: the letter of `/proc/PID/stat` (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessState {
    /// Runs, or waits for a CPU.
    #[serde(rename = "R")]
    Running,
    /// Waits for something, and can be woken by a signal.
    #[serde(rename = "S")]
    Sleeping,
    /// Waits for a device or a disk, and no signal reaches it.
    #[serde(rename = "D")]
    DiskSleep,
    /// Stopped by a signal.
    #[serde(rename = "T")]
    Stopped,
    /// Stopped by a debugger.
    #[serde(rename = "t")]
    Traced,
    /// Has ended; its parent has not taken notice.
    #[serde(rename = "Z")]
    Zombie,
    /// A thread of the kernel without work.
    #[serde(rename = "I")]
    Idle,
    /// Anything else.
    #[serde(rename = "?", other)]
    Other,
}

impl ProcessState {
    /// Of the letter.
    pub const fn of(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'S' => Self::Sleeping,
            'D' => Self::DiskSleep,
            'T' => Self::Stopped,
            't' => Self::Traced,
            'Z' => Self::Zombie,
            'I' => Self::Idle,
            _ => Self::Other,
        }
    }

    /// In words.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::DiskSleep => "disk sleep",
            Self::Stopped => "stopped",
            Self::Traced => "traced",
            Self::Zombie => "zombie",
            Self::Idle => "idle",
            Self::Other => "other",
        }
    }
}

/// One thread of a process, totals since it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Thread id.
    pub tid: u32,
    /// The name it gave itself, cleaned.
    pub name: Arc<str>,
    /// CPU time used, ms.
    pub cpu_ms: Reading,
    /// Time in which it could have run and waited for a CPU, ms.
    pub wait_ms: Reading,
}

/// What keeps a process from using every CPU of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuLimits {
    /// CPUs that are there and that it may run on.
    pub allowed: Reading,
    /// Which ones, as the kernel lists them (`0-3,8`); empty where the list is long.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub list: Arc<str>,
    /// CPU time that its control group may use, in cores: the tightest limit of the group and those above it.
    /// Not supported: there is no limit, or none that can be seen from here.
    #[serde(default = "unsupported", skip_serializing_if = "is_unsupported")]
    pub quota: Reading,
}

impl Default for CpuLimits {
    fn default() -> Self {
        Self { allowed: not_yet(), list: Arc::default(), quota: unsupported() }
    }
}

/// Processes that a table has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MoreProcesses {
    /// How many.
    pub count: u32,
    /// Device memory that they hold, bytes, as far as it is known.
    pub gpu_mem: f64,
}

/// One process as read, totals still totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot: tells a recycled pid.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start: u64,
    /// Owner, cleaned; empty when it cannot be read.
    #[serde(default)]
    pub user: Arc<str>,
    /// Command line, cleaned; empty when it cannot be read.
    #[serde(default)]
    pub command: Arc<str>,
    /// Device memory on each GPU it uses.
    #[serde(default)]
    pub gpus: Vec<(u8, Reading)>,
    /// CPU time used so far, ms.
    pub cpu_ms: Reading,
    /// Resident memory, bytes.
    pub rss: Reading,
    /// Major faults so far.
    pub majflt: Reading,
    /// Memory held by its page tables, bytes.
    pub page_table: Reading,
    /// What its main thread is doing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ProcessState>,
    /// Share of time in which its kernels ran on each GPU, %, where the driver was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<(u8, Reading)>,
    /// Its main thread and the busiest others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadSample>,
    /// What keeps it from using every CPU.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Arc<CpuLimits>,
    /// Time in which its control group had used up its quota, ms so far. Not supported: there is no quota.
    #[serde(default = "unsupported", skip_serializing_if = "is_unsupported")]
    pub throttled_ms: Reading,
    /// Neither an engine's nor on a GPU: listed because it takes CPU time while a server is short of it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub other: bool,
}

/// A process of which nothing is known.
impl Default for ProcessSample {
    fn default() -> Self {
        Self {
            pid: 0,
            start: 0,
            user: Arc::default(),
            command: Arc::default(),
            gpus: Vec::new(),
            cpu_ms: not_yet(),
            rss: not_yet(),
            majflt: not_yet(),
            page_table: not_yet(),
            state: None,
            shares: Vec::new(),
            threads: Vec::new(),
            limits: Arc::default(),
            throttled_ms: unsupported(),
            other: false,
        }
    }
}

const fn not_yet() -> Reading {
    Reading::Missing(Why::NotYet)
}

fn is_not_yet(reading: &Reading) -> bool {
    *reading == not_yet()
}

const fn unsupported() -> Reading {
    Reading::Missing(Why::Unsupported)
}

fn is_unsupported(reading: &Reading) -> bool {
    *reading == unsupported()
}

fn is_default(limits: &Arc<CpuLimits>) -> bool {
    **limits == CpuLimits::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
const fn is_false(set: &bool) -> bool {
    !*set
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
pub(super) const fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_an_older_recording_loads_and_gets_no_longer() {
        let line = r#"{"pid":7,"start":9,"user":"u","command":"c","gpus":[[0,5]],"cpu_ms":1,"rss":2,"majflt":0,"page_table":"not_permitted"}"#;
        let row: ProcessSample = serde_json::from_str(line).unwrap();
        assert_eq!((row.state, row.threads.len(), row.limits.allowed), (None, 0, Reading::Missing(Why::NotYet)));
        assert_eq!(row.throttled_ms, Reading::Missing(Why::Unsupported));
        assert_eq!(serde_json::to_string(&row).unwrap(), line);
        let held = r#"{"gpu":0,"pid":7,"mem":5}"#;
        assert_eq!(serde_json::to_string(&serde_json::from_str::<GpuProcess>(held).unwrap()).unwrap(), held);
    }

    #[test]
    fn everything_reads_back() {
        let limits = CpuLimits { allowed: 2.0.into(), list: "0-1".into(), quota: 1.5.into() };
        let thread = ThreadSample {
            tid: 8,
            name: "EngineCore".into(),
            cpu_ms: 12.5.into(),
            wait_ms: Reading::Missing(Why::Unsupported),
        };
        let row = ProcessSample {
            pid: 7,
            state: Some(ProcessState::Stopped),
            shares: vec![(1, 40.0.into())],
            threads: vec![thread],
            limits: limits.into(),
            throttled_ms: 3.5.into(),
            other: true,
            ..ProcessSample::default()
        };
        let line = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<ProcessSample>(&line).unwrap(), row, "{line}");
    }

    #[test]
    fn letters_and_recordings_name_the_same_state() {
        for letter in ['R', 'S', 'D', 'T', 't', 'Z', 'I', '\u{1b}'] {
            let json = serde_json::to_string(&letter).unwrap();
            let state = ProcessState::of(letter);
            assert_eq!(serde_json::from_str::<ProcessState>(&json).unwrap(), state, "{json}");
            assert_eq!(state == ProcessState::Other, letter == '\u{1b}');
        }
    }
}
