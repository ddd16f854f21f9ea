//! The NVIDIA driver through NVML: everything that is known about a GPU.
//!
//! One thread of its own does every call, because NVML serialises them anyway and any of them may hang;
//! it is never joined, and there is never a second one. What each class reads and how often is said in
//! [`session`]. Invariants: nothing is ever set or reset; no value is made up where the driver gives
//! none; nobody waits for this thread.

mod gpm;
mod gpu;
mod open;
mod pace;
mod raw;
mod session;
mod share;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use crate::model::SourceId;

use super::thread::{say, start as start_thread};
use super::{Context, Options, Sampler};
use session::Session;
use watchdog::{Doing, Heart};

pub(super) const SAMPLER: Sampler = Sampler {
    id: "nvml",
    help: "GPUs through the NVIDIA driver: activity (GPM), clocks and power at --interval; memory, temperatures \
           and processes once a second, and how they share a GPU; NVLinks, errors and limits every 10 s",
    start,
};

/// How long to wait before looking again for a driver that could not be opened.
const RETRY: Duration = Duration::from_secs(10);

fn start(context: &Context, options: &Options) {
    let heart = Arc::new(Heart::default());
    watchdog::start(context, &heart);
    let options = options.clone();
    start_thread(context, SourceId::Nvml, "warptop-nvml", move |context| run(context, &heart, &options));
}

fn run(context: &Context, heart: &Heart, options: &Options) {
    loop {
        match heart.inside(&*context.clock, Doing::Opening, || open::open(options.nvml_library.as_deref())).0 {
            Ok(driver) => return Session::new(context, heart, driver, &options.gpu_ids).run(),
            Err(state) => say(context, SourceId::Nvml, state),
        }
        if context.stop.wait(RETRY) {
            return;
        }
    }
}
