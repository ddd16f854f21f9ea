//! Whether there is a driver to talk to, and if not, why not and what to do about it.

use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::model::{SourceState, text};

/// Opens NVML from `library` with at least one GPU; also says how many there are.
///
/// # Errors
/// The state to show, in words: [`SourceState::Absent`] where there is no driver at all, else
/// [`SourceState::Failed`].
pub(super) fn open(library: &Path) -> Result<(Nvml, u32), SourceState> {
    let said = |error: &NvmlError| explain(error, Path::new("/proc/driver/nvidia/version").exists());
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| said(&error))?;
    match nvml.device_count() {
        Ok(0) => Err(failed(
            "the NVIDIA driver answers but shows no GPU; compare `nvidia-smi -L`, and in a container how GPUs are \
             passed in (--gpus, NVIDIA_VISIBLE_DEVICES)",
        )),
        Ok(count) => Ok((nvml, count)),
        Err(error) => Err(said(&error)),
    }
}

fn failed(why: &str) -> SourceState {
    SourceState::Failed(why.into())
}

/// An error of opening in words; `loaded`: the kernel module of the driver is there.
fn explain(error: &NvmlError, loaded: bool) -> SourceState {
    match error {
        NvmlError::LibloadingError(error) => {
            let error = text::clean(&error.to_string());
            match (error.contains("No such file"), loaded) {
                (true, false) => SourceState::Absent(
                    "no NVIDIA driver on this machine (libnvidia-ml.so.1 is not installed); to watch GPUs install \
                     the driver, or start the container with --gpus all"
                        .into(),
                ),
                (true, true) => failed(
                    "the NVIDIA driver is loaded, but its library libnvidia-ml.so.1 is not found; in a container set \
                     NVIDIA_DRIVER_CAPABILITIES=utility,compute, else install the driver's user-space part",
                ),
                (false, _) => failed(&format!(
                    "the NVIDIA library cannot be loaded: {error}; install the driver's user-space part again"
                )),
            }
        }
        NvmlError::LibRmVersionMismatch => failed(
            "the NVIDIA library and the loaded kernel module have different versions (the driver was updated); reboot \
             or reload the module",
        ),
        NvmlError::NoPermission => failed(
            "this user may not talk to the NVIDIA driver; give access to /dev/nvidiactl and /dev/nvidia* (group, or \
             the container's device rules)",
        ),
        NvmlError::DriverNotLoaded => failed(
            "the NVIDIA library is here, but the kernel module is not loaded; load it (modprobe nvidia) and look for \
             NVRM in dmesg if it does not stay",
        ),
        error => failed(&format!(
            "the NVIDIA driver cannot be opened: {}; see whether nvidia-smi works, and look for NVRM in dmesg",
            text::clean(&error.to_string())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_is_no_failure() {
        let state = open(Path::new("/no/such/libnvidia-ml.so.1")).unwrap_err();
        if Path::new("/proc/driver/nvidia/version").exists() {
            assert!(matches!(state, SourceState::Failed(_)), "{state:?}");
        } else {
            assert!(matches!(state, SourceState::Absent(_)), "{state:?}");
        }
    }

    /// Fault: driver: a library that is damaged
    /// Seen: state `cannot be loaded`, and to install it again
    /// Works: engines, host, processes
    /// Recovers: it is tried again every 10 s
    #[test]
    fn a_file_that_is_no_library_is_a_failure() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "not an ELF file").unwrap();
        let state = open(file.path()).unwrap_err();
        assert!(matches!(&state, SourceState::Failed(why) if why.contains("cannot be loaded")), "{state:?}");
    }

    #[test]
    fn every_error_says_what_to_do() {
        for (error, hint) in [
            (NvmlError::LibRmVersionMismatch, "reboot"),
            (NvmlError::NoPermission, "/dev/nvidiactl"),
            (NvmlError::DriverNotLoaded, "modprobe"),
            (NvmlError::Unknown, "nvidia-smi"),
            (NvmlError::UnexpectedVariant(29), "nvidia-smi"),
        ] {
            let state = explain(&error, true);
            assert!(matches!(state, SourceState::Failed(_)) && state.why().contains(hint), "{state:?}");
        }
    }
}
