//! Reports of probes, and what a probe's process says.

use warptop::probe::page;
use warptop::probe::protocol::Intake;
use warptop::probe::report::Report;

/// A report from a file, put into words and compared with itself.
pub fn report(data: &[u8]) {
    let Ok(report) = serde_json::from_slice::<Report>(data) else { return };
    let _ = page::page(&report).len();
    let _ = page::compare(&report, &report).map(|text| text.len());
}

/// Lines of a child, in pieces.
pub fn protocol(data: &[u8]) {
    let Some((step, rest)) = super::choose(data, 97) else { return };
    let mut intake = Intake::new("run".to_owned());
    for (micros, piece) in rest.chunks(step + 1).enumerate() {
        if intake.take(micros as u64, piece, |_| {}).is_err() {
            break;
        }
    }
}
