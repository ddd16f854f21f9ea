//! The one table of everything that is measured: name, unit, kind, domain.
//!
//! A new metric is one line here. `key` is its name in recordings and never changes meaning.

/// The unit of a metric's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 0 to 100.
    Percent,
    /// Bytes.
    Bytes,
    /// Bytes per second (gauges the source already gives as a rate).
    BytesPerSecond,
    /// Megahertz.
    Megahertz,
    /// Degrees Celsius.
    Celsius,
    /// Watts.
    Watts,
    /// Joules; a counter's rate is watts.
    Joules,
    /// Milliseconds; a counter's rate is ms per second.
    Milliseconds,
    /// Microseconds; a counter's rate is µs per second.
    Microseconds,
    /// Seconds.
    Seconds,
    /// Tokens.
    Tokens,
    /// Requests.
    Requests,
    /// A plain number.
    Count,
    /// A set of bits.
    Bits,
}

/// How a metric behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A level; the store keeps the value.
    Gauge,
    /// A total that only grows until its source restarts; the store keeps its rate per second.
    Counter,
    /// Cumulative buckets; the store keeps the difference of each scrape.
    Histogram,
}

/// What a metric belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// A GPU.
    Gpu,
    /// A serving engine.
    Engine,
    /// The machine.
    Host,
    /// warptop itself.
    App,
}

