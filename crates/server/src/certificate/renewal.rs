//! Renewal of the certificate while the node runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior};

use crate::certificate::files::Pem;
use crate::certificate::maker::{CertificateMaker, read_failed};
use crate::certificate::pair::CertificatePair;
use crate::certificate::resolver::CertificateResolver;
use crate::counters::Counters;
use crate::error::ServerError;
use crate::options::{CertificateFiles, ServerOptions};
use crate::reload::{CHECK_INTERVAL_MIN, ReloadedKind};

/// The time between two warnings that the operator's certificate ends.
pub(crate) const EXPIRY_WARNING_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// The source of the certificate.
#[derive(Debug)]
enum CertificateSource {
    /// The data folder: the node makes it, unless the operator puts another one there.
    DataDir(CertificateMaker),
    /// The operator's files.
    Operator(CertificateFiles),
}

/// The certificate of a node, and its source.
#[derive(Debug)]
pub(crate) struct Certificate {
    resolver: Arc<CertificateResolver>,
    source: CertificateSource,
    /// Whether the operator made it: the node does not write it then.
    is_operators: bool,
    /// The contents of the files when they were last read or written.
    pem: Pem,
    /// The pair in use.
    pair: CertificatePair,
    check_interval: Duration,
    /// The last failure that was logged.
    reported: String,
    /// The time of the last warning that the certificate ends.
    last_warning: Option<Instant>,
}

impl Certificate {
    /// Reads the operator's certificate, if one is given. Touches no data.
    pub(crate) fn open_operators(options: &ServerOptions) -> Result<Option<Self>, ServerError> {
        let Some(files) = &options.certificate else { return Ok(None) };
        let found = files.read().map_err(|(path, error)| {
            format!("cannot read {}: {error}: let this user read it", path.display())
        });
        let (pem, pair) =
            found.and_then(|pem| parse_valid(pem, SystemTime::now())).map_err(|why| {
                let (cert, key) = (files.cert.display(), files.key.display());
                ServerError::InvalidOption(format!("--cert {cert} --key {key}: {why}"))
            })?;
        let source = CertificateSource::Operator(files.clone());
        Ok(Some(Self::new(source, pem, pair, options)))
    }

    /// Opens the certificate of the data folder, or makes one for these hosts if there is none.
    pub(crate) fn open_data_dir(
        options: &ServerOptions,
        hosts: &[&str],
    ) -> Result<Self, ServerError> {
        let maker = CertificateMaker::new(options, hosts);
        let (pem, pair) = maker.open(SystemTime::now())?;
        Ok(Self::new(CertificateSource::DataDir(maker), pem, pair, options))
    }

    fn new(
        source: CertificateSource,
        pem: Pem,
        pair: CertificatePair,
        options: &ServerOptions,
    ) -> Self {
        Self {
            resolver: Arc::new(CertificateResolver::new(pair.key())),
            is_operators: matches!(source, CertificateSource::Operator(_)) || !pair.is_own,
            source,
            pem,
            pair,
            check_interval: options.certificate_check_interval.max(CHECK_INTERVAL_MIN),
            reported: String::new(),
            last_warning: None,
        }
    }

    /// Returns the resolver of new connections, which always has the certificate in use.
    pub(crate) fn resolver(&self) -> Arc<CertificateResolver> {
        Arc::clone(&self.resolver)
    }

    /// Renews the certificate, or reads the operator's again, for ever. A panic in a check, or a
    /// broken invariant, is counted, and the certificate stays: all nodes may have the same files.
    pub(crate) async fn watch(mut self, counters: &Counters) {
        counters.certificate_ends.store(self.pair.not_after_seconds(), Relaxed);
        let mut ticks = tokio::time::interval(self.check_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Files are read and written.
            let checked = tokio::task::spawn_blocking(move || {
                let refresh = AssertUnwindSafe(|| self.refresh(SystemTime::now()));
                let is_broken = catch_unwind(refresh).unwrap_or(true);
                (self, is_broken)
            });
            let is_broken;
            match checked.await {
                Ok(checked) => (self, is_broken) = checked,
                Err(error) => return tracing::error!(%error, "the certificate is not renewed"),
            }
            if is_broken {
                counters.failed_tasks.fetch_add(1, Relaxed);
                tracing::error!(
                    end = self.pair.not_after_text(),
                    "keeps the certificate: a check of its files failed because of a bug"
                );
            }
            counters.certificate_ends.store(self.pair.not_after_seconds(), Relaxed);
            let has_failed = is_broken || !self.reported.is_empty();
            counters.reload_failures.record(ReloadedKind::Certificate, has_failed);
        }
    }

