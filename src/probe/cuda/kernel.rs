//! Kernels: loaded from the PTX in `assets/kernels`, which the driver itself compiles, and launched.

#![expect(unsafe_code, reason = "the driver takes arguments as addresses of values")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, result, sys};
use cudarc::nvrtc::Ptx;

use super::{Buffer, Failure, Gpu, Stream, choose, failed, words};

/// Loaded kernels.
pub(in crate::probe) struct Module(Arc<CudaModule>);

/// One kernel.
#[derive(Clone)]
pub(in crate::probe) struct Kernel(CudaFunction);

/// How many threads a kernel gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::probe) struct Grid {
    /// Blocks along x and y.
    pub(in crate::probe) blocks: (u32, u32),
    /// Threads of each block.
    pub(in crate::probe) threads: u32,
    /// Shared memory of each block besides what the kernel declares, bytes.
    pub(in crate::probe) shared: u32,
}

impl Grid {
    /// This many blocks in a row.
    pub(in crate::probe) const fn new(blocks: u32, threads: u32) -> Self {
        Self { blocks: (blocks, 1), threads, shared: 0 }
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(in crate::probe) enum Arg {
    /// `unsigned long long`, or an address.
    U64(u64),
    /// `unsigned int`.
    U32(u32),
    /// `double`.
    F64(f64),
}

impl From<&Buffer> for Arg {
    fn from(buffer: &Buffer) -> Self {
        Self::U64(buffer.address())
    }
}

impl Arg {
    const fn place(&self) -> *mut c_void {
        match self {
            Self::U64(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Self::U32(value) => std::ptr::from_ref(value).cast_mut().cast(),
            Self::F64(value) => std::ptr::from_ref(value).cast_mut().cast(),
        }
    }
}

impl Gpu {
    /// Loads kernels; the driver compiles them for this device.
    ///
    /// # Errors
    /// When it cannot: the device is older than the kernels are for, or the driver older than their language.
    pub(in crate::probe) fn module(&self, ptx: &str) -> Result<Module, Failure> {
        let module = self.context.load_module(Ptx::from_src(ptx));
        module.map(Module).map_err(|error| {
            Failure::Unavailable(format!(
                "the driver cannot compile the probe's kernels for this GPU: {}",
                words(error)
            ))
        })
    }
}

impl Module {
    /// The kernel with this name.
    ///
    /// # Errors
    /// When there is none.
    pub(in crate::probe) fn kernel(&self, name: &str) -> Result<Kernel, Failure> {
        self.0.load_function(name).map(Kernel).map_err(failed("looking for a kernel"))
    }

    /// The same, for launches with this much shared memory of the grid's own, bytes: more than the usual 48 KiB.
    ///
    /// # Errors
    /// When there is none, or the GPU does not have that much.
    pub(in crate::probe) fn kernel_sharing(&self, name: &str, bytes: u32) -> Result<Kernel, Failure> {
        let kernel = self.kernel(name)?;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: a kernel that lives; a property of this process' copy of it.
        let done = unsafe { sys::cuFuncSetAttribute(kernel.0.cu_function(), most, bytes) };
        done.result().map_err(failed("taking shared memory"))?;
        Ok(kernel)
    }
}

impl Stream {
    /// Gives a kernel to the stream. The arguments have to be those that it declares, in type and order.
    ///
    /// # Errors
    /// The driver's; what goes wrong while it runs is told by a later call.
    pub(in crate::probe) fn launch(&self, kernel: &Kernel, grid: Grid, args: &[Arg]) -> Result<(), Failure> {
        self.launch_times(1, kernel, grid, args)
    }

    /// Gives a kernel to the stream `n` times, with nothing but the driver's call in between.
    ///
    /// # Errors
    /// As for [`Self::launch`].
    pub(in crate::probe) fn launch_times(
        &self,
        n: u32,
        kernel: &Kernel,
        grid: Grid,
        args: &[Arg],
    ) -> Result<(), Failure> {
        let mut places = [std::ptr::null_mut(); 16];
        let places = places.get_mut(..args.len()).ok_or_else(|| Failure::Failed("too many arguments".to_owned()))?;
        for (place, arg) in places.iter_mut().zip(args) {
            *place = arg.place();
        }
        let stream = self.raw();
        choose(stream.context())?;
        let (function, stream) = (kernel.0.cu_function(), stream.cu_stream());
        let (blocks, threads) = ((grid.blocks.0, grid.blocks.1, 1), (grid.threads, 1, 1));
        for _ in 0..n {
            // SAFETY: the driver copies the arguments before it returns; what the kernel does with them is what the
            // module's description says.
            unsafe { result::launch_kernel(function, blocks, threads, grid.shared, stream, places) }
                .map_err(failed("launching a kernel"))?;
        }
        Ok(())
    }
}
