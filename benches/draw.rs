//! What a frame costs: preparing and drawing each pane, and all of them, at two sizes.

#[path = "../tests/common/mod.rs"]
mod common;

use divan::{Bencher, black_box};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use warptop::diagnosis::Timeline;
use warptop::ui::pane::Context;
use warptop::ui::panes::PANES;
use warptop::ui::theme::Theme;

fn main() {
    divan::main();
}

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

/// Places in [`PANES`].
fn places() -> std::ops::Range<usize> {
    0..PANES.len()
}

fn draw(bencher: Bencher, places: std::ops::Range<usize>, (width, height): (u16, u16)) {
    let store = common::full(2);
    let view = common::render::view();
    let context = Context { view: &view, theme: &Theme::FULL, timeline: &Timeline::default(), focused: false };
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    let mut panes: Vec<_> = PANES[places].iter().map(|spec| (spec.new)()).collect();
    bencher.bench_local(|| {
        for pane in &mut panes {
            pane.prepare(&store.read(), &context, area);
            pane.draw(area, black_box(&mut buf), &context);
        }
    });
}

#[divan::bench(args = places())]
fn pane_80x24(bencher: Bencher, place: usize) {
    draw(bencher, place..place + 1, SIZES[0]);
}

#[divan::bench(args = places())]
fn pane_200x60(bencher: Bencher, place: usize) {
    draw(bencher, place..place + 1, SIZES[1]);
}

#[divan::bench(args = SIZES)]
fn all_panes_full_size_each(bencher: Bencher, size: (u16, u16)) {
    draw(bencher, places(), size);
}
