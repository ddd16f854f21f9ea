//! The NVIDIA driver through NVML: everything that is known about a GPU.
//!
//! One thread of its own does every call, because NVML serialises them anyway and any of them may hang;
//! it is never joined, and there is never a second one. What each class reads and how often is said in
//! [`session`]. A driver that answers nothing any more, or shows other GPUs, is closed and opened again by the same thread.
//! Invariants: nothing is ever set or reset; no value is made up where the driver gives
//! none; nobody waits for this thread; the library is not loaded before a process of its own has shown that it can be.

mod activity;
mod gpm;
mod gpu;
mod health;
mod notes;
mod open;
mod pace;
mod processes;
mod raw;
mod session;
mod share;
mod shown;
mod trial;
mod watchdog;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::Nvml;

use crate::model::{Clock, SourceId, SourceState};

use super::thread::{say, start as start_thread};
use super::{Context, Options, Sampler};
use session::{End, Session};
use shown::Shown;
use watchdog::{Doing, Heart};

pub use trial::{LOAD_DRIVER, load_driver};

pub(super) const SAMPLER: Sampler = Sampler {
    id: "nvml",
    help: "GPUs through the NVIDIA driver: activity (GPM), clocks and power at --interval; memory, temperatures \
           and processes once a second, and how they share a GPU; NVLinks, errors and limits every 10 s",
    start,
};

/// How long to wait before looking again for a driver that could not be opened, or was closed because it does not answer.
const RETRY: Duration = Duration::from_secs(10);
/// The same of one that was closed because it shows other GPUs.
const SOON: Duration = Duration::from_millis(100);

fn start(context: &Context, options: &Options) {
    let heart = Arc::new(Heart::default());
    watchdog::start(context, &heart);
    let options = options.clone();
    start_thread(context, SourceId::Nvml, "warptop-nvml", move |context| run(context, &heart, &options));
}

/// Opens the driver, once a process of its own has shown that its library can be loaded.
fn open(clock: &dyn Clock, heart: &Heart, options: &Options) -> Result<(Nvml, u32), SourceState> {
    let library = options.nvml_library.as_deref().unwrap_or(Path::new(trial::LIBRARY));
    if let Some(program) = &options.loader {
        let tried = heart.inside(clock, Doing::Loading, || trial::of(program, library)).0;
        tried.map_err(|why| SourceState::Failed(why.into()))?;
    }
    heart.inside(clock, Doing::Opening, || open::open(library)).0
}

fn run(context: &Context, heart: &Heart, options: &Options) {
    let clock = &*context.clock;
    let mut shown = Shown::default();
    loop {
        let mut wait = RETRY;
        match open(clock, heart, options) {
            Ok((nvml, count)) => {
                let mut session = Session::new(context, heart, &nvml, count, &mut shown, options);
                match session.run() {
                    End::Stop => {
                        // What is open stays so to the end of the process: closing it might hang.
                        std::mem::forget(session);
                        return std::mem::forget(nvml);
                    }
                    End::Silent => {}
                    End::Changed => wait = SOON,
                }
                // A driver that was replaced or reset is another library, and a module can only be loaded anew, and a GPU
                // only be reset, once nobody has it open. Five times closed and opened on an H200 (driver 580) took 5 ms and
                // 11 ms each, and the library was gone in between.
                heart.inside(clock, Doing::Closing, || drop(session));
                heart.inside(clock, Doing::Closing, || drop(nvml));
            }
            Err(state) => say(context, SourceId::Nvml, state),
        }
        if context.stop.wait(wait) {
            return;
        }
    }
}
