//! Graphics processors of NVIDIA, where its management library is installed; absent values everywhere else.
//!
//! The library (`libnvidia-ml.so.1`) comes with the driver, so it is looked for when the program runs and not when it is built.
//! No such processor was at hand: the tests call a stand-in with the library's interface.

#![allow(unsafe_code)] // a library that is found at run time

use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::time::Duration;

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "gpu",
    columns: &[
        Column {
            name: "gpu_busy_percent",
            about: "time in which a kernel ran on the graphics processors (NVIDIA), mean over them",
        },
        Column {
            name: "gpu_memory_used_bytes",
            about: "memory of the graphics processors in use, all together",
        },
        Column {
            name: "gpu_power_watts",
            about: "power that the graphics processors draw, all together",
        },
        Column {
            name: "gpu_throttled_percent",
            about: "graphics processors whose clocks heat or a power limit holds down, at the moment of the reading",
        },
    ],
    open: |_, _| Box::new(Gpu { library: Library::open(c"libnvidia-ml.so.1") }),
};

/// Bits of the reasons for low clocks: a limit of power, heat, or a brake of the hardware; idling is none.
const THROTTLED: c_ulonglong = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
/// More devices than any machine has: a library that says so is not believed.
const MOST_DEVICES: c_uint = 64;

/// A device as the library knows it.
type Device = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type Handle = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
type Read<T> = unsafe extern "C" fn(Device, *mut T) -> c_int;

/// `nvmlUtilization_t`.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// The functions that are there; a driver may be too old or a device unable to answer some of them.
struct Library {
    /// The library stays open as long as the process lives, because it starts threads of its own.
    devices: Vec<Device>,
    utilization: Option<Read<Utilization>>,
    memory: Option<Read<Memory>>,
    power: Option<Read<c_uint>>,
    throttled: Option<Read<c_ulonglong>>,
}

// SAFETY: handles of devices are plain numbers of the library, whose functions may be called from any thread.
unsafe impl Send for Library {}

impl Library {
    /// Loads the library and lists its devices; nothing where there is none, or none that answers.
    fn open(name: &CStr) -> Option<Self> {
        // SAFETY: `name` ends with a zero byte; loading runs the library's own initialisers, as its users expect.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        // SAFETY: each name is asked for with the type that the library's header declares for it.
        unsafe {
            let init: Init = symbol(library, c"nvmlInit_v2")?;
            let count: Count = symbol(library, c"nvmlDeviceGetCount_v2")?;
            let handle: Handle = symbol(library, c"nvmlDeviceGetHandleByIndex_v2")?;
            let mut devices = 0;
            if init() != 0 || count(&raw mut devices) != 0 || devices > MOST_DEVICES {
                return None;
            }
            let devices: Vec<Device> = (0..devices)
                .filter_map(|number| {
                    let mut device = std::ptr::null_mut();
                    (handle(number, &raw mut device) == 0).then_some(device)
                })
                .collect();
            Some(Self {
                devices,
                utilization: symbol(library, c"nvmlDeviceGetUtilizationRates"),
                memory: symbol(library, c"nvmlDeviceGetMemoryInfo"),
                power: symbol(library, c"nvmlDeviceGetPowerUsage"),
                throttled: symbol(library, c"nvmlDeviceGetCurrentClocksThrottleReasons"),
            })
        }
    }

    /// What a device says in each column.
    fn read(&self, device: Device) -> [Option<f64>; 4] {
        [
            ask(self.utilization, device).map(|found| f64::from(found.gpu)),
            ask(self.memory, device).map(|found| found.used as f64),
            // Milliwatts.
            ask(self.power, device).map(|found| f64::from(found) / 1e3),
            ask(self.throttled, device)
                .map(|reasons| if reasons & THROTTLED == 0 { 0.0 } else { 100.0 }),
        ]
    }
}

/// A function of a library by its name.
///
/// # Safety
/// `T` must be the type of a pointer to the function of that name.
unsafe fn symbol<T: Copy>(library: *mut c_void, name: &CStr) -> Option<T> {
    let name: *const c_char = name.as_ptr();
    // SAFETY: `library` was opened and never closed, `name` ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the caller names a type of function pointers, which have the size of `found`.
    Some(unsafe { std::mem::transmute_copy::<*mut c_void, T>(&found) })
}

