//! Devices, chosen by name at run time.

mod users;

use std::{fmt, str::FromStr};

pub use burn::tensor::Device;
use burn::tensor::Tensor;
use thiserror::Error;

pub(crate) use users::{block_recording, if_only_user, register_thread};

/// A device by name: `cpu`, `cuda`, `cuda:1`, `wgpu`, `wgpu:0`, or `auto`.
///
/// ```
/// use sk_models::device::DeviceName;
///
/// let name: DeviceName = "cuda:1".parse()?;
/// assert_eq!(name, DeviceName::Cuda(Some(1)));
/// assert_eq!(name.to_string(), "cuda:1");
/// assert!("gpu".parse::<DeviceName>().is_err());
/// # Ok::<(), sk_models::device::DeviceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceName {
    /// A CUDA GPU if this build and machine have one, else the CPU. WGPU must be named, since its
    /// default may be a software driver, which is slower than the CPU backend.
    #[default]
    Auto,
    /// The CPU, through Burn's Flex backend.
    Cpu,
    /// An NVIDIA GPU by index; the first if none is given.
    Cuda(Option<usize>),
    /// An adapter of WGPU by index; the one WGPU prefers if none is given.
    Wgpu(Option<usize>),
}

/// A device failed to return a result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct DeviceFailure {
    /// The message of the device.
    pub message: String,
}

/// A device that is not available.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum DeviceError {
    /// An unknown name.
    #[error("unknown device `{name}`; this program has {}", built())]
    Unknown { name: String },
    /// A backend that is not part of this program.
    #[error("this program was built without {name}: build it with `--features {}`, or use {}", name.feature(), built())]
    NotBuilt { name: DeviceName },
    /// A device that this machine does not have.
    #[error("there is no {name}: {reason}")]
    Absent { name: DeviceName, reason: String },
    /// A GPU that this process uses already with one queue per thread.
    #[error("{name} is in use with a queue for each thread: open it by its name before anything else in this process uses a GPU")]
    Queues { name: DeviceName },
}

/// Lists the devices of this program, for messages.
fn built() -> String {
    let mut names = vec!["cpu"];
    if cfg!(feature = "cuda") {
        names.push("cuda[:N]");
    }
    if cfg!(feature = "wgpu") {
        names.push("wgpu[:N]");
    }
    names.push("auto");
    names.join(", ")
}

/// Returns whether models on this device are in the CPU's memory.
#[must_use]
pub fn is_cpu(device: &Device) -> bool {
    *device == Device::flex()
}

/// Moves a tensor on a GPU to memory of its own, outside the pools of intermediate results, since
/// every step of a pass searches the pools for room.
pub(crate) fn persistent<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let device = tensor.device();
    if is_cpu(&device) || device.is_autodiff() {
        return tensor;
    }
    // The tensor is cloned first, so that the product copies it.
    device.memory_persistent_allocations(tensor, |tensor| tensor.clone().mul_scalar(1.0))
}

impl FromStr for DeviceName {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown { name: text.to_owned() };
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, Some(index.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        match (kind, index) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("cuda", index) => Ok(Self::Cuda(index)),
            ("wgpu", index) => Ok(Self::Wgpu(index)),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, index) = match self {
            Self::Auto => ("auto", None),
            Self::Cpu => ("cpu", None),
            Self::Cuda(index) => ("cuda", *index),
            Self::Wgpu(index) => ("wgpu", *index),
        };
        f.write_str(kind)?;
        index.map_or(Ok(()), |index| write!(f, ":{index}"))
    }
}

