//! Compiles the fake of NVIDIA's library, fake.c, with the layout that the Rust bindings have.

use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use nvml_wrapper_sys::bindings as sys;

/// Compiles it into `folder`, with these definitions. Its control files and notes are there too.
#[expect(clippy::expect_used, reason = "a test may fail by panicking")]
pub(crate) fn compile(folder: &Path, definitions: &[&str]) -> PathBuf {
    let library = folder.join("libnvidia-ml.so.1");
    let layout = [
        ("SIZE_MEMORY", size_of::<sys::nvmlMemory_v2_t>()),
        ("SIZE_PROCESS", size_of::<sys::nvmlProcessInfo_t>()),
        ("SIZE_FIELD", size_of::<sys::nvmlFieldValue_t>()),
        ("OFFSET_FIELD_VALUE", offset_of!(sys::nvmlFieldValue_t, value)),
        ("SIZE_METRICS", size_of::<sys::nvmlGpmMetricsGet_t>()),
        ("OFFSET_METRICS", offset_of!(sys::nvmlGpmMetricsGet_t, metrics)),
        (
            "OFFSET_UNIT",
            offset_of!(sys::nvmlGpmMetric_t, metricInfo) + offset_of!(sys::nvmlGpmMetric_t__bindgen_ty_1, unit),
        ),
        ("SIZE_TEMPERATURE", size_of::<sys::nvmlTemperature_v1_t>()),
        ("SIZE_SHARE", size_of::<sys::nvmlProcessUtilizationSample_t>()),
        ("SIZE_EVENT", size_of::<sys::nvmlEventData_t>()),
    ];
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-nvml/fake.c"))
        .arg(format!("-DCONTROL=\"{}\"", folder.display()))
        .args(layout.map(|(name, value)| format!("-D{name}={value}")))
        .args(definitions.iter().map(|definition| format!("-D{definition}")))
        .output()
        .expect("a C compiler called cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}
