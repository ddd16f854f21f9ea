//! Matrix products by cuBLASLt, where it is found.
//!
//! Owns the calls into that library. It must not know what is measured. Invariants: a product touches no memory beyond
//! the buffers it was given, whose sizes are compared with the shape before; descriptors and algorithms are made once,
//! so that a product is one call.

#![expect(unsafe_code, reason = "cuBLASLt is a library of C")]

use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, from_ref, null_mut};
use std::rc::Rc;

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as Attribute,
    cublasLtMatmulPreferenceAttributes_t as Preference, cudaDataType_t as Type,
};

use super::{Buffer, Failure, Gpu, Library, Stream, Wanted, choose};

const WANTED: Wanted = Wanted {
    name: "cuBLASLt",
    files: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"],
    package: "PyTorch (or the package nvidia-cublas)",
};
/// Memory that algorithms may use besides the matrices, bytes: NVIDIA's advice for Hopper, and enough for others.
pub(in crate::probe) const WORKSPACE: u64 = 32 << 20;
/// Algorithms that the library is asked for.
const ALGORITHMS: u8 = 8;

/// Number formats of a product: of the operands, of the result, and what it is computed with.
#[derive(Clone, Copy, Debug)]
pub(in crate::probe) struct Types {
    operands: Type,
    product: Type,
    compute: Compute,
    /// Bytes of an element of an operand and of the product.
    bytes: (u64, u64),
}

impl Types {
    /// Bf16, added up in fp32, to bf16.
    pub(in crate::probe) const BF16: Self = Self::new(Type::CUDA_R_16BF, Type::CUDA_R_16BF, (2, 2));
    /// Fp16, added up in fp32, to fp16.
    pub(in crate::probe) const FP16: Self = Self::new(Type::CUDA_R_16F, Type::CUDA_R_16F, (2, 2));
    /// Fp32 of which the tensor cores take 19 bits, to fp32.
    pub(in crate::probe) const TF32: Self = Self {
        compute: Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        ..Self::new(Type::CUDA_R_32F, Type::CUDA_R_32F, (4, 4))
    };
    /// Fp8 with 4 bits of exponent and 3 of fraction, to bf16.
    pub(in crate::probe) const FP8: Self = Self::new(Type::CUDA_R_8F_E4M3, Type::CUDA_R_16BF, (1, 2));

    const fn new(operands: Type, product: Type, bytes: (u64, u64)) -> Self {
        Self { operands, product, compute: Compute::CUBLAS_COMPUTE_32F, bytes }
    }
}

/// What `cublasLtMatmulAlgoGetHeuristic` fills in (cublasLt.h, `cublasLtMatmulHeuristicResult_t`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Algorithm {
    algo: [u64; 8],
    workspace: usize,
    state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

/// Functions of the library, as cublasLt.h declares them; a status is a number, so that no value of it is wrong.
struct Api {
    create: unsafe extern "C" fn(*mut sys::cublasLtHandle_t) -> u32,
    destroy: unsafe extern "C" fn(sys::cublasLtHandle_t) -> u32,
    version: unsafe extern "C" fn() -> usize,
    layout: unsafe extern "C" fn(*mut sys::cublasLtMatrixLayout_t, u32, u64, u64, i64) -> u32,
    layout_destroy: unsafe extern "C" fn(sys::cublasLtMatrixLayout_t) -> u32,
    matmul_desc: unsafe extern "C" fn(*mut sys::cublasLtMatmulDesc_t, u32, u32) -> u32,
    matmul_desc_put: unsafe extern "C" fn(sys::cublasLtMatmulDesc_t, u32, *const c_void, usize) -> u32,
    matmul_desc_destroy: unsafe extern "C" fn(sys::cublasLtMatmulDesc_t) -> u32,
    preference: unsafe extern "C" fn(*mut sys::cublasLtMatmulPreference_t) -> u32,
    preference_put: unsafe extern "C" fn(sys::cublasLtMatmulPreference_t, u32, *const c_void, usize) -> u32,
    preference_destroy: unsafe extern "C" fn(sys::cublasLtMatmulPreference_t) -> u32,
    heuristic: unsafe extern "C" fn(
        sys::cublasLtHandle_t,
        sys::cublasLtMatmulDesc_t,
        sys::cublasLtMatrixLayout_t,
        sys::cublasLtMatrixLayout_t,
        sys::cublasLtMatrixLayout_t,
        sys::cublasLtMatrixLayout_t,
        sys::cublasLtMatmulPreference_t,
        c_int,
        *mut Algorithm,
        *mut c_int,
    ) -> u32,
    matmul: unsafe extern "C" fn(
        sys::cublasLtHandle_t,
        sys::cublasLtMatmulDesc_t,
        *const c_void,
        *const c_void,
        sys::cublasLtMatrixLayout_t,
        *const c_void,
        sys::cublasLtMatrixLayout_t,
        *const c_void,
        *const c_void,
        sys::cublasLtMatrixLayout_t,
        *mut c_void,
        sys::cublasLtMatrixLayout_t,
        *const u64,
        *mut c_void,
        usize,
        sys::cudaStream_t,
    ) -> u32,
}

