//! What the probes need of CUDA: a device, its memory, kernels, and time as the device counts it.
//!
//! Owns every call into the driver's library, which is looked for at run time: no toolkit is needed, neither to build nor
//! to run. It must not know what is measured. Only a probe's process comes here, since a context takes hundreds of MB for
//! as long as the process lives. Invariants: memory is counted against what the guard admitted before it is taken;
//! nothing of a device is changed; every error says what was tried.
//!
//! # What is safe about it
//!
//! Everything unsafe of the GPU probes is in this module and below it. A kernel reaches the device memory of this process
//! and the host memory that is handed to it, no more; each kernel in `assets/kernels` bounds its accesses by a count that
//! it is given. A probe that gives a wrong count fails ("illegal address") in its own process, whose context goes with it.

#![expect(unsafe_code, reason = "the driver is a library of C")]

mod blaslt;
mod buffer;
mod graph;
mod kernel;
mod library;
mod nccl;
mod peer;
mod random;
mod stream;
mod vmm;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, DriverError, sys};

use super::{Failure, GpuName, Link, MIB};
use crate::model::text;

pub(super) use blaslt::{BlasLt, Products, Types, WORKSPACE};
pub(super) use buffer::{Buffer, HostBuffer};
pub(super) use graph::Graph;
pub(super) use kernel::{Arg, Grid, Kernel, Module};
use library::{Library, Wanted};
pub(super) use nccl::{Group, Nccl, Place};
pub(super) use peer::Peering;
pub(super) use random::{RandomData, random};
pub(super) use stream::{Event, Lateness, Stream};

/// Device memory that a context takes besides what is allocated in it, bytes: 120 to 550 MB were seen.
const CONTEXT_BYTES: u64 = 600 << 20;

/// Device memory for a run that allocates `bytes`, context included.
pub(super) const fn with_context(bytes: u64) -> u64 {
    CONTEXT_BYTES + bytes
}

/// A GPU with a context of this process.
pub(super) struct Gpu {
    /// The names it goes by.
    pub(super) name: GpuName,
    /// Where its work goes unless the probe says otherwise.
    pub(super) stream: Stream,
    context: Arc<CudaContext>,
    /// Memory that may still be taken, bytes.
    room: Arc<AtomicU64>,
}

impl Gpu {
    /// Opens the one GPU that the probe is aimed at.
    ///
    /// # Errors
    /// When the driver's library or the GPU is not there, or the driver gives no context.
    pub(super) fn open(link: &Link) -> Result<Self, Failure> {
        Self::open_all(link)?.into_iter().next().ok_or_else(|| Failure::Unavailable("no GPU is the target".to_owned()))
    }

    /// Opens every GPU that the probe is aimed at, in the order of the target.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub(super) fn open_all(link: &Link) -> Result<Vec<Self>, Failure> {
        // SAFETY: loads the library, whose start-up code runs, and lets it go again.
        if !unsafe { sys::is_culib_present() } {
            return Err(no_library());
        }
        let count = CudaContext::device_count().map_err(start_up)?;
        let mut open: Vec<_> = (0..usize::try_from(count).unwrap_or(0)).map(|_| None).collect();
        let targets = &link.target().gpus;
        for (ordinal, slot) in open.iter_mut().enumerate() {
            let context = CudaContext::new(ordinal).map_err(failed("opening the GPU"))?;
            let uuid = uuid(&context)?;
            // Without a name from the driver there is only the order to go by, which with one GPU cannot be wrong.
            let place = targets.iter().position(|gpu| gpu.uuid == uuid || gpu.uuid.is_empty() && count == 1);
            if let Some(place) = place {
                *slot = Some((place, Self::with(context, targets[place].clone(), link)?));
            }
        }
        let mut open: Vec<_> = open.into_iter().flatten().collect();
        open.sort_by_key(|(place, _)| *place);
        if open.len() < targets.len() {
            let why = format!("CUDA shows {} of the {} GPUs that the run is aimed at", open.len(), targets.len());
            return Err(Failure::Unavailable(format!("{why}: is CUDA_VISIBLE_DEVICES set, or MIG on?")));
        }
        Ok(open.into_iter().map(|(_, gpu)| gpu).collect())
    }

    fn with(context: Arc<CudaContext>, name: GpuName, link: &Link) -> Result<Self, Failure> {
        // SAFETY: nothing of this context was allocated yet. Events for each buffer would put waits between the
        // kernels that are timed.
        unsafe { context.disable_event_tracking() };
        let stream = Stream::new(&context)?;
        let room = Arc::new(AtomicU64::new(link.most_bytes().saturating_sub(CONTEXT_BYTES)));
        Ok(Self { name, stream, context, room })
    }

    /// A stream of its own, for work beside that of [`Self::stream`].
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn another_stream(&self) -> Result<Stream, Failure> {
        Stream::new(&self.context)
    }

    /// A property of the device.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn attribute(&self, attribute: Attribute) -> Result<u64, Failure> {
        let value = self.context.attribute(attribute).map_err(failed("asking for a property of the GPU"))?;
        Ok(u64::try_from(value).unwrap_or(0))
    }

    /// Where it is on the PCI bus, as Linux writes it: `0000:3b:00.0`.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn pci_address(&self) -> Result<String, Failure> {
        let domain = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
        let bus = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
        let device = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
        // A GPU is the first function of its card; the others are sound and USB.
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
    }

    /// Streaming multiprocessors.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn sms(&self) -> Result<u32, Failure> {
        let sms = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(u32::try_from(sms).unwrap_or(1).max(1))
    }

    /// Size of the L2 cache, bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn l2_bytes(&self) -> Result<u64, Failure> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
    }

    /// Compute capability, e.g. (9, 0).
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn capability(&self) -> Result<(i32, i32), Failure> {
        self.context.compute_capability().map_err(failed("asking for the compute capability"))
    }

    /// Free and total device memory as the driver states it, bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn memory(&self) -> Result<(u64, u64), Failure> {
        let (free, total) = self.context.mem_get_info().map_err(failed("asking for free memory"))?;
        Ok((free as u64, total as u64))
    }

    /// Memory that may still be taken, bytes.
    pub(super) fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    /// Waits until the device has done all that it was given.
    ///
    /// # Errors
    /// What went wrong on the device since the last call: kernels tell their faults late.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        self.context.synchronize().map_err(failed("waiting for the GPU"))
    }

    /// What the report says of the device.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let (major, minor) = self.capability()?;
        let l2 = self.l2_bytes()? as f64 / MIB;
        let text = format!("compute capability {major}.{minor}, {} SMs, {l2:.0} MiB of L2", self.sms()?);
        Ok(BTreeMap::from([(format!("GPU {}", self.name.index), text)]))
    }
}

