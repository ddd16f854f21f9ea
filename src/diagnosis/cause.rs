//! The causes that a diagnosis can name. Their ids are a contract of the snapshot: some may be added, none is renamed.

macro_rules! causes {
    ($( $name:ident = $id:literal, $label:literal, $rule:literal; )+) => {
        /// Why a server, a GPU or a machine is in the state it is in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Cause { $( #[doc = $rule] $name, )+ }

        impl Cause {
            /// Every cause, in the order of docs/diagnosis.md.
            pub const ALL: &'static [Self] = &[$( Self::$name, )+];

            /// Its name in the snapshot.
            pub const fn id(self) -> &'static str {
                match self { $( Self::$name => $id, )+ }
            }

            /// At most three words for a screen, 20 columns at most.
            pub const fn label(self) -> &'static str {
                match self { $( Self::$name => $label, )+ }
            }

            /// When it is named, in a sentence.
            pub const fn rule(self) -> &'static str {
                match self { $( Self::$name => $rule, )+ }
            }
        }
    };
}

causes! {
    Down = "down", "down",
        "The engine's port refuses connections or its process is gone.";
    Stalled = "stalled", "no progress",
        "Requests run or wait and no token, no request and no prompt has moved for 4 s (30 s while its processes or GPU still compute), or the server does not answer at all.";
    NeedsKey = "needs-key", "needs a key",
        "The metrics endpoint answers 401 or 403.";
    Unreadable = "unreadable", "no metrics",
        "Something answers at the address, but not with metrics that warptop can read.";
    GpuFault = "gpu-fault", "GPU fault",
        "An Xid error, an uncorrected memory error or a row remap that waits for a reset, or the GPU is lost to the driver.";
    KvCapacity = "kv-capacity", "KV cache full",
        "Requests wait or are preempted while one more running request would not fit into the KV cache.";
    AdmissionLimit = "admission-limit", "request limit",
        "Requests wait while as many run as the engine admits (or one fewer), and the KV cache has room.";
    WaitsForTransfer = "waits-for-transfer", "KV transfer",
        "Most of the waiting requests wait for KV blocks that come from another node or from host memory.";
    PrefixCold = "prefix-cold", "prefix cache lost",
        "The prefix cache hits at least 30 points less than this server did in the last hour with prompts and answers of the same lengths.";
    LongPrefill = "long-prefill", "long prompts",
        "A few prompts, eight times as long as the median, hold up the token streams of the others: gaps of at least five times the median make up a fifth of the time between tokens.";
    Neighbour = "neighbour", "other GPU process",
        "A process that belongs to no engine computes on the engine's GPU.";
    Interconnect = "interconnect", "GPU link",
        "The GPUs of one engine exchange data over PCIe although NVLink is there, or a link is down.";
    PcieTransfer = "pcie-transfer", "PCIe link",
        "Copies fill half of the PCIe link or more, or the link runs below its generation or width while it carries data.";
    Straggler = "straggler", "one slow GPU",
        "One GPU of a group has much lower clocks or much more work than the others, which wait for it.";
    HostCpu = "host-cpu", "short of CPU",
        "The engine's threads are ready to run and wait for a CPU: affinity, a cgroup quota or other load keeps them off it.";
    Frontend = "frontend", "API server at limit",
        "A thread of the API server uses a whole core while the engine behind it has room.";
    LaunchOverhead = "launch-overhead", "launch overhead",
        "One thread of the engine uses a whole core while the GPU is less than half filled and nothing else holds it back.";
    Speculation = "speculation", "drafts rejected",
        "Fewer than three in ten drafted tokens are accepted, and drafts are at least a tenth of the tokens.";
    Heat = "heat", "heat",
        "Thermal slowdown holds the clock down for a twentieth of the time in which work runs.";
    PowerBrake = "power-brake", "power brake",
        "The external power brake holds the clock down for a twentieth of the time in which work runs.";
    PowerCap = "power-cap", "power cap",
        "The power cap holds the clock down for a third of the time in which work runs, and takes at least 5 % of it.";
    TailLatency = "tail-latency", "tail latency",
        "An objective (--slo) is missed, or the P99 of TTFT is certainly over ten times its median.";
    ThroughputDrop = "throughput-drop", "slower than before",
        "Tokens come at least a third slower than is usual for this server at the same load in the last hour, and no other cause is found.";
    KvMismatch = "kv-mismatch", "KV sized too large",
        "Memory for the KV cache is short, or soon will be, while much of what is held is reserved or empty.";
    PageFaults = "page-faults", "page faults",
        "At least 100 major page faults a second; act when the engine's own processes have them.";
    HostMemory = "host-memory", "host memory",
        "Less than a twentieth of the host's memory is available, or tasks wait for memory a tenth of the time.";
    NetworkRetransmits = "network-retransmits", "retransmits",
        "At least 50 TCP segments a second are sent again.";
    MemoryBandwidth = "memory-bandwidth", "memory bandwidth",
        "Decode keeps the memory busy (38 % of peak or more, and 2.5 times as busy as the tensor pipes): every server has this limit.";
    Compute = "compute", "compute",
        "The SMs are active at least 80 % of the time in which work runs, and the tensor pipes are busy.";
    DemandLimited = "demand-limited", "little is asked",
        "The GPU or the engine works less than a third of the time, since there is nothing to do.";
    Healthy = "healthy", "healthy",
        "Requests move, and nothing that is measured holds them back.";
    Idle = "idle", "idle",
        "Nothing runs and nothing was done for 5 s.";
    Unknown = "unknown", "unknown",
        "What is measured does not tell; the finding says what would be needed.";
}

impl Cause {
    /// Whether it says how a server does rather than what holds it back.
    pub const fn is_state(self) -> bool {
        matches!(self, Self::Healthy | Self::Idle | Self::DemandLimited | Self::Unknown)
    }

    /// The cause with this id.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_labels_are_short() {
        for &cause in Cause::ALL {
            assert_eq!(Cause::from_id(cause.id()), Some(cause));
            assert!(cause.label().chars().count() <= 20, "{}", cause.label());
        }
    }
}
