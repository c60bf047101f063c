//! Freed memory that stays in the process, and memory in small pages.
#![allow(unsafe_code)] // These are functions of C; see the one SAFETY comment.

/// Keeps freed memory in the process from here on, and takes new memory in small pages. A program
/// that opens a component thousands of times otherwise spends most of its time on getting the same
/// buffers from the system again, and on clearing huge pages of which it uses a few bytes.
///
/// Does nothing where the C library is not glibc.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
            // SAFETY: they take integers, and may be called at any time.
            unsafe {
                libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused);
                libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
                libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
            }
        });
    }
}
