//! What reading a GPU has shown: whether it answers, which values it does not offer, and what its errors mean.
//!
//! Invariants: a GPU that was lost is asked again only with the rare class; a value is missing for the reason that the
//! driver gave, never the last known.

use nvml_wrapper::error::NvmlError;

use crate::model::{Batch, Metric, Subject, Why, text};

/// What reading a GPU has shown so far.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// It fell off the bus or needs a reset; not asked again until the next rare reading, as that costs the others time.
    pub(super) lost: bool,
    /// GPM exists, but not for this user.
    pub(super) gpm_denied: bool,
    /// What it answers to every question, in words.
    pub(super) trouble: Option<String>,
    /// Whether it gave a value in this reading, and the last error that was no mere refusal.
    answered: bool,
    error: Option<String>,
    /// Not asked again until the next rare reading: also a refusal costs time.
    unsupported: Vec<Metric>,
}

impl Health {
    /// What was refused or lost is asked once more.
    pub(super) fn try_again(&mut self) {
        self.unsupported.clear();
        self.lost = false;
    }

    /// A reading begins that asks enough to tell a silent GPU from one that lacks something.
    pub(super) fn begin(&mut self) {
        (self.answered, self.error) = (false, None);
    }

    /// That reading ended. Of a lost GPU that was not asked, what was said holds.
    pub(super) fn end(&mut self) {
        if self.answered {
            self.trouble = None;
        } else if let Some(error) = self.error.take() {
            self.trouble = Some(error);
        }
    }
}

/// Why a call gave no value. A call, a field or a version that the driver does not know is not supported.
pub(super) const fn why(error: &NvmlError) -> Why {
    match error {
        NvmlError::NotSupported
        | NvmlError::InvalidArg
        | NvmlError::FunctionNotFound
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::UnexpectedVariant(_) => Why::Unsupported,
        NvmlError::NoPermission => Why::NotPermitted,
        _ => Why::Failed,
    }
}

const fn is_lost(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired)
}

/// What an error of a driver that was open means, and what to do.
pub(super) fn words(error: &NvmlError) -> String {
    let words = match error {
        NvmlError::GpuLost => {
            "the GPU is lost, the driver cannot reach it; look for Xid in dmesg, then end what uses it (warptop too) and reset \
             it, or reboot"
        }
        NvmlError::ResetRequired => {
            "the GPU is lost until it is reset; look for Xid in dmesg, then end what uses it (warptop too) and run nvidia-smi \
             --gpu-reset, or reboot"
        }
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA library and the loaded kernel module have different versions (the driver was updated); reboot or \
             reload the module"
        }
        NvmlError::Uninitialized => "the driver was shut down or restarted; see whether nvidia-smi works",
        NvmlError::DriverNotLoaded => {
            "the kernel module is not loaded any more; load it (modprobe nvidia) and look for NVRM in dmesg if it does \
             not stay"
        }
        error => {
            let error = text::clean(&error.to_string());
            return format!("{error}; see whether nvidia-smi works, and look for NVRM and Xid in dmesg");
        }
    };
    words.to_owned()
}

/// Where the values of one GPU go during one reading.
pub(super) struct Out<'a> {
    pub(super) batch: &'a mut Batch,
    pub(super) subject: Subject,
    pub(super) health: &'a mut Health,
}