impl Api {
    fn of(library: &Library) -> Result<Self, Failure> {
        // SAFETY: the types above are those of cublasLt.h; enumerations are passed as the numbers that they are in C.
        // The library stays loaded as long as the `Inner` that holds both.
        unsafe {
            Ok(Self {
                create: library.function("cublasLtCreate")?,
                destroy: library.function("cublasLtDestroy")?,
                version: library.function("cublasLtGetVersion")?,
                layout: library.function("cublasLtMatrixLayoutCreate")?,
                layout_destroy: library.function("cublasLtMatrixLayoutDestroy")?,
                matmul_desc: library.function("cublasLtMatmulDescCreate")?,
                matmul_desc_put: library.function("cublasLtMatmulDescSetAttribute")?,
                matmul_desc_destroy: library.function("cublasLtMatmulDescDestroy")?,
                preference: library.function("cublasLtMatmulPreferenceCreate")?,
                preference_put: library.function("cublasLtMatmulPreferenceSetAttribute")?,
                preference_destroy: library.function("cublasLtMatmulPreferenceDestroy")?,
                heuristic: library.function("cublasLtMatmulAlgoGetHeuristic")?,
                matmul: library.function("cublasLtMatmul")?,
            })
        }
    }
}

/// The words for a call of the library that did not work.
fn done(status: u32, what: &str) -> Result<(), Failure> {
    let meaning = match status {
        0 => return Ok(()),
        1 => "not initialised",
        3 => "out of memory",
        7 => "invalid value",
        8 => "not for this GPU",
        13 => "execution failed",
        14 => "internal error",
        15 => "not supported",
        _ => "see cublasStatus_t",
    };
    Err(Failure::Failed(format!("cuBLASLt: {what} did not work: status {status} ({meaning})")))
}

struct Inner {
    api: Api,
    handle: sys::cublasLtHandle_t,
    /// Last: what is above is of no use without it.
    library: Library,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: it was made by this library, and every product that used it is gone.
            unsafe { (self.api.destroy)(self.handle) };
        }
    }
}

/// CuBLASLt with memory to work in.
pub(in crate::probe) struct BlasLt {
    inner: Rc<Inner>,
    workspace: Rc<Buffer>,
}

impl BlasLt {
    /// Finds and starts the library for a GPU.
    ///
    /// # Errors
    /// That it is not on this machine, or will not do, and why.
    pub(in crate::probe) fn open(gpu: &Gpu) -> Result<Self, Failure> {
        choose(&gpu.context)?;
        let inner = Library::find(WANTED, |library| {
            let mut inner = Inner { api: Api::of(&library)?, handle: null_mut(), library };
            // SAFETY: a context is current; the handle is written where it points.
            done(unsafe { (inner.api.create)(&raw mut inner.handle) }, "starting").map(|()| inner)
        })?;
        Ok(Self { inner: Rc::new(inner), workspace: Rc::new(gpu.buffer(WORKSPACE)?) })
    }

    /// Version and path, e.g. `12.8.4 (/usr/lib/libcublasLt.so.12)`.
    pub(in crate::probe) fn version(&self) -> String {
        // SAFETY: takes nothing, returns a number.
        let version = unsafe { (self.inner.api.version)() };
        format!("{} ({})", version_words(version), self.inner.library.lies_at().display())
    }

    /// Prepares products C = A · Bᵀ of n × n matrices whose rows lie one after another.
    ///
    /// # Errors
    /// When the library has no algorithm for them here.
    pub(in crate::probe) fn products(&self, types: Types, n: u64) -> Result<Products, Failure> {
        let mut out = Products {
            lt: Rc::clone(&self.inner),
            workspace: Rc::clone(&self.workspace),
            desc: null_mut(),
            operand: null_mut(),
            product: null_mut(),
            algorithms: Vec::new(),
            bytes: (n * n * types.bytes.0, n * n * types.bytes.1),
        };
        let api = &self.inner.api;
        let (ld, transposed) = (i64::try_from(n).unwrap_or(i64::MAX), 1_i32);
        // SAFETY: descriptors are written where they point, and attributes read from values that outlive the call, in
        // their size by cublasLt.h. A library of the host's memory: nothing is computed yet.
        unsafe {
            let (fp32, size) = (Type::CUDA_R_32F as u32, size_of::<i32>());
            done((api.matmul_desc)(&raw mut out.desc, types.compute as u32, fp32), "describing a product")?;
            // Columns of the library are rows here: it sees C transposed, which is B transposed twice times A.
            let transa = Attribute::CUBLASLT_MATMUL_DESC_TRANSA as u32;
            done((api.matmul_desc_put)(out.desc, transa, from_ref(&transposed).cast(), size), "describing a product")?;
            done((api.layout)(&raw mut out.operand, types.operands as u32, n, n, ld), "describing a matrix")?;
            done((api.layout)(&raw mut out.product, types.product as u32, n, n, ld), "describing a matrix")?;
        }
        out.ask()?;
        Ok(out)
    }
}

