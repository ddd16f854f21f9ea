//! The NVML calls that the wrapper does not offer: the only unsafe code in warptop.
//!
//! Each is a question with plain numbers as its answer. Layouts come from nvml-wrapper-sys.
#![expect(unsafe_code, reason = "these functions have no safe wrapper")]

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlReturn_t, nvmlTemperature_v1_t,
    nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU as SENSOR_GPU,
};

/// Rows of device memory that were remapped.
pub(super) struct Remapped {
    /// After correctable and after uncorrectable errors, together.
    pub(super) rows: u32,
    /// 1 while a remapping waits for a reset of the GPU, else 0; as the driver gives it, which may be garbage.
    pub(super) pending: u32,
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
    Ok(Remapped { rows: correctable.saturating_add(uncorrectable), pending })
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

/// A process on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnGpu {
    /// Process id in the driver's namespace.
    pub(super) pid: u32,
    /// Bytes; all bits set where the driver does not tell.
    pub(super) memory: u64,
    /// GPU instance and compute instance that it runs on (MIG).
    pub(super) instance: Option<(u32, u32)>,
}

/// Asks for a list: room and number, and where it goes.
type AskList = unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

/// `nvmlDeviceGetComputeRunningProcesses_v3`.
pub(super) fn computing(device: &Device<'_>) -> Result<Vec<OnGpu>, NvmlError> {
    list(device, *nvml_sym(device.nvml().lib().nvmlDeviceGetComputeRunningProcesses_v3.as_ref())?)
}

/// `nvmlDeviceGetGraphicsRunningProcesses_v3`.
pub(super) fn drawing(device: &Device<'_>) -> Result<Vec<OnGpu>, NvmlError> {
    list(device, *nvml_sym(device.nvml().lib().nvmlDeviceGetGraphicsRunningProcesses_v3.as_ref())?)
}

/// The wrapper asks for the number first, each time, and makes room for as many as the driver says, whatever that is.
fn list(device: &Device<'_>, call: AskList) -> Result<Vec<OnGpu>, NvmlError> {
    /// Processes that there is room for at first, and at most: 1.5 MB.
    const ROOM: usize = 64;
    const MOST: usize = 65_536;
    let none = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut rows = vec![none; ROOM];
    let ask = |rows: &mut Vec<nvmlProcessInfo_t>| {
        let mut count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        // SAFETY: the handle comes from this very library and lives as long as `device` borrows it; the call writes no more
        // than `count` rows, for which there is room, and keeps neither pointer.
        let result = nvml_try(unsafe { call(device.handle(), &raw mut count, rows.as_mut_ptr()) });
        (result, count as usize)
    };
    let mut answer = ask(&mut rows);
    if let (Err(NvmlError::InsufficientSize(_)), wanted) = answer {
        // Some more, for those that start meanwhile.
        rows.resize(wanted.saturating_add(8).min(MOST), none);
        answer = ask(&mut rows);
    }
    answer.0?;
    rows.truncate(answer.1);
    let known = |id: u32| Some(id).filter(|id| *id != u32::MAX);
    let row = |row: nvmlProcessInfo_t| OnGpu {
        pid: row.pid,
        memory: row.usedGpuMemory,
        instance: known(row.gpuInstanceId).zip(known(row.computeInstanceId)),
    };
    Ok(rows.into_iter().map(row).collect())
}

/// What the driver sampled of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Utilization {
    /// Process id in the driver's namespace.
    pub(super) pid: u32,
    /// When, µs in the driver's own time.
    pub(super) at: u64,
    /// Share of the sampling period in which its kernels ran, %.
    pub(super) sm_pct: u32,
}

/// `nvmlDeviceGetProcessUtilization` since `since` (0: all that the driver remembers). The wrapper asks twice, first
/// for the number of samples.
pub(super) fn process_utilization(device: &Device<'_>, since: u64) -> Result<Vec<Utilization>, NvmlError> {
    /// Samples that there is room for at first: driver 580 asks for 72, however few it has.
    const ROOM: usize = 128;
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref())?;
    let none = nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };
    let mut samples = vec![none; ROOM];
    let ask = |samples: &mut Vec<nvmlProcessUtilizationSample_t>| {
        let mut count = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        // SAFETY: as above; the call writes no more than `count` samples, for which there is room.
        let result = nvml_try(unsafe { call(device.handle(), samples.as_mut_ptr(), &raw mut count, since) });
        (result, count as usize)
    };
    let mut answer = ask(&mut samples);
    if let (Err(NvmlError::InsufficientSize(_)), wanted) = answer {
        samples.resize(wanted.min(ROOM * ROOM), none);
        answer = ask(&mut samples);
    }
    answer.0?;
    samples.truncate(answer.1);
    Ok(samples.into_iter().map(|s| Utilization { pid: s.pid, at: s.timeStamp, sm_pct: s.smUtil }).collect())
}