impl Out<'_> {
    /// Reads one value, unless the GPU is lost or does not offer it.
    pub(super) fn read(&mut self, metric: Metric, call: impl FnOnce() -> Result<f64, NvmlError>) {
        self.read_all([metric], || call().map(|value| [value]));
    }

    /// Reads several values with one call.
    pub(super) fn read_all<const N: usize>(
        &mut self,
        metrics: [Metric; N],
        call: impl FnOnce() -> Result<[f64; N], NvmlError>,
    ) {
        if self.passes_over(&metrics) {
            return;
        }
        match call() {
            Ok(values) => metrics.into_iter().zip(values).for_each(|(metric, value)| self.put(metric, Ok(value))),
            Err(error) => self.put_all(&metrics, &error),
        }
    }

    /// Whether these are not to be asked for; those of a lost GPU are noted as missing.
    pub(super) fn passes_over(&mut self, metrics: &[Metric]) -> bool {
        if self.health.lost {
            for &metric in metrics {
                self.put(metric, Err(Why::Failed));
            }
        }
        self.health.lost || metrics.iter().all(|metric| self.health.unsupported.contains(metric))
    }

    /// Takes in a value or the reason why there is none.
    pub(super) fn put(&mut self, metric: Metric, value: Result<f64, Why>) {
        if value == Err(Why::Unsupported) && !self.health.unsupported.contains(&metric) {
            self.health.unsupported.push(metric);
        }
        if metric == Metric::SmActive {
            self.health.gpm_denied = value == Err(Why::NotPermitted);
        }
        self.health.answered |= value.is_ok();
        self.batch.push(self.subject, metric, value);
    }

    /// None of these could be read.
    pub(super) fn put_all(&mut self, metrics: &[Metric], error: &NvmlError) {
        let why = self.judge(error);
        for &metric in metrics {
            self.put(metric, Err(why));
        }
    }

    /// Why a call failed; also notes what that says of the whole GPU.
    pub(super) fn judge(&mut self, error: &NvmlError) -> Why {
        let why = if is_lost(error) { Why::Failed } else { why(error) };
        // What the GPU is lost for is said, whatever else went wrong before.
        if why == Why::Failed && (self.health.error.is_none() || is_lost(error)) {
            self.health.error = Some(words(error));
        }
        self.health.lost |= is_lost(error);
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SourceId, Time};

    /// What is said of a GPU after a reading with these results.
    fn trouble(health: &mut Health, results: Vec<Result<f64, NvmlError>>) -> Option<String> {
        let mut batch = Batch::new(SourceId::Nvml, Time(0), 0);
        health.begin();
        let mut out = Out { batch: &mut batch, subject: Subject::Gpu(0), health };
        for (metric, result) in [Metric::Power, Metric::SmClock, Metric::Temp].into_iter().zip(results) {
            out.read(metric, || result);
        }
        health.end();
        health.trouble.clone()
    }

    #[test]
    fn only_a_gpu_that_answers_nothing_is_in_trouble() {
        let health = &mut Health::default();
        let unknown = || Err(NvmlError::Unknown);
        assert_eq!(trouble(health, vec![unknown(), Ok(1.0), unknown()]), None, "one value is an answer");
        let said = trouble(health, vec![unknown(), unknown()]).unwrap();
        assert!(said.contains("an internal driver error occurred; see whether nvidia-smi works"), "{said}");
        assert_eq!(trouble(health, vec![unknown(), Ok(1.0)]), None, "it is over");
        assert_eq!(trouble(health, vec![Err(NvmlError::NotSupported)]), None, "a refusal is an answer");
    }

    #[test]
    fn a_lost_gpu_is_asked_again_only_when_that_is_due() {
        let health = &mut Health::default();
        let said = trouble(health, vec![Err(NvmlError::Unknown), Err(NvmlError::GpuLost)]);
        assert!(said.as_ref().is_some_and(|words| words.contains("is lost")), "{said:?}");
        assert_eq!(trouble(health, vec![Ok(1.0)]), said, "not asked");
        health.try_again();
        assert_eq!(trouble(health, vec![Ok(1.0)]), None);
    }

    #[test]
    fn every_error_says_what_to_do() {
        for (error, hint) in [
            (NvmlError::GpuLost, "Xid in dmesg"),
            (NvmlError::ResetRequired, "nvidia-smi --gpu-reset"),
            (NvmlError::LibRmVersionMismatch, "reload the module"),
            (NvmlError::Uninitialized, "nvidia-smi works"),
            (NvmlError::DriverNotLoaded, "modprobe nvidia"),
            (NvmlError::Unknown, "NVRM and Xid"),
        ] {
            assert!(words(&error).contains(hint), "{}", words(&error));
        }
    }
}