    /// Checks the files once: renews the certificate if it is due, or uses the new one there.
    /// Returns whether an invariant does not hold.
    fn refresh(&mut self, now: SystemTime) -> bool {
        let mut is_broken = false;
        match self.renew(now) {
            Ok(Some((pem, pair))) => {
                self.resolver.replace(pair.key());
                tracing::info!(
                    end = pair.not_after_text(),
                    "new connections of clients get a new certificate"
                );
                (self.pem, self.pair, self.last_warning) = (pem, pair, None);
                self.reported.clear();
            }
            Ok(None) => self.reported.clear(),
            Err(error) => {
                is_broken = matches!(error, ServerError::Internal { .. });
                self.report(&error);
            }
        }
        let is_quiet =
            self.last_warning.is_some_and(|then| then.elapsed() < EXPIRY_WARNING_INTERVAL);
        if self.is_operators && self.pair.is_due(now) && !is_quiet {
            tracing::warn!(
                end = self.pair.not_after_text(),
                cert = %self.files().cert.display(),
                key = %self.files().key.display(),
                "the certificate for clients ends soon: replace its files"
            );
            self.last_warning = Some(Instant::now());
        }
        is_broken
    }

    fn files(&self) -> CertificateFiles {
        match &self.source {
            CertificateSource::Operator(files) => files.clone(),
            CertificateSource::DataDir(maker) => maker.files(),
        }
    }

    /// Logs that a pair could not replace the one in use, and why: once for each reason.
    fn report(&mut self, error: &ServerError) {
        let why = error.to_string();
        if why != self.reported {
            let files = self.files();
            tracing::warn!(
                error = error as &dyn std::error::Error,
                end = self.pair.not_after_text(),
                cert = %files.cert.display(),
                key = %files.key.display(),
                "{}",
                ReloadedKind::Certificate.consequence()
            );
            self.reported = why;
        }
    }

    /// Returns a pair that replaces the one in use, if there is one.
    ///
    /// # Errors
    /// The reason why there is none although one is due.
    fn renew(&mut self, now: SystemTime) -> Result<Option<(Pem, CertificatePair)>, ServerError> {
        let files = self.files();
        // Files that cannot be read may be the operator's, and are not written.
        let found = files.read().map_err(read_failed)?.unwrap_or_default();
        let CertificateSource::DataDir(maker) = &self.source else {
            return parse_changed(found, &self.pem, now);
        };
        if found == Pem::default() {
            // Removing both files asks for the node's own, until others are there.
            (self.is_operators, self.pem) = (false, found);
        } else if self.is_operators || found != self.pem {
            // Files that an operator puts there are used, and never written.
            self.is_operators = true;
            return parse_changed(found, &self.pem, now);
        }
        // It may have been made while the clock was ahead.
        if self.pair.is_own && self.pair.check(now).is_ok() && !self.pair.is_due(now) {
            return Ok(None);
        }
        maker.make(now).map(Some).inspect_err(|_| {
            // One of the files may be written: it is not the operator's.
            if let Ok(Some(found)) = files.read() {
                self.pem = found;
            }
        })
    }
}

/// Parses a pair that is valid now. `None` are files that do not exist.
fn parse_valid(pem: Option<Pem>, now: SystemTime) -> Result<(Pem, CertificatePair), String> {
    let Some(pem) = pem.filter(|pem| *pem != Pem::default()) else {
        return Err("the files are not there, or empty".into());
    };
    let pair = CertificatePair::parse(&pem)?;
    pair.check(now)?;
    Ok((pem, pair))
}

