//! The free memory of the CPU.

use std::fs;
use std::path::Path;

use burn::tensor::Device;

use crate::device::is_cpu;

/// Returns the bytes of CPU memory that this process can still allocate without swapping, if the
/// system reports them: the least of what is available, what its own limit (`ulimit -v`) leaves and
/// what the limits of its control groups, such as that of a container, leave.
pub(crate) fn free_memory() -> Option<u64> {
    let read = |file: &str| fs::read_to_string(file).ok();
    let available = kibibytes(&read("/proc/meminfo")?, "MemAvailable:")?;
    let own = || {
        let limits = read("/proc/self/limits")?;
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
        Some(limit.saturating_sub(kibibytes(&read("/proc/self/status")?, "VmSize:")?))
    };
    let groups = || left_in_groups(&read("/proc/self/cgroup")?, Path::new("/sys/fs/cgroup"));
    Some([own(), groups()].into_iter().flatten().fold(available, u64::min))
}

/// Returns the bytes that the limits of control groups leave, if there are any: of the groups in
/// the text of `/proc/self/cgroup`, and of their parents up to `root`. Cached files count as free,
/// as in `MemAvailable`.
fn left_in_groups(groups: &str, root: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, [limit, usage, inactive, active]) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current", "inactive_file ", "active_file "]),
            "memory" => {
                let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ", "total_active_file "];
                (root.join("memory"), names)
            }
            _ => return None,
        };
        let left = |folder: &Path| {
            let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
            let bytes = |file: &str| read(file)?.trim().parse::<u64>().ok();
            let statistics = read("memory.stat").unwrap_or_default();
            let cached = |name: &str| statistics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
            let cached = cached(inactive).unwrap_or(0) + cached(active).unwrap_or(0);
            Some(bytes(limit)?.saturating_sub(bytes(usage)?.saturating_sub(cached)))
        };
        let group = root.join(path.trim_start_matches('/'));
        group.ancestors().take_while(|folder| folder.starts_with(&root)).filter_map(left).min()
    };
    groups.lines().filter_map(of_line).min()
}

/// Gives memory that was freed, and that the allocator keeps, back to the system. Does nothing without
/// glibc.
pub(crate) fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call has no requirements.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// A lack of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}; {} of memory are free", size(*needed), size(*free))]
pub struct Shortage {
    /// Bytes that are needed.
    pub needed: u64,
    /// Bytes that are free.
    pub free: u64,
}

fn size(bytes: u64) -> String {
    if bytes < 1_000_000_000 { format!("{} MB", bytes / 1_000_000) } else { format!("{:.1} GB", bytes as f64 / 1e9) }
}

/// Checks that the CPU's memory has room for `needed` bytes on `device`, if its free bytes are
/// known. The free memory of a GPU is unknown and not checked.
pub(crate) fn check_room(device: &Device, needed: u64, free: Option<u64>) -> Result<(), Shortage> {
    match free.filter(|_| is_cpu(device)) {
        Some(free) if needed > free => Err(Shortage { needed, free }),
        _ => Ok(()),
    }
}

/// Returns the bytes that a line of a file in `/proc` states in kibibytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_of_the_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |folder: &str, files: &[(&str, &str)]| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        };
        let left = |groups: &str| left_in_groups(groups, root.path());
        let (v2, v1) = ("0::/pod/task\n", "5:cpu:/pod\n4:memory:/pod/task\n0::/\n");
        assert_eq!(left(v2).or(left(v1)), None);

        write("pod", &[("memory.max", "1000\n"), ("memory.current", "900\n")]);
        write("pod/task", &[("memory.max", "max\n"), ("memory.current", "10\n")]);
        assert_eq!((left(v2), left(v1)), (Some(100), None));
        let cached = "anon 1\ninactive_file 200\nactive_file 50\ntotal_inactive_file 7\n";
        write("pod", &[("memory.stat", cached)]);
        assert_eq!((left(v2), left("0::/pod"), left("0::/other")), (Some(350), Some(350), None));
        write("pod/task", &[("memory.max", "30\n")]);
        assert_eq!(left(v2), Some(20));

        write("memory", &[("memory.limit_in_bytes", "500\n"), ("memory.usage_in_bytes", "450\n")]);
        write("memory", &[("memory.stat", "inactive_file 3\ntotal_inactive_file 10\ntotal_active_file 20\n")]);
        write("memory/pod/task", &[("memory.limit_in_bytes", "9223372036854771712\n"), ("memory.usage_in_bytes", "5\n")]);
        assert_eq!(left(v1), Some(80));
        write("memory/pod", &[("memory.limit_in_bytes", "100\n"), ("memory.usage_in_bytes", "101\n")]);
        assert_eq!(left(v1), Some(0));
    }
}
