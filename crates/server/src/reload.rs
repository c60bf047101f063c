//! Files that are read again when they change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::MissedTickBehavior;

/// The shortest time between two checks.
pub(crate) const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The contents of files. Those that are in use are equal to the files as they were last read, if
/// these could be used.
#[derive(Debug)]
pub(crate) struct ReloadedFiles<F, T> {
    files: F,
    read: fn(&F) -> Result<T, String>,
    current: RwLock<Arc<T>>,
}

impl<F, T: PartialEq> ReloadedFiles<F, T> {
    /// Reads the files.
    ///
    /// # Errors
    /// The error of `read`: the reason why they cannot be used.
    pub(crate) fn open(files: F, read: fn(&F) -> Result<T, String>) -> Result<Self, String> {
        let current = RwLock::new(Arc::new(read(&files)?));
        Ok(Self { files, read, current })
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> &F {
        &self.files
    }

    /// Returns the contents in use.
    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read())
    }

    /// Uses these contents until the files are read again.
    pub(crate) fn replace(&self, contents: T) {
        *self.current.write() = Arc::new(contents);
    }

    /// Reads the files again, and uses what is there if `check` accepts it. Returns whether it is
    /// new.
    ///
    /// # Errors
    /// The reason why the contents before stay in use.
    pub(crate) fn refresh(
        &self,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<bool, String> {
        let found = (self.read)(&self.files)?;
        if found == *self.current() {
            return Ok(false);
        }
        check(&found)?;
        *self.current.write() = Arc::new(found);
        Ok(true)
    }
}

/// Files that a node reads again while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadedKind {
    Certificate,
    PeerCertificate,
    ClientCa,
    AdminTokens,
}

impl ReloadedKind {
    const ALL: [Self; 4] =
        [Self::Certificate, Self::PeerCertificate, Self::ClientCa, Self::AdminTokens];

    /// Returns the kind as metrics name it.
    fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::PeerCertificate => "peer_certificate",
            Self::ClientCa => "client_ca",
            Self::AdminTokens => "admin_tokens",
        }
    }

    /// Returns what the node does while the files cannot be used, as log lines say it.
    pub(crate) fn consequence(self) -> &'static str {
        match self {
            Self::Certificate => "keeps the certificate for clients",
            Self::PeerCertificate => "keeps the certificate for other nodes",
            Self::ClientCa => "keeps the authority of clients",
            Self::AdminTokens => "allows no admin token until the file can be used",
        }
    }
}

/// The kinds of files that could not be used when they were last read.
#[derive(Debug, Default)]
pub(crate) struct ReloadFailures([AtomicBool; ReloadedKind::ALL.len()]);

impl ReloadFailures {
    /// Records whether these files could be used.
    pub(crate) fn record(&self, kind: ReloadedKind, has_failed: bool) {
        self.0[kind as usize].store(has_failed, Relaxed);
    }

    /// Returns each kind with whether its files could not be used.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let failed = self.0.iter().map(|failed| failed.load(Relaxed));
        ReloadedKind::ALL.into_iter().map(ReloadedKind::name).zip(failed)
    }
}

/// Calls `refresh` in each interval, for ever, where it may block. Records and logs that it fails,
/// once for each error.
pub(crate) async fn keep_fresh<T: Send + Sync + 'static>(
    item: Arc<T>,
    interval: Duration,
    (kind, failures): (ReloadedKind, Arc<ReloadFailures>),
    refresh: fn(&T) -> Result<(), String>,
) {
    let mut ticks = tokio::time::interval(interval.max(CHECK_INTERVAL_MIN));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = String::new();
    loop {
        ticks.tick().await;
        let item = Arc::clone(&item);
        let refreshed = tokio::task::spawn_blocking(move || refresh(&item)).await;
        let error = match refreshed {
            Ok(Ok(())) => String::new(),
            Ok(Err(why)) => why,
            Err(error) => error.to_string(),
        };
        failures.record(kind, !error.is_empty());
        if !error.is_empty() && error != reported {
            tracing::warn!(error, "{}", kind.consequence());
        }
        reported = error;
    }
}
