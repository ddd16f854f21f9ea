//! Drawing allocates nothing: a frame costs the same at midnight as at noon.

#![expect(unsafe_code, reason = "a global allocator that counts can only be written with it")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::channel;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use warptop::app::Origin;
use warptop::model::ManualClock;
use warptop::runtime::{Inputs, Program, Session};
use warptop::ui::pane::Context;
use warptop::ui::panes::PANES;
use warptop::ui::theme::{Charset, Depth, Theme};

thread_local! {
    /// Allocations of this thread: other tests allocate on theirs.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: hands every call on to `System` unchanged; the counter is a const-initialised thread local
// without a destructor, so touching it allocates nothing and works at any time of a thread's life.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| ()), 0);
    assert!(allocations(|| drop(std::hint::black_box(vec![1_u8; 100]))) >= 1);
}

#[test]
fn drawing_allocates_nothing_and_preparing_stops_to() {
    let stores = [common::full(2), common::empty(), common::time_based(), common::stalled()];
    let themes = [Theme::FULL, Theme::MONO, Theme { depth: Depth::Ansi16, charset: Charset::Ascii }];
    let view = common::render::view();
    for (store, spec) in stores.iter().flat_map(|s| PANES.iter().map(move |p| (s, p))) {
        for (theme, (width, height)) in themes.iter().flat_map(|t| [(20, 5), (80, 24), (200, 60)].map(|s| (t, s))) {
            let area = Rect::new(0, 0, width, height);
            let mut buf = Buffer::empty(area);
            let context = Context { view: &view, theme, focused: true };
            let mut pane = (spec.new)();
            for _ in 0..3 {
                pane.prepare(&store.read(), &context, area);
                pane.draw(area, &mut buf, &context);
            }
            let preparing = allocations(|| pane.prepare(&store.read(), &context, area));
            let drawing = allocations(|| pane.draw(area, &mut buf, &context));
            assert_eq!(drawing, 0, "{} draws with allocations at {width}×{height}", spec.id);
            assert_eq!(preparing, 0, "{} still allocates while preparing at {width}×{height}", spec.id);
        }
    }
}

#[test]
fn a_frame_of_the_whole_program_allocates_nothing() {
    for (width, height) in [(30, 6), (60, 20), (80, 24), (200, 60)] {
        let (store, clock) = (Arc::new(common::full(2)), Arc::new(ManualClock::at(common::END)));
        let (_to, events) = channel();
        let inputs = Inputs { clock: Arc::clone(&clock) as _, events, suspend: || Ok(()), resume: || Ok(()) };
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut program = Program::new(terminal, inputs, Session::on(store, Origin::Live), Theme::FULL);
        let mut frame = |ms| {
            clock.set(common::END + ms);
            allocations(|| program.frame().unwrap())
        };
        // Buffers grow with the longest text they have held.
        let warm: u64 = (0..20).map(|i| frame(i * 50)).sum();
        assert!(warm > 0, "the first frame must fill its buffers");
        assert_eq!(frame(1000), 0, "at {width}×{height}");
    }
}
