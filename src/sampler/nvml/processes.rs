//! Processes with memory on one GPU, as the driver lists them.
//!
//! Invariants: each process is one, whatever it does there and on however many instances (MIG); no more than
//! [`crate::model::limits::GPU_PROCESSES`] are handed on, and all are counted.

use std::collections::{HashMap, HashSet};

use crate::model::limits::GPU_PROCESSES as MOST_LISTED;
use crate::model::{GpuProcess, Metric, Reading, Why, plausible};

use super::raw::OnGpu;

/// The processes of GPU `gpu` in these lists, and how many there are; `total`: the GPU's memory in bytes, where it is known.
pub(super) fn merge(gpu: u8, lists: [&[OnGpu]; 2], total: Option<f64>) -> (Vec<GpuProcess>, usize) {
    let (mut seen, mut places) = (HashSet::new(), HashMap::new());
    let mut out: Vec<GpuProcess> = Vec::new();
    for process in lists.into_iter().flatten() {
        // One that computes and draws is in both lists, with the same memory. On two instances it is in one twice, with
        // what it has on each.
        if !seen.insert((process.pid, process.instance)) {
            continue;
        }
        let mem = memory(process.memory);
        match places.get(&process.pid) {
            None => {
                places.insert(process.pid, out.len());
                if out.len() < MOST_LISTED {
                    out.push(GpuProcess { gpu, pid: process.pid, mem, share: Reading::Missing(Why::NotYet) });
                }
            }
            Some(place) => {
                if let Some(known) = out.get_mut(*place) {
                    known.mem = sum(known.mem, mem);
                }
            }
        }
    }
    for process in &mut out {
        // Nobody has more than there is.
        if process.mem.value().is_some_and(|mem| total.is_some_and(|total| mem > total)) {
            process.mem = Reading::Missing(Why::Failed);
        }
    }
    (out, places.len())
}

/// Memory in bytes; the driver writes all bits for what it does not tell.
fn memory(bytes: u64) -> Reading {
    if bytes == u64::MAX {
        return Reading::Missing(Why::Unsupported);
    }
    plausible::judge(Metric::GpuMemUsed, Reading::new(bytes as f64))
}

/// Both together; not known where one is not.
fn sum(a: Reading, b: Reading) -> Reading {
    match (a, b) {
        (Reading::Value(a), Reading::Value(b)) => Reading::new(a + b),
        (missing @ Reading::Missing(_), _) | (_, missing) => missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(pid: u32, memory: u64, instance: Option<(u32, u32)>) -> OnGpu {
        OnGpu { pid, memory, instance }
    }

    fn rows(lists: [&[OnGpu]; 2]) -> Vec<(u32, Reading)> {
        merge(0, lists, Some(80e9)).0.iter().map(|process| (process.pid, process.mem)).collect()
    }

    /// Fault: driver: a process on two MIG instances
    /// Seen: one row with the memory of both
    /// Works: everything
    /// Recovers: nothing to recover from
    #[test]
    fn a_process_in_both_lists_is_one_and_on_two_instances_has_the_memory_of_both() {
        let compute = [on(7, 1_000, None), on(8, 10, Some((1, 0))), on(8, 5, Some((2, 0)))];
        let graphics = [on(7, 1_000, None), on(9, 3, None)];
        assert_eq!(rows([&compute, &graphics]), [(7, 1_000.0.into()), (8, 15.0.into()), (9, 3.0.into())]);
    }

    /// Fault: driver: the memory of a process is garbage, or more than the GPU has
    /// Seen: `failed` in place of its memory
    /// Works: its row, and all others
    /// Recovers: with the first value that can be
    #[test]
    fn memory_that_cannot_be_is_failed() {
        let failed = Reading::Missing(Why::Failed);
        assert_eq!(failed.why().map(Why::word), Some("failed"));
        let list = [on(1, 1 << 63, None), on(2, 81_000_000_000, None), on(3, u64::MAX, None), on(4, 0, None)];
        let unsupported = Reading::Missing(Why::Unsupported);
        assert_eq!(rows([&list, &[]]), [(1, failed), (2, failed), (3, unsupported), (4, 0.0.into())]);
    }

    #[test]
    fn all_are_counted_and_the_list_is_bounded() {
        let many: Vec<_> = (0..5_000).map(|pid| on(pid, 1, None)).collect();
        let (listed, count) = merge(3, [&many, &many], None);
        assert_eq!((listed.len(), count, listed[0].gpu), (MOST_LISTED, 5_000, 3));
    }
}