impl DeviceName {
    /// Returns the Cargo feature that enables the device.
    fn feature(self) -> &'static str {
        if matches!(self, Self::Wgpu(_)) { "wgpu" } else { "cuda" }
    }

    /// Returns the device and the name of the one found for [`Auto`](Self::Auto).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn resolve(self) -> Result<(Self, Device), DeviceError> {
        if self != Self::Auto {
            return self.open().map(|device| (self, device));
        }
        let cuda = Self::Cuda(None);
        match cuda.open() {
            Ok(device) => Ok((cuda, device)),
            // Do not fall back to the CPU, since the GPU exists and the CPU would be unexpectedly
            // slow.
            Err(error @ DeviceError::Queues { .. }) => Err(error),
            Err(_) => Self::Cpu.open().map(|device| (Self::Cpu, device)),
        }
    }

    /// Opens the device.
    ///
    /// Compiled kernels of a GPU are cached in the user's cache folder. All threads of
    /// the process share one queue.
    ///
    /// # Errors
    ///
    /// If this program was built without the backend, the machine does not have the device, or the
    /// process uses a GPU already with one queue per thread.
    pub fn open(self) -> Result<Device, DeviceError> {
        match self {
            Self::Auto => self.resolve().map(|(_, device)| device),
            Self::Cpu => Ok(Device::flex()),
            #[cfg(feature = "cuda")]
            Self::Cuda(index) => cuda(index),
            #[cfg(not(feature = "cuda"))]
            Self::Cuda(_) => Err(DeviceError::NotBuilt { name: self }),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(index) => wgpu(index),
            #[cfg(not(feature = "wgpu"))]
            Self::Wgpu(_) => Err(DeviceError::NotBuilt { name: self }),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda(index: Option<usize>) -> Result<Device, DeviceError> {
    let name = DeviceName::Cuda(index);
    let absent = |reason: &str| DeviceError::Absent { name, reason: reason.to_owned() };
    // Without these libraries the backend would panic on first use. SAFETY: loading NVIDIA's
    // libraries runs their initialisers, which is what using the device does anyway.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(absent("the NVIDIA driver (libcuda) is not installed"));
    }
    // SAFETY: as above.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err(absent("NVIDIA's run-time compiler (libnvrtc, part of the CUDA toolkit) is not installed"));
    }
    // Without these headers the kernels' compiler would panic.
    if !cubecl::cuda::install::cuda_path().is_some_and(|path| path.join("include/cuda_bf16.h").is_file()) {
        return Err(absent(
            "the headers of the CUDA toolkit (cuda_bf16.h) were not found; set CUDA_PATH to the folder that has include/",
        ));
    }
    if let Some(reason) = mismatch(cuda_versions()) {
        return Err(DeviceError::Absent { name, reason });
    }
    prepare(name)?;
    listed(name, index.unwrap_or(0), burn::tensor::DeviceType::Cuda)
}

/// Returns the CUDA versions of the driver and of the compiler: 12080 is 12.8. Zero if unknown.
#[cfg(feature = "cuda")]
fn cuda_versions() -> [i32; 2] {
    let (mut driver, mut major, mut minor) = (0, 0, 0);
    // SAFETY: both libraries are there, and write only to the given places.
    unsafe {
        let _ = cudarc::driver::sys::cuDriverGetVersion(&raw mut driver);
        let _ = cudarc::nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor);
    }
    [driver, 1000 * major + 10 * minor]
}

/// Returns why a driver and a compiler of these versions would fail at first use.
#[cfg(any(feature = "cuda", test))]
fn mismatch([driver, compiler]: [i32; 2]) -> Option<String> {
    /// The oldest driver with the functions that are called.
    const LEAST: i32 = 12_080;
    let name = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
    if driver > 0 && driver < LEAST {
        return Some(format!("the NVIDIA driver is of CUDA {}; {} or later is needed", name(driver), name(LEAST)));
    }
    // Compiled kernels have the format of the compiler's version, which an older driver does not
    // read.
    (driver > 0 && compiler > driver).then(|| {
        format!(
            "NVIDIA's run-time compiler (libnvrtc) is of CUDA {}, later than that of the driver, {}; update the driver or take an older toolkit",
            name(compiler),
            name(driver)
        )
    })
}

#[cfg(feature = "wgpu")]
fn wgpu(index: Option<usize>) -> Result<Device, DeviceError> {
    let name = DeviceName::Wgpu(index);
    prepare(name)?;
    // Listing also shows whether there is any adapter. Opening the preferred one would panic.
    let first = listed(name, index.unwrap_or(0), burn::tensor::DeviceType::Wgpu)?;
    Ok(if index.is_some() { first } else { Device::wgpu(burn::tensor::DeviceKind::DefaultDevice) })
}

