//! Device memory as the driver hands it out: how large a block it gives, in which steps, and how long it takes.
//!
//! It must not know what a probe concludes. Invariants: nothing that is taken here outlives the call; nothing is asked
//! for beyond what the run may still take.

#![expect(unsafe_code, reason = "the driver is a library of C")]

use cudarc::driver::sys::{
    CUdevice_attribute, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUresult,
};
use cudarc::driver::{result, sys};

use super::{Failure, Gpu, choose, failed};

/// Blocks that were taken at once and given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::probe) struct Taken {
    /// Time for taking all of them, µs.
    pub(in crate::probe) take_us: f64,
    /// Time for giving all of them back, µs.
    pub(in crate::probe) give_back_us: f64,
    /// By how much free memory fell meanwhile, bytes; less than 0 when others gave memory back.
    pub(in crate::probe) fell: i64,
}

impl Gpu {
    /// The steps in which physical memory is given: the least one, and the one that the driver recommends, bytes.
    /// `None` when the device has no memory without addresses.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn granularity(&self) -> Result<Option<(u64, u64)>, Failure> {
        if self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)? == 0 {
            return Ok(None);
        }
        let properties = self.properties();
        let of = |which| {
            let mut bytes = 0;
            // SAFETY: both addresses are those of values that outlive the call.
            let asked = unsafe { sys::cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, which) };
            asked.result().map_err(failed("asking for the granularity of memory")).map(|()| bytes as u64)
        };
        Ok(Some((
            of(CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM)?,
            of(CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)?,
        )))
    }

    /// Whether the driver gives a single block of physical memory of this size, a multiple of its granularity. The block
    /// gets no address, and is given back before this returns.
    ///
    /// # Errors
    /// When it is more than the run may take, or the driver fails for another reason than a lack of memory.
    pub(in crate::probe) fn gives(&self, bytes: u64) -> Result<bool, Failure> {
        if bytes > self.room() {
            return Err(Failure::Failed("the probe asks for more device memory than it may take".to_owned()));
        }
        choose(&self.context)?;
        let (mut handle, properties) = (0, self.properties());
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: both addresses are those of values that outlive the call.
        match unsafe { sys::cuMemCreate(&raw mut handle, bytes, &raw const properties, 0) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(false),
            other => {
                other.result().map_err(failed("taking physical memory"))?;
                // SAFETY: the handle was just given; nothing was mapped to it.
                unsafe { sys::cuMemRelease(handle) }.result().map_err(failed("giving physical memory back"))?;
                Ok(true)
            }
        }
    }

    /// Takes `n` blocks of `bytes` each, and gives them back. `micros` is the clock.
    ///
    /// # Errors
    /// When it is more than the run may take, or the driver's.
    pub(in crate::probe) fn take(&self, bytes: u64, n: usize, micros: impl Fn() -> u64) -> Result<Taken, Failure> {
        // A block takes whole pages of 2 MiB in the worst case.
        let worst = bytes.next_multiple_of(2 << 20).saturating_mul(n as u64);
        if worst > self.room() {
            return Err(Failure::Failed("the probe asks for more device memory than it may take".to_owned()));
        }
        choose(&self.context)?;
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let free = || self.memory().map(|(free, _)| i64::try_from(free).unwrap_or(i64::MAX));
        let mut blocks = Vec::with_capacity(n);
        let before = free()?;
        let start = micros();
        // SAFETY: a context is current; every block that is given is freed below, and none is ever read or written.
        let given = (0..n).try_for_each(|_| unsafe { result::malloc_sync(size) }.map(|block| blocks.push(block)));
        let full = micros();
        let during = free();
        let back = micros();
        // SAFETY: each came from `malloc_sync` of this context, and nothing uses it.
        let freed = blocks.iter().try_for_each(|block| unsafe { result::free_sync(*block) });
        let end = micros();
        given.map_err(failed("taking device memory"))?;
        freed.map_err(failed("giving device memory back"))?;
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64;
        Ok(Taken { take_us: us(start, full), give_back_us: us(back, end), fell: before - during? })
    }

    /// Ordinary memory of this device, of this process alone.
    fn properties(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: i32::try_from(self.context.ordinal()).unwrap_or(0),
            },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }
}
