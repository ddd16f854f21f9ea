//! Where more load stops giving more throughput.

use super::level::{Knee, Level};

/// The knee of these levels; `None` where they show none.
pub fn knee(levels: &[Level]) -> Option<Knee> {
    let _ = levels;
    todo!()
}