/// Calls a function that fills in a value; nothing where it is missing or fails.
fn ask<T: Default>(function: Option<Read<T>>, device: Device) -> Option<T> {
    let mut value = T::default();
    // SAFETY: the device is one that the library listed, the value has the layout that its header declares.
    (unsafe { function?(device, &raw mut value) } == 0).then_some(value)
}

struct Gpu {
    library: Option<Library>,
}

impl Probe for Gpu {
    fn sample(&mut self, _: Duration, values: &mut [Option<f64>], detail: &mut Detail) {
        values.fill(None);
        let Some(library) = &self.library else { return };
        let read: Vec<[Option<f64>; 4]> =
            library.devices.iter().map(|device| library.read(*device)).collect();
        for (number, device) in read.iter().enumerate() {
            let known = ENTRY.columns.iter().zip(device);
            let known: BTreeMap<&'static str, f64> =
                known.filter_map(|(column, value)| Some((column.name, (*value)?))).collect();
            detail.insert(format!("gpu{number}"), known);
        }
        for (at, slot) in values.iter_mut().enumerate() {
            let known: Vec<f64> = read.iter().filter_map(|device| device[at]).collect();
            let sum: f64 = known.iter().sum();
            let is_share = ENTRY.columns[at].name.ends_with("_percent");
            let value = if is_share { sum / known.len() as f64 } else { sum };
            *slot = (!known.is_empty()).then_some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    /// Two devices: the first is throttled by heat, the second does not tell its power.
    const STAND_IN: &str = r"
        typedef struct { unsigned gpu, memory; } rates;
        typedef struct { unsigned long long total, free, used; } memory;
        static long devices[2] = { 0, 1 };
        int nvmlInit_v2(void) { return 0; }
        int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **device) { *device = &devices[at]; return 0; }
        int nvmlDeviceGetUtilizationRates(void *device, rates *out) { out->gpu = *(long *)device ? 20 : 80; out->memory = 7; return 0; }
        int nvmlDeviceGetMemoryInfo(void *device, memory *out) { out->total = 100; out->free = 60; out->used = 40; return 0; }
        int nvmlDeviceGetPowerUsage(void *device, unsigned *out) { *out = 250500; return *(long *)device ? 3 : 0; }
    ";
    const THROTTLE: &str = "int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) { *out = *(long *)device ? 1 : 0x40; return 0; }";

    /// Builds a library; nothing without a C compiler, which building this workspace needs anyway.
    fn build(folder: &std::path::Path, source: &str) -> CString {
        let (text, library) = (folder.join("nvml.c"), folder.join("libnvml.so"));
        std::fs::write(&text, source).unwrap();
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&text).status();
        assert!(built.unwrap().success());
        CString::new(library.as_os_str().as_bytes()).unwrap()
    }

    fn sample(name: &CStr) -> ([Option<f64>; 4], Detail) {
        let (mut values, mut detail) = ([Some(9.0); 4], Detail::new());
        let mut probe = Gpu { library: Library::open(name) };
        probe.sample(Duration::from_secs(1), &mut values, &mut detail);
        (values, detail)
    }

    #[test]
    fn devices_of_the_library_are_read_and_what_they_do_not_tell_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let (values, detail) = sample(&build(folder.path(), &format!("{STAND_IN}{THROTTLE}")));
        assert_eq!(values, [Some(50.0), Some(80.0), Some(250.5), Some(50.0)]);
        assert_eq!(detail["gpu0"]["gpu_busy_percent"], 80.0);
        assert_eq!(detail["gpu0"]["gpu_throttled_percent"], 100.0);
        // A low clock of an idle device is not a throttled one.
        assert_eq!(detail["gpu1"]["gpu_throttled_percent"], 0.0);
        assert!(!detail["gpu1"].contains_key("gpu_power_watts"));
    }

    #[test]
    fn an_old_library_and_none_at_all_leave_columns_empty() {
        let folder = tempfile::tempdir().unwrap();
        let (values, _) = sample(&build(folder.path(), STAND_IN));
        assert_eq!(values, [Some(50.0), Some(80.0), Some(250.5), None]);
        let other = tempfile::tempdir().unwrap();
        let (values, detail) = sample(&build(other.path(), "int something_else;"));
        assert_eq!((values, detail), ([None; 4], Detail::new()));
        assert_eq!(sample(c"no-such-library.so").0, [None; 4]);
    }
}
