//! What server and GPUs did during a level of a load sweep, beside what its client measured.
//!
//! Pure: what was read in, the level's figures out. It must not know how a load is made. Invariants: all of it is of the
//! level's measured time; what was not read then is missing, never 0; without a measured time nothing is said.
//!
//! | figure | formula | basis |
//! | --- | --- | --- |
//! | SM, DRAM, tensor, clocks | mean of the readings | as exact as they are dense |
//! | power | Δ energy ÷ Δt, else mean of the power readings | exact; mean |
//! | throttled time | the longest of the driver's counters | a lower bound: reasons overlap |
//! | running, waiting, KV use | mean and largest of the gauges | sampled once a second: shorter peaks are missed |
//! | preemptions | growth of the counter | exact between the scrapes |
//! | prefix hits | Δhits ÷ Δlookups, as in the KV pane | exact between the scrapes |

mod agreement;

use crate::load::Level;
use crate::load::level::{Server, Silicon};
use crate::model::{Metric, Subject, Time};
use crate::store::{Data, Window};

use super::exposed::{or, rate};
use super::kv;
use super::throttle::Throttled;

/// Fills in the level's server and GPUs from what was read in its measured time, which it returns. `engine` is the one that
/// was loaded, `gpus` those that it may use; none where it is on another host.
pub fn attach(data: &Data, engine: u8, gpus: &[u8], level: &mut Level) -> Option<Window> {
    let window = measured(level)?;
    level.server = server(data, engine, window, level);
    level.gpus = gpus.iter().map(|&gpu| silicon(data, gpu, window)).collect();
    Some(window)
}

/// The measured time; `None` before it began.
fn measured(level: &Level) -> Option<Window> {
    let window = Window { start: Time(level.from_unix_ms), end: Time(level.to_unix_ms) };
    (level.from_unix_ms > 0 && window.ms() > 0).then_some(window)
}

/// What the server said; `None` where it said nothing.
fn server(data: &Data, engine: u8, window: Window, level: &Level) -> Option<Server> {
    let mean = |metric| rate(data, engine, metric, window).value();
    let series = |metric| data.series(Subject::Engine(engine), metric);
    let most = |metric| series(metric)?.extremes(window).map(|(_, most)| most);
    let split = kv::kv(data, engine, window, &mut kv::Buffers::default());
    let server = Server {
        running: mean(Metric::RequestsRunning),
        waiting: mean(Metric::RequestsWaiting),
        most_waiting: most(Metric::RequestsWaiting),
        kv_used_pct: mean(Metric::KvUsage),
        most_kv_used_pct: most(Metric::KvUsage),
        // A difference of two totals is whole, but for the f32 that carries its rate.
        preemptions: series(Metric::Preemptions).and_then(|series| series.growth(window)).map(f64::round),
        prefix_hit_pct: split.prefix_hit_pct.value(),
        agreement: agreement::rows(data, engine, window, level),
    };
    (server != Server::default()).then_some(server)
}

/// What a GPU did.
fn silicon(data: &Data, gpu: u8, window: Window) -> Silicon {
    let subject = Subject::Gpu(gpu);
    let mean = |metric| data.mean(subject, metric, window);
    let hottest = data.series(subject, Metric::Temp).and_then(|series| series.extremes(window));
    let throttled = Throttled::over(data, gpu, window);
    Silicon {
        index: gpu,
        sm_active_pct: mean(Metric::SmActive).value(),
        dram_active_pct: mean(Metric::DramActive).value(),
        tensor_active_pct: mean(Metric::TensorActive).value(),
        sm_clock_mhz: mean(Metric::SmClock).value(),
        sm_clock_max_mhz: mean(Metric::SmClockMax).value(),
        power_w: or(mean(Metric::Energy), mean(Metric::Power)).value(),
        most_temp_c: hottest.map(|(_, most)| most),
        throttled_ms_per_s: throttled.at_least().value(),
        throttled_by: throttled.dominant().map(|(reason, _)| reason.word.to_owned()),
    }
}

#[cfg(test)]
mod tests;
