//! Faults of a GPU: Xid errors, uncorrected memory errors, rows that wait to be remapped, a GPU that is gone.

use super::super::scene::Scene;
use super::super::{Cause, Finding, Fix, Sentence, Severity};
use super::Rule;
use crate::model::{Metric, Subject};
use crate::store::Window;

pub(super) const RULE: Rule = Rule { causes: &[Cause::GpuFault], judge };

/// How long a new error counts, ms.
const NEW_MS: u64 = 600_000;

fn judge(scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    for gpu in &scene.gpus {
        let subject = Subject::Gpu(gpu.index);
        let newest = |metric| scene.data.latest(subject, metric, scene.at).reading.value();
        let grew = |metric| {
            let (least, most) = scene.data.series(subject, metric)?.extremes(Window::last(scene.at, NEW_MS))?;
            (most > least).then_some(most - least)
        };
        let xids = newest(Metric::XidErrors).filter(|n| *n > 0.0);
        let (ecc, pending) = (grew(Metric::EccUncorrected), newest(Metric::RemapPending).filter(|n| *n > 0.0));
        let what = match (xids, ecc, pending) {
            (Some(n), ..) => format!("{n:.0} critical Xid errors since warptop watches"),
            (_, Some(n), _) => format!("{n:.0} new uncorrected memory errors"),
            (_, _, Some(_)) => "a memory row waits for a reset to be replaced".to_owned(),
            _ => continue,
        };
        let words =
            Sentence::new(format!("{} has a fault: {what}", gpu.label()), format!("{} has a fault", gpu.label()));
        let severity = if xids.or(ecc).is_some() { Severity::Act } else { Severity::Watch };
        findings.push(
            Finding::new(subject, Cause::GpuFault, severity, 0.5, words)
                .shows(("xid_errors", "errors", "nvml"), xids, |n| format!("{n:.0} Xid errors"))
                .shows(("health.ecc_uncorrected", "errors", "nvml"), ecc, |n| format!("{n:.0} new uncorrected errors"))
                .shows(("health.remap_pending", "rows", "nvml"), pending, |_| "a row remap is pending".to_owned())
                .fix(Fix::todo(
                    "See the kernel's log (dmesg | grep Xid) and NVIDIA's list of Xids; plan a reset of the GPU",
                    "see dmesg for Xid",
                )),
        );
    }
}