/// `120804` is 12.8.4; before 12.0 there was one digit less for the minor version.
fn version_words(version: usize) -> String {
    let major = if version >= 100_000 { 10_000 } else { 1_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

/// Products of matrices of one shape and format.
pub(in crate::probe) struct Products {
    lt: Rc<Inner>,
    workspace: Rc<Buffer>,
    desc: sys::cublasLtMatmulDesc_t,
    operand: sys::cublasLtMatrixLayout_t,
    product: sys::cublasLtMatrixLayout_t,
    /// Those that the library holds for the fastest, the fastest first.
    algorithms: Vec<Algorithm>,
    /// Bytes of an operand and of the product.
    bytes: (u64, u64),
}

impl Products {
    /// Asks the library for algorithms.
    fn ask(&mut self) -> Result<(), Failure> {
        let (api, mut preference) = (&self.lt.api, null_mut());
        let most = usize::try_from(self.workspace.bytes()).unwrap_or(0);
        let mut found = [Algorithm::default(); ALGORITHMS as usize];
        let mut count = 0;
        // SAFETY: descriptors of this library that live; room for as many results as are asked for.
        let status = unsafe {
            done((api.preference)(&raw mut preference), "asking for algorithms")?;
            let bytes = Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as u32;
            let put = (api.preference_put)(preference, bytes, from_ref(&most).cast(), size_of::<usize>());
            let (a, c) = (self.operand, self.product);
            let asked = (api.heuristic)(
                self.lt.handle,
                self.desc,
                a,
                a,
                c,
                c,
                preference,
                c_int::from(ALGORITHMS),
                found.as_mut_ptr(),
                from_mut(&mut count),
            );
            (api.preference_destroy)(preference);
            if put == 0 { asked } else { put }
        };
        done(status, "asking for algorithms")?;
        let found = found.into_iter().take(usize::try_from(count).unwrap_or(0));
        self.algorithms = found.filter(|algorithm| algorithm.state == 0 && algorithm.workspace <= most).collect();
        if self.algorithms.is_empty() {
            return Err(Failure::Unavailable("cuBLASLt has no algorithm for this format on this GPU".to_owned()));
        }
        Ok(())
    }

    /// How many algorithms there are to choose from.
    pub(in crate::probe) const fn algorithms(&self) -> usize {
        self.algorithms.len()
    }

    /// Gives one product by an algorithm to the stream.
    ///
    /// # Errors
    /// When a buffer is too small or the library cannot; what goes wrong while it runs is told by a later call.
    pub(in crate::probe) fn give(
        &self,
        stream: &Stream,
        algorithm: usize,
        (a, b): (&Buffer, &Buffer),
        c: &Buffer,
    ) -> Result<(), Failure> {
        for (buffer, bytes) in [(a, self.bytes.0), (b, self.bytes.0), (c, self.bytes.1)] {
            buffer.at(0, bytes)?;
        }
        let Some(algorithm) = self.algorithms.get(algorithm) else {
            return Err(Failure::Failed("there is no such algorithm".to_owned()));
        };
        choose(stream.raw().context())?;
        let (one, zero) = (1.0_f32, 0.0_f32);
        let at = |buffer: &Buffer| buffer.address() as *mut c_void;
        // SAFETY: descriptors and algorithm are of this library, handle and shape; each buffer is as large as its layout
        // says and lives until the device is done (see its `Drop`); the factors are read before the call returns.
        let status = unsafe {
            (self.lt.api.matmul)(
                self.lt.handle,
                self.desc,
                from_ref(&one).cast(),
                at(b),
                self.operand,
                at(a),
                self.operand,
                from_ref(&zero).cast(),
                at(c),
                self.product,
                at(c),
                self.product,
                algorithm.algo.as_ptr(),
                at(&self.workspace),
                usize::try_from(self.workspace.bytes()).unwrap_or(0),
                stream.raw().cu_stream().cast(),
            )
        };
        done(status, "a product")
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        let api = &self.lt.api;
        // SAFETY: each was made by this library and is not used any more: what the device still computes does not need
        // them.
        unsafe {
            if !self.desc.is_null() {
                (api.matmul_desc_destroy)(self.desc);
            }
            for layout in [self.operand, self.product].into_iter().filter(|layout| !layout.is_null()) {
                (api.layout_destroy)(layout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_both_ways_of_writing() {
        assert_eq!([120_804, 130_100, 11_803].map(version_words), ["12.8.4", "13.1.0", "11.8.3"]);
    }

    #[test]
    fn an_algorithm_is_laid_out_as_the_header_says() {
        assert_eq!(size_of::<Algorithm>(), size_of::<sys::cublasLtMatmulHeuristicResult_t>());
        assert_eq!(std::mem::offset_of!(Algorithm, state), 72);
    }

    #[test]
    fn a_status_is_told_in_words() {
        assert_eq!(done(0, "x"), Ok(()));
        let words = [15, 999].map(|status| done(status, "a product").unwrap_err().to_string());
        assert!(words[0].contains("a product did not work: status 15 (not supported)"), "{}", words[0]);
        assert!(words[1].contains("999"), "{}", words[1]);
    }
}
