//! Which GPUs the driver showed, so that what has changed can be said when it is opened again.

use super::super::gpu_ids::GpuId;
use super::notes::{Note, together};

/// The GPUs of the last session: number, product, and the driver's name for the very device.
#[derive(Debug, Default)]
pub(super) struct Shown(Vec<(u8, String, Option<String>)>);

impl Shown {
    /// GPUs of the last session that are not among the first `count`.
    pub(super) fn gone(&self, count: u32) -> impl Iterator<Item = u8> {
        self.0.iter().map(|(index, ..)| *index).filter(move |index| u32::from(*index) >= count)
    }

    /// Takes in the GPUs that are there now, of `count`, and says what has become of those that were there before.
    pub(super) fn change<'a>(
        &mut self,
        now: &[GpuId],
        count: u32,
        name: impl Fn(u8) -> Option<&'a str>,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        for (index, product, uuid) in &self.0 {
            match now.iter().find(|gpu| gpu.index == *index) {
                None if u32::from(*index) >= count => {
                    let rest = format!("the driver shows {count} now");
                    let note = Note { of: format!(" ({product})"), is: [" is gone: ", " are gone: "], rest };
                    notes.push((u32::from(*index), note));
                }
                Some(gpu) if gpu.uuid != *uuid && gpu.uuid.is_some() && uuid.is_some() => {
                    let is = [" is another device", " are other devices"];
                    let rest = " than before: what was read before is not of the same".to_owned();
                    notes.push((u32::from(*index), Note { of: String::new(), is, rest }));
                }
                _ => {}
            }
        }
        // One that is gone stays so until it is back.
        self.0.retain(|(index, ..)| now.iter().all(|gpu| gpu.index != *index));
        self.0.extend(now.iter().map(|gpu| (gpu.index, name(gpu.index).unwrap_or("GPU").to_owned(), gpu.uuid.clone())));
        together(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u8, uuid: &str) -> GpuId {
        GpuId { index, uuid: Some(uuid.to_owned()), bus: None, active: true, exported: (Vec::new(), 0) }
    }

    /// Fault: driver: a GPU is taken out of the machine while warptop runs
    /// Seen: `GPU 1 (NVIDIA H200) is gone: the driver shows 1 now`
    /// Works: the other GPUs
    /// Recovers: when the driver shows it again, within 20 s
    #[test]
    fn what_has_gone_or_changed_is_said_until_it_is_back() {
        let mut shown = Shown::default();
        let name = |_| Some("NVIDIA H200");
        assert!(shown.change(&[gpu(0, "a"), gpu(1, "b")], 2, name).is_empty());
        assert!(shown.change(&[gpu(0, "a")], 2, name).is_empty(), "that it cannot be opened is said elsewhere");
        let gone = "GPU 1 (NVIDIA H200) is gone: the driver shows 1 now";
        for _ in 0..2 {
            assert_eq!(shown.change(&[gpu(0, "a")], 1, name), [gone]);
        }
        assert!(shown.change(&[gpu(0, "a"), gpu(1, "b"), gpu(2, "c")], 3, name).is_empty());
        let other = shown.change(&[gpu(0, "b")], 1, name);
        let both = "GPUs 1 and 2 (NVIDIA H200) are gone: the driver shows 1 now";
        assert!(other.len() == 2 && other[0].starts_with("GPU 0 is another device") && other[1] == both, "{other:?}");
    }
}