/// Makes a context the one that the calls which follow are about.
fn choose(context: &CudaContext) -> Result<(), Failure> {
    context.bind_to_thread().map_err(failed("choosing the GPU"))
}

/// The words for a call that did not work.
fn failed(what: &'static str) -> impl Fn(DriverError) -> Failure {
    move |error| Failure::Failed(format!("{what} did not work: {}", words(error)))
}

/// Name and meaning of a driver's error: `CUDA_ERROR_OUT_OF_MEMORY (out of memory)`.
fn words(error: DriverError) -> String {
    let text = |text: Result<&std::ffi::CStr, DriverError>| {
        text.map_or_else(|_| format!("{:?}", error.0), |text| text.to_string_lossy().into_owned())
    };
    format!("{} ({})", text(error.error_name()), text(error.error_string()))
}

/// The words for a library that cannot be loaded.
fn no_library() -> Failure {
    const NAME: &str = "libcuda.so.1";
    // SAFETY: as above; it was not loaded, and is only asked why.
    let error = unsafe { libloading::Library::new(NAME) }.err();
    let why = error.and_then(|error| std::error::Error::source(&error).map(|why| text::clean(&why.to_string())));
    Failure::Unavailable(match why {
        Some(why) if !why.contains("No such file") => {
            format!("the CUDA driver's library cannot be loaded: {why}; install the driver's user-space part again")
        }
        _ => format!(
            "the CUDA driver's library ({NAME}) is not on this machine: it comes with NVIDIA's driver; a container has \
             to be started with the capability 'compute'"
        ),
    })
}

/// The words for a driver that does not start.
fn start_up(error: DriverError) -> Failure {
    let advice = match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            "NVML shows the GPU and CUDA does not: is MIG on without an instance, or was this container not given the GPU?"
        }
        sys::CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "libcuda is of another version than the kernel's driver: was the driver updated without a restart?"
        }
        sys::CUresult::CUDA_ERROR_SYSTEM_NOT_READY => "is the fabric manager running?",
        sys::CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "it is a toolkit's stand-in for building, not the driver's: take its folder 'stubs' out of LD_LIBRARY_PATH"
        }
        sys::CUresult::CUDA_ERROR_UNKNOWN => {
            "is the kernel module nvidia-uvm loaded, and may this user open /dev/nvidia-uvm?"
        }
        _ => "does nvidia-smi work, and may this user open /dev/nvidia*?",
    };
    Failure::Unavailable(format!("CUDA does not start: {}; {advice}", words(error)))
}

/// The driver's name for a device as NVML writes it: `GPU-` and hexadecimal digits in five groups.
fn uuid(context: &CudaContext) -> Result<String, Failure> {
    let bytes = context.uuid().map_err(failed("asking for the GPU's UUID"))?.bytes;
    let mut out = "GPU".to_owned();
    for (i, byte) in bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&i) {
            out.push('-');
        }
        let _ = write!(out, "{:02x}", byte.cast_unsigned());
    }
    Ok(out)
}
