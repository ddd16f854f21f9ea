//! The system's allocator, counting what each thread takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of this thread: other tests allocate on theirs.
    pub(crate) static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread took and has not given back, and the most it ever had.
    pub(crate) static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Notes that an allocation of `old` bytes became one of `new`; 0 for none. What another thread took
/// and this one gives back must not make it negative.
fn hold(old: usize, new: usize) {
    let (held, most) = HELD.get();
    let held = (held + new).saturating_sub(old);
    HELD.set((held, most.max(held)));
}

/// The system's allocator, counting.
pub(crate) struct Counting;

// SAFETY: hands every call on to `System` unchanged; the counter is a const-initialised thread local
// without a destructor, so touching it allocates nothing and works at any time of a thread's life.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        hold(0, layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(layout.size(), 0);
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        hold(layout.size(), size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
