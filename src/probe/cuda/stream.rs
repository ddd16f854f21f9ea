//! Work in order on a device: copies, fills, and events that say when.

#![expect(unsafe_code, reason = "the driver takes addresses; what keeps them valid is in here")]

use std::cell::Cell;
use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};

use super::random::pieces;
use super::{Buffer, Failure, HostBuffer, choose, failed};

/// Work that is done in the order it was given.
#[derive(Clone)]
pub(in crate::probe) struct Stream(Arc<CudaStream>);

/// A place in a stream, with the time at which the device came to it.
pub(in crate::probe) struct Event(CudaEvent);

/// Work that was given to a device which was still busy with what came before.
pub(in crate::probe) struct Queued {
    start: Event,
    /// Where it ends.
    pub(in crate::probe) end: Event,
    /// Whether the device came to it before all of it was there: the host's calls are part of its time then.
    pub(in crate::probe) late: bool,
}

/// How often the host was too slow to give work in time.
#[derive(Default)]
pub(in crate::probe) struct Lateness(Cell<(u32, u32)>);

impl Lateness {
    /// Counts a pass.
    pub(in crate::probe) fn count(&self, late: bool) {
        let (all, those) = self.0.get();
        self.0.set((all + 1, those + u32::from(late)));
    }

    /// Whether more than a tenth of the passes was late since this was asked last.
    pub(in crate::probe) fn take(&self) -> bool {
        let (all, those) = self.0.take();
        those * 10 > all
    }
}

impl Queued {
    /// Waits for it and says how long the device took, µs.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub(in crate::probe) fn us(&self) -> Result<f64, Failure> {
        self.end.us_since(&self.start)
    }
}

impl Stream {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, Failure> {
        context.new_stream().map(Self).map_err(failed("making a stream"))
    }

    pub(super) const fn raw(&self) -> &Arc<CudaStream> {
        &self.0
    }

    /// Waits until all of it is done.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub(in crate::probe) fn finish(&self) -> Result<(), Failure> {
        self.0.synchronize().map_err(failed("waiting for the GPU"))
    }

    /// Marks the place after all that was given so far.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn mark(&self) -> Result<Event, Failure> {
        let event = self.0.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        event.map(Event).map_err(failed("recording an event"))
    }

    /// What comes next waits for `event`, which another stream may have recorded.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn after(&self, event: &Event) -> Result<(), Failure> {
        self.0.wait(&event.0).map_err(failed("waiting for another stream"))
    }

    /// Gives `work` to the stream and waits for it. Returns how long the device took, µs.
    ///
    /// # Errors
    /// Those of `work`, or what went wrong on the device.
    pub(in crate::probe) fn time(&self, work: impl FnOnce(&Self) -> Result<(), Failure>) -> Result<f64, Failure> {
        let start = self.mark()?;
        work(self)?;
        self.mark()?.us_since(&start)
    }

    /// Gives `work` to the stream behind what keeps the device busy, and does not wait for it.
    ///
    /// # Errors
    /// Those of `work`, or the driver's.
    pub(in crate::probe) fn queue(&self, work: impl FnOnce(&Self) -> Result<(), Failure>) -> Result<Queued, Failure> {
        let start = self.mark()?;
        work(self)?;
        let end = self.mark()?;
        let late = start.is_reached();
        Ok(Queued { start, end, late })
    }

    /// Sets every byte of a buffer, in pieces that others get in between.
    ///
    /// # Errors
    /// The driver's.
    pub(in crate::probe) fn fill(&self, buffer: &Buffer, byte: u8) -> Result<(), Failure> {
        choose(self.0.context())?;
        pieces(buffer.bytes()).try_for_each(|(at, bytes)| {
            let bytes = usize::try_from(bytes).unwrap_or(0);
            // SAFETY: within a buffer that lives until the stream is done with it (see its `Drop`).
            let done = unsafe { sys::cuMemsetD8Async(buffer.address() + at, byte, bytes, self.0.cu_stream()) };
            done.result().map_err(failed("filling device memory"))
        })
    }

    /// Copies `bytes` from the host to the device, each from its offset.
    ///
    /// # Errors
    /// When one is too short, or the driver's.
    pub(in crate::probe) fn to_device(
        &self,
        (to, to_at): (&Buffer, u64),
        (from, from_at): (&HostBuffer, u64),
        bytes: u64,
    ) -> Result<(), Failure> {
        let (to, from) = (to.at(to_at, bytes)?, from.at(from_at, bytes)?);
        choose(self.0.context())?;
        let n = usize::try_from(bytes).unwrap_or(0);
        // SAFETY: within both, which live until the stream is done with them.
        let done = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast_const().cast(), n, self.0.cu_stream()) };
        done.result().map_err(failed("copying to the GPU"))
    }

    /// Copies `bytes` from the device to the host, each from its offset.
    ///
    /// # Errors
    /// When one is too short, or the driver's.
    pub(in crate::probe) fn to_host(
        &self,
        (to, to_at): (&HostBuffer, u64),
        (from, from_at): (&Buffer, u64),
        bytes: u64,
    ) -> Result<(), Failure> {
        let (to, from) = (to.at(to_at, bytes)?, from.at(from_at, bytes)?);
        choose(self.0.context())?;
        let n = usize::try_from(bytes).unwrap_or(0);
        // SAFETY: within both, which live until the stream is done with them.
        let done = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, n, self.0.cu_stream()) };
        done.result().map_err(failed("copying to the host"))
    }
}

impl Event {
    /// Waits for this place and says how long after `start` the device came to it, µs. Resolution is about 0.5 µs.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub(in crate::probe) fn us_since(&self, start: &Self) -> Result<f64, Failure> {
        self.0.synchronize().map_err(failed("waiting for the GPU"))?;
        start.0.elapsed_ms(&self.0).map(|ms| f64::from(ms) * 1e3).map_err(failed("reading the time of an event"))
    }

    /// Whether the device has come to this place.
    fn is_reached(&self) -> bool {
        self.0.is_complete()
    }
}
