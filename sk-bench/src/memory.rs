//! Figures that the operating system keeps, where it is Linux, and those of a GPU's own memory.

use sk_models::device::{Device, is_processor};

/// The most memory that models on this device have taken: on a processor, of the process; on a GPU,
/// what was reserved of its memory, of which nothing is given back.
pub fn peak_on(device: &Device) -> Option<u64> {
    if is_processor(device) { peak() } else { device.memory_pool_usage().map(|usage| usage.bytes_reserved) }
}

/// Largest resident size this process has had, in bytes (`VmHWM`).
pub fn peak() -> Option<u64> {
    status("VmHWM:")
}

/// Resident size of this process, in bytes (`VmRSS`).
pub fn resident() -> Option<u64> {
    status("VmRSS:")
}

fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// One-minute load average.
pub fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn linux_tells() {
        let (resident, peak) = (super::resident().unwrap(), super::peak().unwrap());
        assert!(resident > 1 << 20 && peak > 1 << 20);
        assert!(super::load_average().unwrap() >= 0.0);
    }
}
