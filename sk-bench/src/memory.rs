//! Memory figures of the operating system (Linux) and of GPUs.

use sk_models::device::{Device, is_cpu};

/// Returns the peak memory of models on a device. On a CPU this is the peak of the process; on a
/// GPU, the reserved memory, which never shrinks.
pub(crate) fn peak_on(device: &Device) -> Option<u64> {
    if is_cpu(device) { peak() } else { device.memory_pool_usage().map(|usage| usage.bytes_reserved) }
}

/// Returns the peak resident size of this process in bytes (`VmHWM`).
pub(crate) fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// Returns the resident size of this process in bytes (`VmRSS`).
pub(crate) fn resident() -> Option<u64> {
    status("VmRSS:")
}

fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Returns the one-minute load average.
pub(crate) fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn linux_reports_memory_and_load() {
        let (resident, peak) = (super::resident().unwrap(), super::peak().unwrap());
        assert!(resident > 1 << 20 && peak > 1 << 20);
        assert!(super::load_average().unwrap() >= 0.0);
    }
}
