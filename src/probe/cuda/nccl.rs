//! NCCL as far as a sum over all GPUs goes: found at run time, one process, one thread.
//!
//! Invariants: the library is never unloaded, since threads of its own run in it; what it prints does not come between a
//! probe and the one it speaks to ([`Link::let_libraries_print`]).

#![expect(unsafe_code, reason = "a library of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;

use super::{Buffer, Failure, Gpu, Library, Wanted, failed};
use crate::probe::Link;

const NCCL: Wanted = Wanted { name: "NCCL", files: &["libnccl.so.2", "libnccl.so"], package: "PyTorch" };

/// `ncclFloat32` and `ncclSum` of nccl.h.
const FLOAT: c_int = 7;
const SUM: c_int = 0;

type Comm = *mut c_void;

/// Functions of nccl.h. Results are `ncclResult_t`, 0 for success.
#[derive(Clone, Copy)]
struct Functions {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    init_all: unsafe extern "C" fn(*mut Comm, c_int, *const c_int) -> c_int,
    destroy: unsafe extern "C" fn(Comm) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    all_reduce: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void) -> c_int,
}

/// The library.
pub(in crate::probe) struct Nccl {
    functions: Functions,
    /// Its version, e.g. `2.27.3`.
    pub(in crate::probe) version: String,
    /// Where it lies.
    pub(in crate::probe) path: PathBuf,
}

/// A group of GPUs that compute together.
pub(in crate::probe) struct Group<'a> {
    functions: Functions,
    gpus: &'a [Gpu],
    comms: Vec<Comm>,
}

/// Where a GPU's part of a sum is, and where the sum goes.
#[derive(Clone, Copy)]
pub(in crate::probe) struct Place<'a> {
    /// The numbers that go in.
    pub(in crate::probe) from: &'a Buffer,
    /// Room for the sum.
    pub(in crate::probe) to: &'a Buffer,
}

impl Nccl {
    /// Finds it.
    ///
    /// # Errors
    /// That it is not on this machine, with where was looked.
    pub(in crate::probe) fn find() -> Result<Self, Failure> {
        Link::let_libraries_print()?;
        Library::find(NCCL, |library| {
            // SAFETY: types of nccl.h, the same since version 2.0.
            let functions = unsafe {
                Functions {
                    version: library.function("ncclGetVersion")?,
                    error: library.function("ncclGetErrorString")?,
                    init_all: library.function("ncclCommInitAll")?,
                    destroy: library.function("ncclCommDestroy")?,
                    group_start: library.function("ncclGroupStart")?,
                    group_end: library.function("ncclGroupEnd")?,
                    all_reduce: library.function("ncclAllReduce")?,
                }
            };
            let path = library.path.clone();
            // It stays for as long as the process does.
            std::mem::forget(library);
            let mut version = 0;
            // SAFETY: a place for its answer.
            functions.check("asking for the version", unsafe { (functions.version)(&raw mut version) })?;
            Ok(Self { functions, version: version_of(version), path })
        })
    }

    /// Makes a group of these GPUs.
    ///
    /// # Errors
    /// The library's.
    pub(in crate::probe) fn group<'a>(&self, gpus: &'a [Gpu]) -> Result<Group<'a>, Failure> {
        let ordinals: Vec<_> = gpus.iter().map(|gpu| c_int::try_from(gpu.context.ordinal()).unwrap_or(0)).collect();
        let mut comms = vec![std::ptr::null_mut(); gpus.len()];
        let n = c_int::try_from(gpus.len()).unwrap_or(0);
        // SAFETY: as many places and devices as are said.
        let made = unsafe { (self.functions.init_all)(comms.as_mut_ptr(), n, ordinals.as_ptr()) };
        self.functions.check("starting", made)?;
        Ok(Group { functions: self.functions, gpus, comms })
    }
}

impl Functions {
    fn check(&self, what: &str, result: c_int) -> Result<(), Failure> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: it gives a text that is always there.
        let text = unsafe { (self.error)(result) };
        let text = if text.is_null() {
            format!("error {result}")
        } else {
            // SAFETY: the library's text ends with a 0.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(Failure::Failed(format!("NCCL: {what} did not work: {text}")))
    }
}

impl Group<'_> {
    /// Gives each GPU's stream the sum of `n` floats over all GPUs, each with its place. The memory has to live until it is
    /// done.
    ///
    /// # Errors
    /// When a place is too small, or the library's.
    pub(in crate::probe) fn sum(&self, places: &[Place<'_>], n: u64) -> Result<(), Failure> {
        let bytes = n.saturating_mul(4);
        for place in places {
            place.from.at(0, bytes)?;
            place.to.at(0, bytes)?;
        }
        if places.len() != self.comms.len() {
            return Err(Failure::Failed("a sum needs a place on each GPU".to_owned()));
        }
        let count = usize::try_from(n).unwrap_or(0);
        // SAFETY: no arguments.
        self.functions.check("a group", unsafe { (self.functions.group_start)() })?;
        let mut given = Ok(());
        for ((comm, gpu), place) in self.comms.iter().zip(self.gpus).zip(places) {
            let (from, to) = (place.from.address(), place.to.address());
            let stream = gpu.stream.raw().cu_stream().cast();
            // SAFETY: within device memory of that communicator's GPU, and a stream of it.
            let result = unsafe {
                (self.functions.all_reduce)(from as *const c_void, to as *mut c_void, count, FLOAT, SUM, *comm, stream)
            };
            given = given.and_then(|()| self.functions.check("a sum over all GPUs", result));
        }
        // A group that was begun has to be ended. SAFETY: no arguments.
        let ended = self.functions.check("a sum over all GPUs", unsafe { (self.functions.group_end)() });
        given.and(ended)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        for gpu in self.gpus {
            // An error here was or will be told by the call it belongs to.
            drop(gpu.context.synchronize().map_err(failed("waiting for the GPU")));
        }
        for comm in &self.comms {
            // SAFETY: made by `init_all`, let go of once.
            let _ = unsafe { (self.functions.destroy)(*comm) };
        }
    }
}

/// A version as nccl.h counts: 22703 is 2.27.3; before 2.9, 2708 is 2.7.8.
fn version_of(number: c_int) -> String {
    let (major, minor) =
        if number >= 10_000 { (number / 10_000, number / 100 % 100) } else { (number / 1000, number / 100 % 10) };
    format!("{major}.{minor}.{}", number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_counted() {
        assert_eq!([22_703, 22_007, 2_708].map(version_of), ["2.27.3", "2.20.7", "2.7.8"]);
    }
}
