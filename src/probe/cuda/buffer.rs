//! Memory of the device and of the host, with the copies that wait.

#![expect(unsafe_code, reason = "device memory is addresses; what keeps them valid is in here")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::{CudaContext, result, sys};

use super::{Failure, Gpu, MIB, choose, failed};

/// Device memory.
pub(in crate::probe) struct Buffer {
    context: Arc<CudaContext>,
    room: Arc<AtomicU64>,
    address: u64,
    bytes: u64,
}

impl Gpu {
    /// Takes device memory; its content is whatever was there.
    ///
    /// # Errors
    /// When it is more than the run may take, or the driver has no such block.
    pub(in crate::probe) fn buffer(&self, bytes: u64) -> Result<Buffer, Failure> {
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes));
        if let Err(room) = taken {
            let mib = |bytes: u64| bytes as f64 / MIB;
            return Err(Failure::Failed(format!(
                "the probe wants {:.0} MiB of device memory and may take {:.0} more",
                mib(bytes),
                mib(room)
            )));
        }
        choose(&self.context)?;
        // SAFETY: a context is current. Memory of a pool would stay with the process when it is freed.
        match unsafe { result::malloc_sync(usize::try_from(bytes).unwrap_or(usize::MAX)) } {
            Ok(address) => {
                Ok(Buffer { context: Arc::clone(&self.context), room: Arc::clone(&self.room), address, bytes })
            }
            Err(error) => {
                self.room.fetch_add(bytes, Ordering::Relaxed);
                Err(failed("taking device memory")(error))
            }
        }
    }
}

impl Buffer {
    /// Its address on the device.
    pub(in crate::probe) const fn address(&self) -> u64 {
        self.address
    }

    /// Its size, bytes.
    pub(in crate::probe) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The context it belongs to.
    pub(super) const fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Copies `into.len()` bytes from `at` to the host, and waits for it.
    ///
    /// # Errors
    /// When the range is not within the buffer, or what went wrong on the device before.
    pub(in crate::probe) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Failure> {
        let from = self.at(at, into.len() as u64)?;
        self.context.synchronize().map_err(failed("waiting for the GPU"))?;
        choose(&self.context)?;
        // SAFETY: the range is within the buffer; the call returns when the copy is done.
        unsafe { result::memcpy_dtoh_sync(into, from) }.map_err(failed("copying to the host"))
    }

    /// Copies `from` to the device at `at`, and waits for it.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub(in crate::probe) fn write(&self, at: u64, from: &[u8]) -> Result<(), Failure> {
        let to = self.at(at, from.len() as u64)?;
        self.context.synchronize().map_err(failed("waiting for the GPU"))?;
        choose(&self.context)?;
        // SAFETY: the range is within the buffer; the call returns when `from` was read.
        unsafe { result::memcpy_htod_sync(to, from) }.map_err(failed("copying to the GPU"))
    }

    /// The unsigned 64-bit word at `at`.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub(in crate::probe) fn word(&self, at: u64) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The address of `bytes` at `at`.
    ///
    /// # Errors
    /// When they are not within the buffer.
    pub(super) fn at(&self, at: u64, bytes: u64) -> Result<u64, Failure> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.bytes);
        let outside = || Failure::Failed("the probe reaches beyond its device memory".to_owned());
        end.map(|_| self.address + at).ok_or_else(outside)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Work that still uses it has to be done. An error here was or will be told by the call it belongs to.
        let _ = self.context.synchronize();
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: it came from `malloc_sync` of this context, and nothing uses it any more.
            let _ = unsafe { result::free_sync(self.address) };
        }
        self.room.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Memory of the host that the device copies from and to.
pub(in crate::probe) struct HostBuffer {
    context: Arc<CudaContext>,
    start: *mut u8,
    bytes: usize,
    /// Memory that is not page-locked belongs to this.
    pageable: Option<Vec<u8>>,
}

impl Gpu {
    /// Page-locked memory of the host, all bytes 0: what the device reads without a copy in between. It lies on the
    /// NUMA node of the CPU that calls.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn pinned(&self, bytes: u64) -> Result<HostBuffer, Failure> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        choose(&self.context)?;
        // SAFETY: a context is current; the memory is filled before anybody reads it. Cached by the CPU, as a server's is.
        let start: *mut c_void = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }
            .map_err(failed("taking page-locked host memory"))?;
        let start = start.cast::<u8>();
        // SAFETY: the block was just given for this many bytes.
        unsafe { start.write_bytes(0, bytes) };
        Ok(HostBuffer { context: Arc::clone(&self.context), start, bytes, pageable: None })
    }

    /// Ordinary memory of the host, which the driver copies through a page-locked block of its own.
    pub(in crate::probe) fn pageable(&self, bytes: u64) -> HostBuffer {
        // Written, so that every page is there before it is timed.
        let mut memory = vec![1_u8; usize::try_from(bytes).unwrap_or(0)];
        let start = memory.as_mut_ptr();
        HostBuffer { context: Arc::clone(&self.context), start, bytes: memory.len(), pageable: Some(memory) }
    }
}

impl HostBuffer {
    /// The address of `bytes` at `at`.
    ///
    /// # Errors
    /// When they are not within the buffer.
    pub(super) fn at(&self, at: u64, bytes: u64) -> Result<*mut u8, Failure> {
        let within = at.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        let at = usize::try_from(at).ok().filter(|_| within);
        let at = at.ok_or_else(|| Failure::Failed("the probe reaches beyond its host memory".to_owned()))?;
        // SAFETY: within the block.
        Ok(unsafe { self.start.add(at) })
    }

    /// Its size, bytes.
    pub(in crate::probe) const fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Its content, once the device has done all that it was given.
    ///
    /// # Errors
    /// What went wrong on the device before.
    pub(in crate::probe) fn content(&mut self) -> Result<&mut [u8], Failure> {
        self.context.synchronize().map_err(failed("waiting for the GPU"))?;
        // SAFETY: the block is that long, was filled, and the device does not write to it any more.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) })
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // Copies that still use it have to be done.
        let _ = self.context.synchronize();
        if self.pageable.is_none() && self.context.bind_to_thread().is_ok() {
            // SAFETY: it came from `malloc_host`, and nothing uses it any more.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}
