//! The arenas of glibc's allocator.

/// Limits glibc's allocator to one arena per processor. Does nothing with another C library.
///
/// By default, threads allocate from up to eight arenas per processor. An arena keeps what is freed
/// in it, so with many threads, such as one per request, each arena grows towards the peak of the
/// whole program. Call this function before other threads start.
pub fn limit_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let most = i32::try_from(processors).unwrap_or(i32::MAX);
        // SAFETY: the call changes a parameter of the allocator and touches no memory of ours.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
    }
}