macro_rules! metrics {
    ($( $(#[doc = $doc:literal])+ $name:ident = $key:literal, $domain:ident, $kind:ident, $unit:ident; )+) => {
        /// Something that can be measured.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Metric { $( $(#[doc = $doc])+ $name, )+ }

        impl Metric {
            /// Every metric, in table order; the place is `metric as usize`.
            pub const ALL: &'static [Self] = &[$( Self::$name, )+];

            /// Its name in recordings.
            pub const fn key(self) -> &'static str {
                match self { $( Self::$name => $key, )+ }
            }

            /// What it belongs to.
            pub const fn domain(self) -> Domain {
                match self { $( Self::$name => Domain::$domain, )+ }
            }

            /// How it behaves over time.
            pub const fn kind(self) -> Kind {
                match self { $( Self::$name => Kind::$kind, )+ }
            }

            /// The unit of its value.
            pub const fn unit(self) -> Unit {
                match self { $( Self::$name => Unit::$unit, )+ }
            }

            /// The metric with this name in recordings.
            pub fn from_key(key: &str) -> Option<Self> {
                match key { $( $key => Some(Self::$name), )+ _ => None }
            }
        }
    };
}

metrics! {
    // GPU activity (GPM or a DCGM exporter; never the time-based utilisation).
    /// Share of SMs that were busy.
    SmActive = "sm_active_pct", Gpu, Gauge, Percent;
    /// Resident warps against the maximum.
    SmOccupancy = "sm_occupancy_pct", Gpu, Gauge, Percent;
    /// Share of time the tensor pipes were active.
    TensorActive = "tensor_active_pct", Gpu, Gauge, Percent;
    /// DRAM bandwidth in use, of the theoretical maximum.
    DramActive = "dram_active_pct", Gpu, Gauge, Percent;
    /// Peak DRAM bandwidth that 100 % of `dram_active_pct` stands for.
    DramPeak = "dram_peak_bytes_per_s", Gpu, Gauge, BytesPerSecond;
    /// DRAM bandwidth that a probe reached on this very GPU.
    DramCeiling = "dram_ceiling_bytes_per_s", Gpu, Gauge, BytesPerSecond;
    // Time-based utilisation: share of TIME with at least one kernel, or one memory access.
    /// Share of time with at least one kernel running (NVML `utilization.gpu`).
    UtilGpuTime = "util_gpu_time_pct", Gpu, Gauge, Percent;
    /// Share of time with at least one memory access (NVML `utilization.memory`).
    UtilMemTime = "util_mem_time_pct", Gpu, Gauge, Percent;
    /// Device memory in use, driver's own included.
    GpuMemUsed = "mem_used_bytes", Gpu, Gauge, Bytes;
    /// Device memory in all.
    GpuMemTotal = "mem_total_bytes", Gpu, Gauge, Bytes;
    /// SM clock.
    SmClock = "sm_clock_mhz", Gpu, Gauge, Megahertz;
    /// Highest SM clock of this product.
    SmClockMax = "sm_clock_max_mhz", Gpu, Gauge, Megahertz;
    /// Memory clock.
    MemClock = "mem_clock_mhz", Gpu, Gauge, Megahertz;
    /// Highest memory clock of this product.
    MemClockMax = "mem_clock_max_mhz", Gpu, Gauge, Megahertz;
    /// Temperature of the GPU die.
    Temp = "temp_c", Gpu, Gauge, Celsius;
    /// Temperature of the device memory.
    MemTemp = "mem_temp_c", Gpu, Gauge, Celsius;
    /// Die temperature from which the driver slows the clocks.
    TempSlowdown = "temp_slowdown_c", Gpu, Gauge, Celsius;
    /// Die temperature at which the GPU switches off.
    TempShutdown = "temp_shutdown_c", Gpu, Gauge, Celsius;
    /// Highest allowed temperature of the device memory.
    MemTempMax = "mem_temp_max_c", Gpu, Gauge, Celsius;
    /// Board power (mean over about 1 s on Ampere and later).
    Power = "power_w", Gpu, Gauge, Watts;
    /// Power limit in force.
    PowerLimit = "power_limit_w", Gpu, Gauge, Watts;
    /// Energy since the driver was loaded; its rate is the measured mean power.
    Energy = "energy_j", Gpu, Counter, Joules;
    /// Reasons why clocks are below their maximum right now (NVML clocks event reasons).
    ThrottleReasons = "throttle_reasons", Gpu, Gauge, Bits;
    /// Time held down by the software power cap.
    ThrottledPowerCap = "throttled_sw_power_cap_ms", Gpu, Counter, Milliseconds;
    /// Time held down by software thermal slowdown.
    ThrottledSwThermal = "throttled_sw_thermal_ms", Gpu, Counter, Milliseconds;
    /// Time held down by hardware thermal slowdown.
    ThrottledHwThermal = "throttled_hw_thermal_ms", Gpu, Counter, Milliseconds;
    /// Time held down by the external power brake.
    ThrottledPowerBrake = "throttled_hw_power_brake_ms", Gpu, Counter, Milliseconds;
    /// Time held down by sync boost.
    ThrottledSyncBoost = "throttled_sync_boost_ms", Gpu, Counter, Milliseconds;
    /// PCIe traffic to this GPU.
    PcieRx = "pcie_rx_bytes_per_s", Gpu, Gauge, BytesPerSecond;
    /// PCIe traffic from this GPU.
    PcieTx = "pcie_tx_bytes_per_s", Gpu, Gauge, BytesPerSecond;
    /// NVLink traffic to this GPU, all links.
    NvlinkRx = "nvlink_rx_bytes_per_s", Gpu, Gauge, BytesPerSecond;
    /// NVLink traffic from this GPU, all links.
    NvlinkTx = "nvlink_tx_bytes_per_s", Gpu, Gauge, BytesPerSecond;
    /// PCIe generation of the link now (drops when idle).
    PcieGen = "pcie_gen", Gpu, Gauge, Count;
    /// PCIe lanes of the link now.
    PcieWidth = "pcie_width", Gpu, Gauge, Count;
    /// Highest PCIe generation that GPU and slot allow.
    PcieGenMax = "pcie_gen_max", Gpu, Gauge, Count;
    /// Most PCIe lanes that GPU and slot allow.
    PcieWidthMax = "pcie_width_max", Gpu, Gauge, Count;
    /// Uncorrected ECC errors since the driver was loaded.
    EccUncorrected = "ecc_uncorrected", Gpu, Gauge, Count;
    /// Corrected ECC errors since the driver was loaded.
    EccCorrected = "ecc_corrected", Gpu, Gauge, Count;
    /// Memory rows remapped after uncorrected errors.
    RemappedRows = "remapped_rows", Gpu, Gauge, Count;
    /// 1 when a row remap waits for a reset.
    RemapPending = "remap_pending", Gpu, Gauge, Count;
    /// Processes that hold device memory, as far as the driver lists them.
    GpuProcesses = "gpu_processes", Gpu, Gauge, Count;
    /// Compute mode: 0 anybody, 1 and 3 one process, 2 nobody (nvml.h, `nvmlComputeMode_t`).
    ComputeMode = "compute_mode", Gpu, Gauge, Count;
    /// Critical Xid errors since warptop watches.
    XidErrors = "xid_errors", Gpu, Gauge, Count;
    /// NVLinks that the GPU has, wired or not.
    NvlinkLinks = "nvlink_links", Gpu, Gauge, Count;
    /// NVLinks that are up.
    NvlinkLinksUp = "nvlink_links_up", Gpu, Gauge, Count;
    /// Other GPUs of the machine whose memory this one cannot read directly.
    P2pPeersBlocked = "p2p_peers_blocked", Gpu, Gauge, Count;

    // Engine.
    /// Requests in the running batch.
    RequestsRunning = "requests_running", Engine, Gauge, Requests;
    /// Most requests the engine runs at once (`max_num_seqs`, slots).
    RequestsCap = "requests_cap", Engine, Gauge, Requests;
    /// Requests that wait to be scheduled.
    RequestsWaiting = "requests_waiting", Engine, Gauge, Requests;
    /// Most requests that may wait before new ones are refused.
    QueueCap = "queue_cap", Engine, Gauge, Requests;
    /// Of those that wait, waiting for KV blocks or a free slot.
    WaitingCapacity = "requests_waiting_capacity", Engine, Gauge, Requests;
    /// Of those, deferred for another reason (adapter, KV transfer …).
    WaitingDeferred = "requests_waiting_deferred", Engine, Gauge, Requests;
    /// Of those, waiting until their grammar is compiled.
    WaitingGrammar = "requests_waiting_grammar", Engine, Gauge, Requests;
    /// Of those, waiting until their KV blocks are fetched from elsewhere.
    WaitingKvFetch = "requests_waiting_kv_fetch", Engine, Gauge, Requests;
    /// Of those, paused after they had run (swapped out or preempted).
    WaitingPaused = "requests_waiting_paused", Engine, Gauge, Requests;
    /// Share of KV blocks held by live requests.
    KvUsage = "kv_usage_pct", Engine, Gauge, Percent;
    /// Tokens that fit into the KV pool.
    KvPoolTokens = "kv_pool_tokens", Engine, Gauge, Tokens;
    /// Tokens in one KV block.
    KvBlockSize = "kv_block_size", Engine, Gauge, Tokens;
    /// Places in blocks or slots that live requests hold, empty ones included, as the engine counts them.
    KvHeldTokens = "kv_held_tokens", Engine, Gauge, Tokens;
    /// Tokens that hold state of live requests, as the engine counts them.
    KvLiveTokens = "kv_live_tokens", Engine, Gauge, Tokens;
    /// Tokens kept for reuse that no live request holds.
    KvCachedTokens = "kv_cached_tokens", Engine, Gauge, Tokens;
    /// Tokens of the pool that hold nothing.
    KvFreeTokens = "kv_free_tokens", Engine, Gauge, Tokens;
    /// Tokens set aside for what running requests may still generate, on top of what they hold.
    KvReservedTokens = "kv_reserved_tokens", Engine, Gauge, Tokens;
    /// KV cache that one token takes, over all GPUs and with every copy.
    KvBytesPerToken = "kv_bytes_per_token", Engine, Gauge, Bytes;
    /// How many GPUs of a tensor-parallel group store the same KV (1: no copies).
    KvCopies = "kv_copies", Engine, Gauge, Count;
    /// Longest context the engine admits.
    MaxModelLen = "max_model_len", Engine, Gauge, Tokens;
    /// Requests pushed back to the queue for want of KV blocks.
    Preemptions = "preemptions", Engine, Counter, Requests;
    /// Tokens computed before and lost to preemption, which are computed again.
    RecomputedTokens = "recomputed_tokens", Engine, Counter, Tokens;
    /// Prompt tokens taken in.
    PromptTokens = "prompt_tokens", Engine, Counter, Tokens;
    /// Tokens generated.
    GenerationTokens = "generation_tokens", Engine, Counter, Tokens;
    /// Prompt tokens looked up in the prefix cache.
    PrefixQueries = "prefix_queries", Engine, Counter, Tokens;
    /// Prompt tokens found in the prefix cache.
    PrefixHits = "prefix_hits", Engine, Counter, Tokens;
    /// Requests finished for any reason.
    RequestsFinished = "requests_finished", Engine, Counter, Requests;
    /// Requests that were refused or failed.
    RequestsFailed = "requests_failed", Engine, Counter, Requests;
    /// Requests to generate that the engine's API server answered.
    ApiRequests = "api_requests", Engine, Counter, Requests;
    /// Time that its API server took for them, from the request's head to the end of the answer.
    ApiSum = "api_sum_s", Engine, Counter, Seconds;
    /// E2E time of all finished requests together, for engines without a histogram of it.
    E2eSum = "e2e_sum_s", Engine, Counter, Seconds;
    /// Queue time of all requests together, for engines without a histogram of it.
    QueueSum = "queue_sum_s", Engine, Counter, Seconds;
    /// Time spent on prompts, for engines without a histogram of it.
    PrefillSum = "prefill_sum_s", Engine, Counter, Seconds;
    /// Time spent on generating, for engines without a histogram of it.
    DecodeSum = "decode_sum_s", Engine, Counter, Seconds;
    /// LoRA adapters in GPU memory.
    LoraLoaded = "lora_loaded", Engine, Gauge, Count;
    /// Most LoRA adapters in GPU memory at once.
    LoraCap = "lora_cap", Engine, Gauge, Count;
    /// LoRA adapters that running requests use.
    LoraRunning = "lora_running", Engine, Gauge, Count;
    /// LoRA adapters that waiting requests want.
    LoraWaiting = "lora_waiting", Engine, Gauge, Count;
    /// Models in memory, of engines that load and unload them.
    ModelsLoaded = "models_loaded", Engine, Gauge, Count;
    /// Memory that these models take, KV included.
    ModelBytes = "model_bytes", Engine, Gauge, Bytes;
    /// The part of that memory which is on GPUs.
    ModelGpuBytes = "model_gpu_bytes", Engine, Gauge, Bytes;
    /// When the engine's process started, Unix seconds.
    EngineStart = "engine_start_s", Engine, Gauge, Seconds;
    /// Time to first token.
    Ttft = "ttft_s", Engine, Histogram, Seconds;
    /// Time between two output events of a request, pooled over requests.
    Itl = "itl_s", Engine, Histogram, Seconds;
    /// Mean time per output token of a request, first token left out.
    Tpot = "tpot_s", Engine, Histogram, Seconds;
    /// From arrival to the last token.
    E2e = "e2e_s", Engine, Histogram, Seconds;
    /// From arrival to first being scheduled.
    QueueTime = "queue_s", Engine, Histogram, Seconds;
    /// From first being scheduled to the first token.
    PrefillTime = "prefill_s", Engine, Histogram, Seconds;
    /// From the first token to the last.
    DecodeTime = "decode_s", Engine, Histogram, Seconds;
    /// Prompt length of finished requests.
    PromptLen = "prompt_len", Engine, Histogram, Tokens;
    /// Output length of finished requests.
    GenerationLen = "generation_len", Engine, Histogram, Tokens;
    /// `max_tokens` that finished requests asked for.
    MaxTokensParam = "max_tokens_param", Engine, Histogram, Tokens;
    /// Drafts that speculation made; each is checked in one step.
    SpecDrafts = "spec_drafts", Engine, Counter, Count;
    /// Tokens that speculation drafted.
    SpecDraftTokens = "spec_draft_tokens", Engine, Counter, Tokens;
    /// Drafted tokens that the model accepted.
    SpecAcceptedTokens = "spec_accepted_tokens", Engine, Counter, Tokens;
    /// Tokens that a request gains in a step of speculation, the one that the model adds included, as the engine last said.
    SpecAcceptLength = "spec_accept_length", Engine, Gauge, Tokens;
    /// Share of drafted tokens that were accepted, as the engine last said.
    SpecAcceptRate = "spec_accept_rate_pct", Engine, Gauge, Percent;
    /// Prompt tokens looked up in a KV store outside the engine, after its own prefix cache.
    ExternalPrefixQueries = "external_prefix_queries", Engine, Counter, Tokens;
    /// Prompt tokens found there.
    ExternalPrefixHits = "external_prefix_hits", Engine, Counter, Tokens;
    /// Prompt tokens computed by the engine itself.
    PromptTokensComputed = "prompt_tokens_computed", Engine, Counter, Tokens;
    /// Prompt tokens taken from its own prefix cache.
    PromptTokensCached = "prompt_tokens_cached", Engine, Counter, Tokens;
    /// Prompt tokens whose KV came from outside: another engine, or a store.
    PromptTokensExternal = "prompt_tokens_external", Engine, Counter, Tokens;
    /// KV transfers between engines that ended well.
    KvTransfers = "kv_transfers", Engine, Counter, Count;
    /// How long these took, all together, submission included.
    KvTransferTime = "kv_transfer_s", Engine, Counter, Seconds;
    /// The part of that time which went into submitting them.
    KvTransferPostTime = "kv_transfer_post_s", Engine, Counter, Seconds;
    /// Bytes that these moved.
    KvTransferBytes = "kv_transfer_bytes", Engine, Counter, Bytes;
    /// Pieces in which they moved.
    KvTransferDescriptors = "kv_transfer_descriptors", Engine, Counter, Count;
    /// KV transfers between engines that failed.
    KvTransfersFailed = "kv_transfers_failed", Engine, Counter, Count;
    /// KV bytes fetched back to the GPU from host memory or disk.
    KvLoadBytes = "kv_offload_load_bytes", Engine, Counter, Bytes;
    /// How long that took, transfers that overlap each in full.
    KvLoadTime = "kv_offload_load_s", Engine, Counter, Seconds;
    /// KV bytes moved from the GPU to host memory or disk.
    KvStoreBytes = "kv_offload_store_bytes", Engine, Counter, Bytes;
    /// How long that took, transfers that overlap each in full.
    KvStoreTime = "kv_offload_store_s", Engine, Counter, Seconds;
    /// 1 when the last batch was launched as a CUDA graph, 0 when kernel by kernel.
    CudaGraph = "cuda_graph", Engine, Gauge, Count;
    /// Steps of decoding that were launched as a CUDA graph.
    GraphSteps = "decode_graph_steps", Engine, Counter, Count;
    /// Steps of decoding that were launched kernel by kernel.
    EagerSteps = "decode_eager_steps", Engine, Counter, Count;
    /// Balance of tokens over the GPUs of expert parallelism (mean over most loaded, 0 to 1), added up over passes.
    ExpertBalanceSum = "expert_balance_sum", Engine, Counter, Count;
    /// Passes that this sum is of.
    ExpertBalancePasses = "expert_balance_passes", Engine, Counter, Count;
    /// Time in which the scheduler had nothing to do, all replicas together.
    SchedulerIdleTime = "scheduler_idle_s", Engine, Counter, Seconds;
    /// Models that the engine can load, loaded ones included.
    ModelsKnown = "models_known", Engine, Gauge, Count;

    // Host.
    /// Busy share of all CPUs.
    CpuBusy = "cpu_busy_pct", Host, Gauge, Percent;
    /// Memory not available to a new program.
    HostMemUsed = "host_mem_used_bytes", Host, Gauge, Bytes;
    /// Memory in all.
    HostMemTotal = "host_mem_total_bytes", Host, Gauge, Bytes;
    /// Swap in use.
    SwapUsed = "swap_used_bytes", Host, Gauge, Bytes;
    /// Page faults that had to read from disk.
    MajorFaults = "pgmajfault", Host, Counter, Count;
    /// TCP segments sent again.
    TcpRetrans = "tcp_retrans", Host, Counter, Count;
    /// Time in which some task waited for a CPU (PSI total).
    PsiCpu = "psi_cpu_some_us", Host, Counter, Microseconds;
    /// Time in which some task waited for memory (PSI total).
    PsiMem = "psi_mem_some_us", Host, Counter, Microseconds;
    /// Time in which some task waited for IO (PSI total).
    PsiIo = "psi_io_some_us", Host, Counter, Microseconds;
    /// CPUs that are there.
    CpuCount = "cpu_count", Host, Gauge, Count;

    // warptop itself.
    /// CPU of warptop's process, of one core.
    AppCpu = "app_cpu_pct", App, Gauge, Percent;
    /// Resident memory of warptop's process.
    AppRss = "app_rss_bytes", App, Gauge, Bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_read_back() {
        for (place, &metric) in Metric::ALL.iter().enumerate() {
            assert_eq!(metric as usize, place);
            assert_eq!(Metric::from_key(metric.key()), Some(metric), "{}", metric.key());
        }
        assert_eq!(Metric::from_key("no such metric"), None);
    }
}