/// Configures one queue for all threads and a kernel cache in the user's cache folder, before a
/// backend reads its settings.
///
/// Other settings come from a `cubecl.toml` near the working directory, as usual with CubeCL.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn prepare(name: DeviceName) -> Result<(), DeviceError> {
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig, streaming::StreamPolicy};
    let mut settings = CubeClRuntimeConfig::from_current_dir().override_from_env();
    settings.compilation.cache = true;
    // Joined passes run on whichever thread comes last and write caches in place. One queue keeps
    // their order. With a queue for each thread, one thread could read what another has not written
    // yet.
    settings.streaming.policy = StreamPolicy::Single;
    // The default is a folder `target` beside the nearest Cargo.toml above the working directory.
    if matches!(settings.environment.path, CacheConfig::Target) {
        settings.environment.path = CacheConfig::Global;
    }
    // Keep the settings of an earlier user of a GPU.
    CubeClRuntimeConfig::try_set(settings);
    match CubeClRuntimeConfig::get().streaming.policy {
        StreamPolicy::Single => Ok(()),
        _ => Err(DeviceError::Queues { name }),
    }
}

/// Calls `work` and returns its result and the number of kernels that all threads launched on GPUs
/// meanwhile; `None` if this program has no GPU backend.
///
/// A GPU receives work when a result is needed. Work that it has not received when `work` returns
/// does not count.
pub fn counting_kernels<R>(work: impl FnOnce() -> R) -> (R, Option<usize>) {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        #[derive(Default)]
        struct Launches(AtomicUsize);

        impl cubecl::logging::LaunchObserver for Launches {
            fn launched(&self, _: &'static str) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        let launches = Arc::new(Launches::default());
        let observation = cubecl::logging::LaunchObservation::new(launches.clone());
        let result = work();
        drop(observation);
        (result, Some(launches.0.load(Ordering::Relaxed)))
    }
    #[cfg(not(any(feature = "cuda", feature = "wgpu")))]
    (work(), None)
}

/// Returns the device at a position in its backend's list.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn listed(name: DeviceName, index: usize, kind: burn::tensor::DeviceType) -> Result<Device, DeviceError> {
    let mut devices = Device::enumerate(kind).into_vec();
    if index < devices.len() {
        Ok(devices.swap_remove(index))
    } else {
        Err(DeviceError::Absent { name, reason: format!("this machine has {}", devices.len()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for name in ["auto", "cpu", "cuda", "cuda:1", "wgpu", "wgpu:0"] {
            assert_eq!(name.parse::<DeviceName>().unwrap().to_string(), name);
        }
        for name in ["", "gpu", "cpu:0", "auto:1", "cuda:", "cuda:x", "cuda:-1", "CUDA"] {
            let message = name.parse::<DeviceName>().unwrap_err().to_string();
            assert!(message.contains(&format!("`{name}`")) && message.contains("auto"), "{message}");
        }
    }

    #[test]
    fn drivers_that_would_fail_are_recognised() {
        for versions in [[13_000, 13_000], [13_020, 12_090], [12_080, 12_080], [0, 0], [0, 13_000], [13_000, 0]] {
            assert_eq!(mismatch(versions), None, "{versions:?}");
        }
        assert!(mismatch([12_040, 12_040]).unwrap().contains("of CUDA 12.4; 12.8 or later"));
        assert!(mismatch([12_080, 13_000]).unwrap().contains("(libnvrtc) is of CUDA 13.0, later than that of the driver, 12.8"));
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_backend_that_was_not_built_is_named() {
        let message = DeviceName::Cuda(Some(1)).open().unwrap_err().to_string();
        assert!(message.contains("without cuda:1"), "{message}");
    }

    #[test]
    fn automatic_choice_always_finds_a_device() {
        assert!(DeviceName::Auto.open().is_ok());
    }
}
