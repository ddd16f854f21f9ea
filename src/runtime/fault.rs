//! Defects to provoke, for the tests of what the terminal looks like afterwards.

use std::hint::black_box;
use std::thread;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Panic while drawing.
    Draw,
    /// Panic on another thread.
    Thread,
    /// Call until the stack is full.
    Stack,
    /// Ask for more memory than there can be.
    Memory,
}

/// Has it happen.
#[expect(clippy::panic, reason = "the tests of the panic hook ask for it")]
pub(super) fn provoke(fault: Fault) {
    match fault {
        Fault::Draw => panic!("asked to fail while drawing"),
        Fault::Thread => {
            let body = || panic!("asked to fail on a thread");
            drop(thread::Builder::new().name("failing".to_owned()).spawn(body));
        }
        Fault::Stack => drop(black_box(fill_the_stack(0))),
        Fault::Memory => drop(black_box(Vec::<u8>::with_capacity(isize::MAX.cast_unsigned()))),
    }
}

fn fill_the_stack(depth: u64) -> u64 {
    let block = black_box([depth; 128]);
    if depth == u64::MAX { 0 } else { block[0] + fill_the_stack(depth + 1) }
}
