//! Freed memory that stays in the process.
#![allow(unsafe_code)] // `mallopt` is a function of C; see the one SAFETY comment.

/// Keeps freed memory in the process from here on. A program that opens a component thousands of
/// times otherwise spends most of its time on getting the same buffers from the system again.
///
/// Does nothing where the allocator is not that of glibc.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // SAFETY: it takes two integers, and may be called at any time.
            unsafe {
                libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
                libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
            }
        });
    }
}
