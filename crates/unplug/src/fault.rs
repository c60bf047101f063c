//! Faults that the mount injects while the program runs.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;

use crate::rng::Rng;

/// The last sync that the seed may choose to fail.
const FAILING_SYNC_MAX: u64 = 10;
const SLOW_SYNC_TIME: Duration = Duration::from_millis(100);

/// A fault as the user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sync fails: the one with this number, or one that the seed chooses.
    FailingSync(Option<NonZeroU64>),
    /// Writes past this number of bytes fail.
    FullDisk {
        bytes: u64,
    },
    SlowSyncs,
}

/// The text is no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFault;

impl FromStr for Fault {
    type Err = InvalidFault;

    fn from_str(text: &str) -> Result<Self, InvalidFault> {
        let number = |text: &str| text.parse().map_err(|_| InvalidFault);
        match text.split_once('=') {
            None if text == "eio-on-fsync" => Ok(Self::FailingSync(None)),
            None if text == "slow" => Ok(Self::SlowSyncs),
            Some(("eio-on-fsync", sync)) => {
                NonZeroU64::new(number(sync)?).ok_or(InvalidFault).map(Some).map(Self::FailingSync)
            }
            Some(("enospc", bytes)) => Ok(Self::FullDisk { bytes: number(bytes)? }),
            _ => Err(InvalidFault),
        }
    }
}

impl fmt::Display for InvalidFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault is eio-on-fsync, eio-on-fsync=N, enospc=BYTES or slow")
    }
}

impl std::error::Error for InvalidFault {}

/// The faults of a run, and how far the program is from each.
#[derive(Debug, Default)]
pub struct FaultInjector {
    /// The number of the sync that fails.
    failing_sync: Option<u64>,
    syncs: u64,
    disk: Option<FiniteDisk>,
    sync_time: Duration,
}

#[derive(Debug)]
struct FiniteDisk {
    bytes_left: u64,
    was_full: bool,
}

/// How the next sync goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFate {
    pub time: Duration,
    pub fails: bool,
}

impl FaultInjector {
    /// The last fault of each kind counts.
    pub fn new(faults: &[Fault], seed: u64) -> Self {
        let mut injector = Self::default();
        for fault in faults {
            match *fault {
                Fault::FailingSync(number) => {
                    let drawn = 1 + Rng::new(seed).below(FAILING_SYNC_MAX);
                    injector.failing_sync = Some(number.map_or(drawn, NonZeroU64::get));
                }
                Fault::FullDisk { bytes } => {
                    injector.disk = Some(FiniteDisk { bytes_left: bytes, was_full: false });
                }
                Fault::SlowSyncs => injector.sync_time = SLOW_SYNC_TIME,
            }
        }
        injector
    }

    pub fn sync(&mut self) -> SyncFate {
        self.syncs += 1;
        SyncFate { time: self.sync_time, fails: self.failing_sync == Some(self.syncs) }
    }

    /// Takes the bytes of a write from the disk. Nothing fits on a disk that was full.
    pub fn write(&mut self, bytes: u64) -> Result<(), Errno> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        match disk.bytes_left.checked_sub(bytes) {
            Some(left) if !disk.was_full => disk.bytes_left = left,
            _ => disk.was_full = true,
        }
        if disk.was_full { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Whether the disk has space for this number of bytes more.
    pub fn allocate(&mut self, bytes: u64) -> Result<(), Errno> {
        match &mut self.disk {
            Some(disk) if disk.was_full || disk.bytes_left < bytes => {
                disk.was_full = true;
                Err(Errno::NOSPC)
            }
            _ => Ok(()),
        }
    }

    /// The faults, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        sentences.extend(self.failing_sync.map(|number| format!("fsync {number} fails with EIO")));
        if let Some(disk) = &self.disk {
            sentences.push(format!("writes past {} bytes fail with ENOSPC", disk.bytes_left));
        }
        if !self.sync_time.is_zero() {
            sentences.push(format!("each fsync takes {} ms", self.sync_time.as_millis()));
        }
        sentences
    }

    /// The faults that the program never met, a sentence each.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(number) = self.failing_sync.filter(|number| *number > self.syncs) {
            missed.push(format!("fsync {number} did not fail: there were {}", self.syncs));
        }
        if let Some(disk) = self.disk.as_ref().filter(|disk| !disk.was_full) {
            missed.push(format!("no write met ENOSPC: {} bytes were left", disk.bytes_left));
        }
        missed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_parsed_or_refused() {
        let number = |number| Fault::FailingSync(NonZeroU64::new(number));
        let faults = [
            ("eio-on-fsync", Fault::FailingSync(None)),
            ("eio-on-fsync=3", number(3)),
            ("enospc=0", Fault::FullDisk { bytes: 0 }),
            ("slow", Fault::SlowSyncs),
        ];
        for (text, fault) in faults {
            assert_eq!(text.parse(), Ok(fault), "{text}");
        }
        for text in ["", "eio", "eio-on-fsync=0", "eio-on-fsync=", "enospc", "enospc=-1", "slow=1"]
        {
            assert_eq!(text.parse::<Fault>(), Err(InvalidFault), "{text}");
        }
    }

    #[test]
    fn one_sync_fails_and_the_seed_chooses_it() {
        let failing = |seed| {
            let mut injector = FaultInjector::new(&[Fault::FailingSync(None)], seed);
            let fails: Vec<bool> = (0..30).map(|_| injector.sync().fails).collect();
            assert_eq!(fails.iter().filter(|fails| **fails).count(), 1);
            assert!(injector.missed().is_empty());
            fails
        };
        assert_eq!(failing(1), failing(1));
        assert!((2..10).any(|seed| failing(seed) != failing(1)));
    }

    #[test]
    fn nothing_fits_on_a_disk_that_was_full() {
        let mut injector = FaultInjector::new(&[Fault::FullDisk { bytes: 10 }], 1);
        assert_eq!(injector.write(8), Ok(()));
        assert_eq!(injector.missed(), ["no write met ENOSPC: 2 bytes were left"]);
        assert_eq!(injector.write(3), Err(Errno::NOSPC));
        assert_eq!(injector.write(1), Err(Errno::NOSPC));
        assert!(injector.missed().is_empty());
    }
}
