//! Where a GPU hangs: the CPUs next to it, and those that are not.
//!
//! Page-locked memory lies on the node of the thread that takes it, so a probe binds itself before it does. Invariant:
//! where the machine does not tell, nothing is bound and the report says so.

use super::cuda::Gpu;
use super::pci::{Device, Link};
use super::topology::{Bound, Topology};
use super::{Failure, Outcome};

/// A node and its CPUs.
type Cpus = (usize, Vec<usize>);

/// A GPU's place.
pub(super) struct Place {
    device: Option<Device>,
    near: Option<Cpus>,
    /// A node that is not its own, where there is one.
    pub(super) far: Option<Cpus>,
}

impl Place {
    /// Finds it, and says in the report what was found.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn of(gpu: &Gpu, outcome: &mut Outcome) -> Result<Self, Failure> {
        let address = gpu.pci_address()?;
        let device = Device::at(&address);
        let nodes: Vec<Cpus> = Topology::read().nodes.into_iter().map(|node| (node.id, node.cpus)).collect();
        let told = device.as_ref().map(|device| (device.node, device.cpus.as_slice()));
        let (near, far) = sides(told, &nodes);
        let where_it_is = near.as_ref().map_or("not told".to_owned(), |(node, _)| format!("node {node}"));
        outcome.facts.insert("GPU's NUMA node".to_owned(), format!("{where_it_is} of {}", nodes.len()));
        outcome.facts.insert("PCI address".to_owned(), address);
        if near.is_none() {
            outcome.notes.push(
                "the machine does not tell which of its NUMA nodes the GPU hangs on: host memory was taken where the \
                 system put it, and runs may differ"
                    .to_owned(),
            );
        }
        Ok(Self { device, near, far })
    }

    /// Binds this thread to the GPU's own node, or says in the report that it may not be bound.
    pub(super) fn bind(&self, outcome: &mut Outcome) -> Option<Bound> {
        let (node, cpus) = self.near.as_ref()?;
        let bound = Bound::to(cpus);
        if bound.is_none() {
            outcome.notes.push(format!("this process may not be bound to node {node}: host memory may lie elsewhere"));
        }
        bound
    }

    /// The PCIe links from the GPU up to the CPU as they are now.
    pub(super) fn links(&self) -> Vec<Link> {
        self.device.as_ref().map(Device::links).unwrap_or_default()
    }
}

/// The GPU's own node and another one, from what sysfs tells of the GPU: its node and the CPUs next to it.
fn sides(told: Option<(Option<usize>, &[usize])>, nodes: &[Cpus]) -> (Option<Cpus>, Option<Cpus>) {
    let near = match (nodes, told) {
        // Where there is one node everything is on it.
        ([only], _) => Some(only),
        (_, Some((Some(node), _))) => nodes.iter().find(|(id, _)| *id == node),
        (_, Some((None, cpus))) => {
            let mut with = nodes.iter().filter(|(_, own)| own.iter().any(|cpu| cpus.contains(cpu)));
            // CPUs of several nodes say nothing.
            with.next().filter(|_| with.next().is_none())
        }
        (_, None) => None,
    };
    let far = near.and_then(|(own, _)| nodes.iter().find(|(id, _)| id != own));
    (near.cloned(), far.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_near_node_is_the_one_that_is_told_and_never_guessed() {
        let two = [(0, vec![0, 1]), (1, vec![2, 3])];
        let ids = |told, nodes: &[Cpus]| {
            let (near, far) = sides(told, nodes);
            (near.map(|(id, _)| id), far.map(|(id, _)| id))
        };
        assert_eq!(ids(Some((Some(1), &[2, 3])), &two), (Some(1), Some(0)));
        assert_eq!(ids(Some((None, &[2])), &two), (Some(1), Some(0)), "by its CPUs");
        assert_eq!(ids(Some((None, &[0, 1, 2, 3])), &two), (None, None), "all CPUs say nothing");
        assert_eq!(ids(Some((Some(7), &[])), &two), (None, None), "a node whose CPUs are not ours");
        assert_eq!(ids(None, &two), (None, None));
        assert_eq!(ids(None, &two[..1]), (Some(0), None), "one node is everybody's");
    }
}
