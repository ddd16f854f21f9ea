//! Which wall a GPU runs against. A wall is no fault: only waiting for launches, power and heat are.
//!
//! It must not know how the wall is found. Invariant: without activity there is no verdict.

use crate::derive::wall::{Evidence, WINDOW_MS, Wall};
use crate::store::{Data, Window};

use super::{Detector, Finding, Level, engines, gpu_label};

pub(super) const DETECTOR: Detector = Detector {
    id: "wall",
    help: "What limits each GPU over at least 10 s. Watch when it waits for the host or is held down by power; act for heat.",
    judge,
};

fn judge(data: &Data, window: Window) -> Vec<Finding> {
    // Shorter windows catch prefill or decode alone and swing between the two.
    let window = Window::last(window.end, window.ms().max(WINDOW_MS));
    // With several engines nothing says which one uses which GPU.
    let engine = engines(data, window.end).next().filter(|_| data.engines().count() == 1);
    let of_gpu = |gpu| {
        let evidence = Evidence::over(data, gpu, engine, window);
        let (level, advice) = match evidence.wall() {
            Wall::Unknown(_) => return None,
            Wall::Idle | Wall::Memory | Wall::Compute | Wall::Balanced => (Level::Ok, ""),
            Wall::Launch => (Level::Watch, LAUNCH),
            Wall::Power => (Level::Watch, POWER),
            Wall::Heat => (Level::Act, HEAT),
        };
        let seconds = window.ms() / 1000;
        let evidence = format!("{evidence}, over {seconds} s");
        Some(Finding { level, label: gpu_label(data, gpu), evidence, advice: advice.into() })
    };
    data.gpus().filter_map(of_gpu).collect()
}

const LAUNCH: &str =
    "The GPU waits: look at CUDA graphs, host CPU, tokenisation and copies, or give it more requests at once.";
const POWER: &str = "Compute runs at the clock that the power limit allows: see the signal throttled.";
const HEAT: &str = "Compute runs at the clock that the temperature allows: check airflow, fans and inlet temperature.";
