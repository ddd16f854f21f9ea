//! Several GPUs of one machine: whether one reaches the other's memory, and copies between them.

#![expect(unsafe_code, reason = "the driver takes addresses; what keeps them valid is in here")]

use cudarc::driver::sys::CUdevice_P2PAttribute as Attribute;
use cudarc::driver::{DriverError, sys};

use super::{Buffer, Failure, Gpu, Stream, choose, failed, words};

/// What the driver says of one GPU's way to the memory of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::probe) struct Peering {
    /// Whether it may be reached at all.
    pub(in crate::probe) access: bool,
    /// The driver's order of links, 0 the fastest of this machine; `None` when it does not say.
    pub(in crate::probe) rank: Option<i32>,
    /// Whether atomic operations work across the link.
    pub(in crate::probe) atomics: bool,
}

impl Gpu {
    /// What the driver says of the way from this GPU to the memory of `other`.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn peering(&self, other: &Self) -> Result<Peering, Failure> {
        let (from, to) = (self.context.cu_device(), other.context.cu_device());
        let mut access = 0;
        // SAFETY: two devices of the driver, and a place for its answer.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut access, from, to) };
        asked.result().map_err(failed("asking for peer access"))?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: as above.
            let asked = unsafe { sys::cuDeviceGetP2PAttribute(&raw mut value, attribute, from, to) };
            asked.result().ok().map(|()| value)
        };
        Ok(Peering {
            access: access != 0,
            rank: attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK),
            atomics: attribute(Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) == Some(1),
        })
    }

    /// Lets kernels and copies of this process on this GPU reach its memory on `other`, as long as the process lives.
    /// Another process sees nothing of it.
    ///
    /// # Errors
    /// Why the driver does not let it, in words.
    pub(in crate::probe) fn reach(&self, other: &Self) -> Result<(), String> {
        self.context.bind_to_thread().map_err(words)?;
        // SAFETY: two contexts of this process, both of which live.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context.cu_ctx(), 0) }.result() {
            Ok(()) | Err(DriverError(sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)) => Ok(()),
            Err(error) => Err(words(error)),
        }
    }
}

impl Stream {
    /// Copies `bytes` between memory of any two GPUs, each from its offset: straight where this process was given the
    /// reach, else through the host. Both have to live until it is done.
    ///
    /// # Errors
    /// When one is too short, or the driver's.
    pub(in crate::probe) fn copy_across(
        &self,
        (to, to_at): (&Buffer, u64),
        (from, from_at): (&Buffer, u64),
        bytes: u64,
    ) -> Result<(), Failure> {
        let (to, to_context) = (to.at(to_at, bytes)?, to.context());
        let (from, from_context) = (from.at(from_at, bytes)?, from.context());
        choose(self.raw().context())?;
        let n = usize::try_from(bytes).unwrap_or(0);
        // SAFETY: within both blocks, which are device memory of the contexts that are named: no memory of the host can be
        // hit, even by a copy that is late.
        let done = unsafe {
            sys::cuMemcpyPeerAsync(to, to_context.cu_ctx(), from, from_context.cu_ctx(), n, self.raw().cu_stream())
        };
        done.result().map_err(failed("copying between GPUs"))
    }
}