/// Parses the operator's certificate, if it is not the known one.
fn parse_changed(
    found: Pem,
    known: &Pem,
    now: SystemTime,
) -> Result<Option<(Pem, CertificatePair)>, ServerError> {
    if found == *known {
        return Ok(None);
    }
    parse_valid(Some(found), now).map(Some).map_err(ServerError::Certificate)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use esker_disk::sim::SimDisk;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    const ONE_DAY: Duration = Duration::from_secs(24 * 3600);

    /// A certificate of an operator, with these limits.
    fn put(files: &CertificateFiles, begins: SystemTime, ends: SystemTime) {
        let mut params = CertificateParams::new(["example.org".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (begins.into(), ends.into());
        let key = KeyPair::generate().unwrap();
        std::fs::write(&files.cert, params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
    }

    /// Clients refuse it until then.
    #[test]
    fn a_certificate_that_begins_later_is_used_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles::in_data_dir(folder.path());
        let now = SystemTime::now();
        put(&files, now - ONE_DAY, now + ONE_DAY * 9);
        let mut options = ServerOptions::new(folder.path());
        options.certificate = Some(files.clone());
        let mut certificate = Certificate::open_operators(&options).unwrap().unwrap();
        let before = certificate.pair.not_after_text().to_owned();
        put(&files, now + ONE_DAY * 2, now + ONE_DAY * 90);
        for day in 0..2 {
            certificate.refresh(now + ONE_DAY * day);
            assert_eq!(certificate.pair.not_after_text(), before, "day {day}");
            assert!(certificate.reported.contains("not valid yet, before"), "{certificate:?}");
        }
        certificate.refresh(now + ONE_DAY * 2 + Duration::from_secs(1));
        assert_ne!(certificate.pair.not_after_text(), before);
        assert_eq!(certificate.reported, "");
    }

    /// A node whose clock was ahead when it made its certificate kept that when the clock was set
    /// right: no client took it.
    #[test]
    fn an_own_certificate_of_a_clock_that_was_ahead_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let options = ServerOptions::new(folder.path());
        let mut certificate = Certificate::open_data_dir(&options, &["example.org"]).unwrap();
        let now = SystemTime::now();
        let before = certificate.pem.clone();
        certificate.refresh(now + ONE_DAY * 3650);
        certificate.refresh(now);
        assert_eq!(certificate.pair.check(now), Ok(()));
        assert!(certificate.pem != before && certificate.pair.is_own);
        let made = certificate.pem.clone();
        certificate.refresh(now);
        assert!(certificate.pem == made, "it is made once");
    }

    /// The disk fails while the operator's files are away: they are the operator's when they are
    /// back.
    #[test]
    fn files_that_come_back_are_the_operators() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles::in_data_dir(folder.path());
        let made = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap();
        let put = || {
            std::fs::write(&files.cert, made.cert.pem()).unwrap();
            std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        };
        put();
        // What the node writes goes to another disk.
        let disk = SimDisk::new(1);
        let mut options = ServerOptions::new(folder.path());
        options.disk = Arc::new(disk.clone());
        let mut certificate = Certificate::open_data_dir(&options, &["example.org"]).unwrap();
        let now = SystemTime::now();
        disk.kill();
        std::fs::remove_file(&files.cert).unwrap();
        std::fs::remove_file(&files.key).unwrap();
        certificate.refresh(now);
        assert_ne!(certificate.reported, "", "the node could not make its own");
        put();
        disk.power_on();
        certificate.refresh(now);
        assert!(certificate.is_operators && !certificate.pair.is_own);
        assert_eq!(certificate.reported, "");
        // Without them, it makes its own.
        std::fs::remove_file(&files.cert).unwrap();
        std::fs::remove_file(&files.key).unwrap();
        certificate.refresh(now);
        assert!(!certificate.is_operators && certificate.pair.is_own);
    }
}
