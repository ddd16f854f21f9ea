//! The NVML calls that the wrapper does not offer: the only unsafe code in warptop.
//!
//! Each is a question with plain numbers as its answer. Layouts come from nvml-wrapper-sys.
#![expect(unsafe_code, reason = "these functions have no safe wrapper")]

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlTemperature_v1_t, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU as SENSOR_GPU,
};

/// Rows of device memory that were remapped.
pub(super) struct Remapped {
    /// After correctable and after uncorrectable errors, together.
    pub(super) rows: u32,
    /// Whether a remapping waits for a reset of the GPU.
    pub(super) pending: bool,
}

/// `nvmlDeviceGetRemappedRows`.
pub(super) fn remapped_rows(device: &Device<'_>) -> Result<Remapped, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let (mut correctable, mut uncorrectable, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: the handle comes from this very library and lives as long as `device` borrows it; the four
    // pointers are to local unsigned ints, which the call fills and does not keep.
    nvml_try(unsafe {
        call(device.handle(), &raw mut correctable, &raw mut uncorrectable, &raw mut pending, &raw mut failed)
    })?;
    Ok(Remapped { rows: correctable.saturating_add(uncorrectable), pending: pending != 0 })
}

/// `nvmlDeviceGetCurrentClocksEventReasons`, every bit of it. Drivers before 535 have only its old name,
/// which the wrapper calls; that one is to go.
pub(super) fn event_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let Ok(call) = nvml_sym(device.nvml().lib().nvmlDeviceGetCurrentClocksEventReasons.as_ref()) else {
        return device.current_throttle_reasons().map(|reasons| reasons.bits());
    };
    let mut bits = 0;
    // SAFETY: as above, with one local 64-bit integer.
    nvml_try(unsafe { call(device.handle(), &raw mut bits) })?;
    Ok(bits)
}

/// `nvmlDeviceGetTemperatureV` of the die in °C, for drivers that no longer have `nvmlDeviceGetTemperature`.
pub(super) fn temperature(device: &Device<'_>) -> Result<i32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetTemperatureV.as_ref())?;
    // NVML's rule for versioned structs: size in the low bits, version from bit 24 up (nvml.h, NVML_STRUCT_VERSION).
    let version = size_of::<nvmlTemperature_v1_t>() as u32 | (1 << 24);
    let mut answer = nvmlTemperature_v1_t { version, sensorType: SENSOR_GPU, temperature: 0 };
    // SAFETY: as above; the struct says its own size and version, so that the call writes no more than that.
    nvml_try(unsafe { call(device.handle(), &raw mut answer) })?;
    Ok(answer.temperature)
}
