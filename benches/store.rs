//! What it costs to push a reading and to ask for a plot's columns.

use warptop::model::{Batch, HistogramSample, Metric, SourceId, Subject, Time};
use warptop::store::{Bin, HistogramWindow, Retention, Store, Window};

const START: u64 = 1_795_960_436_789;

fn main() {
    divan::main();
}

fn fast_class(at: u64) -> Batch {
    let mut batch = Batch::new(SourceId::Nvml, Time(START + at), 1500);
    for gpu in 0..8 {
        for metric in [
            Metric::SmActive,
            Metric::SmOccupancy,
            Metric::TensorActive,
            Metric::DramActive,
            Metric::UtilGpuTime,
            Metric::SmClock,
            Metric::Power,
            Metric::PcieRx,
            Metric::PcieTx,
        ] {
            batch.push(Subject::Gpu(gpu), metric, (at % 97) as f64);
        }
        batch.push(Subject::Gpu(gpu), Metric::ThrottledPowerCap, at as f64);
    }
    batch
}

fn scrape(at: u64) -> Batch {
    let mut batch = Batch::new(SourceId::Engine(0), Time(START + at), 3500);
    let edges: Vec<f64> = (0..22).map(|i| f64::from(i) + 0.5).collect();
    for metric in [Metric::Ttft, Metric::Itl, Metric::E2e, Metric::QueueTime] {
        batch.histograms.push(HistogramSample {
            sets: 0,
            subject: Subject::Engine(0),
            metric,
            edges: edges.as_slice().into(),
            cumulative: (0..=22).map(|i| (at * (i + 1)) as f64).collect(),
            sum: Some(at as f64),
        });
    }
    batch
}

/// An hour of eight GPUs at 4 Hz and one engine at 1 Hz.
fn full() -> Store {
    let store = Store::new(Retention::HOUR);
    for second in 0..3600 {
        for quarter in 0..4 {
            store.push(&fast_class(second * 1000 + quarter * 250));
        }
        store.push(&scrape(second * 1000 + 900));
    }
    store
}

#[divan::bench]
fn push_fast_class_8_gpus(bencher: divan::Bencher<'_, '_>) {
    let store = full();
    let mut at = 3_600_000;
    bencher.bench_local(|| {
        at += 250;
        store.push(&fast_class(at));
    });
}

#[divan::bench(args = [60_000, 3_600_000])]
fn fill_140_columns(bencher: divan::Bencher<'_, '_>, span: u64) {
    let store = full();
    let window = Window::last(Time(START + 3_600_000), span);
    let mut bins = [Bin::default(); 140];
    bencher.bench_local(|| store.read().fill(Subject::Gpu(3), Metric::SmActive, window, divan::black_box(&mut bins)));
}

#[divan::bench(args = [60_000, 3_600_000])]
fn histogram_window(bencher: divan::Bencher<'_, '_>, span: u64) {
    let store = full();
    let window = Window::last(Time(START + 3_600_000), span);
    let mut out = HistogramWindow::default();
    bencher.bench_local(|| store.read().histogram_window(Subject::Engine(0), Metric::Ttft, window, &mut out));
}
