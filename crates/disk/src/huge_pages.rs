//! The kernel's huge page counters, and the error when too few are reserved.
//!
//! The administrator reserves huge pages, so running out of them is an ordinary condition. The
//! error contains the command to run. Its number is the pages already reserved plus those missing.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The file in which Linux reports memory counters.
const MEMINFO: &str = "/proc/meminfo";

/// Why buffers cannot be on huge pages.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NoHugePages {
    /// How many huge pages were requested.
    pub needed: usize,
    /// The huge page size in bytes; 0 where the kernel has none.
    pub page_size: usize,
    /// The number to reserve for the request to succeed: existing pages plus missing ones.
    pub reserve: usize,
    why: Arc<io::Error>,
}

impl NoHugePages {
    /// The kernel does not support huge pages.
    pub(crate) fn unknown() -> Self {
        Self::new(0, 0, 0, io::ErrorKind::Unsupported.into())
    }

    /// The buffer length is not a multiple of the page size.
    pub(crate) fn uneven(len: usize, page_size: usize) -> Self {
        let why = format!("buffers of {len} bytes are no non-zero multiple of {page_size}");
        Self::new(0, page_size, 0, io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    /// The kernel could not provide that many pages.
    pub(crate) fn missing(needed: usize, page_size: usize, why: io::Error) -> Self {
        let reported = std::fs::read_to_string(MEMINFO).unwrap_or_default();
        Self::new(needed, page_size, to_reserve(&reported, needed), why)
    }

    fn new(needed: usize, page_size: usize, reserve: usize, why: io::Error) -> Self {
        Self { needed, page_size, reserve, why: Arc::new(why) }
    }

    /// Returns the kind of failure: `OutOfMemory` when too few are reserved, `Unsupported` when
    /// there can be none.
    pub fn kind(&self) -> io::ErrorKind {
        self.why.kind()
    }
}

impl fmt::Display for NoHugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, page_size, reserve, why } = self;
        match why.kind() {
            io::ErrorKind::Unsupported => f.write_str("this kernel has no huge pages"),
            io::ErrorKind::InvalidInput => write!(f, "huge pages: {why}"),
            _ => write!(
                f,
                "failed to map {needed} huge pages of {} KiB; reserve them with \
                 `sysctl -w vm.nr_hugepages={reserve}`",
                page_size >> 10
            ),
        }
    }
}

impl std::error::Error for NoHugePages {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // An invalid size is no error of the system: it is the message itself.
        (self.kind() != io::ErrorKind::InvalidInput).then_some(&*self.why as _)
    }
}

/// Returns the huge page size in bytes.
pub(crate) fn page_size() -> Option<usize> {
    const NOT_READ: usize = usize::MAX;
    // No lock, which a thread may have held when `fork` made this process. 0 means none.
    static SIZE: AtomicUsize = AtomicUsize::new(NOT_READ);
    let read = || {
        let kib = field(&std::fs::read_to_string(MEMINFO).ok()?, "Hugepagesize")?;
        kib.checked_mul(1024).filter(|size| size.is_power_of_two())
    };
    if SIZE.load(Relaxed) == NOT_READ {
        SIZE.store(read().unwrap_or(0), Relaxed);
    }
    Some(SIZE.load(Relaxed)).filter(|size| *size > 0)
}

/// Returns how many pages must be reserved in all, so that `needed` more are available.
fn to_reserve(meminfo: &str, needed: usize) -> usize {
    let reported = |name| field(meminfo, name).unwrap_or(0);
    let idle = reported("HugePages_Free").saturating_sub(reported("HugePages_Rsvd"));
    reported("HugePages_Total").saturating_add(needed.saturating_sub(idle))
}

fn field(meminfo: &str, name: &str) -> Option<usize> {
    let (_, rest) =
        meminfo.lines().find_map(|line| line.split_once(':').filter(|(n, _)| *n == name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr)]
mod tests {
    use super::*;
    use crate::aligned::HugePages;

    const REPORTED: &str = "MemTotal:  8000000 kB\nHugePages_Total:      10\nHugePages_Free:        7\n\
                        HugePages_Rsvd:        3\nHugepagesize:       2048 kB\n";

    #[test]
    fn what_is_missing_is_added_to_what_there_is() {
        // Four of the ten are neither used nor reserved by a mapping.
        assert_eq!(to_reserve(REPORTED, 18), 10 + 14);
        assert_eq!(to_reserve(REPORTED, 4), 10);
        assert_eq!(to_reserve("", 18), 18);
        assert_eq!(field(REPORTED, "Hugepagesize"), Some(2048));
        assert_eq!(field(REPORTED, "Hugepages"), None);
    }

    #[test]
    fn more_than_there_can_be_is_refused_with_the_command_that_helps() {
        let Some(page) = page_size() else {
            return eprintln!("SKIPPED: the kernel has no huge pages");
        };
        // 64 TiB: no machine reserves that many.
        let error = HugePages::reserve(page, (64 << 40) / page).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        assert!(error.reserve >= error.needed && error.needed == (64 << 40) / page);
        let command = format!("`sysctl -w vm.nr_hugepages={}`", error.reserve);
        assert!(error.to_string().contains(&command), "{error}");
    }

    #[test]
    fn buffers_are_whole_pages() {
        let Some(page) = page_size() else {
            return eprintln!("SKIPPED: the kernel has no huge pages");
        };
        for len in [0, 1, page - 4096, page + 4096] {
            let error = HugePages::reserve(len, 1).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{len}");
            assert!(error.to_string().contains(&page.to_string()), "{error}");
        }
    }
}
