//! The certificate while the node runs.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior};

use crate::certificate::current::Current;
use crate::certificate::files::{Files, Pem};
use crate::certificate::own::Own;
use crate::certificate::pair::{Pair, hosts};
use crate::counters::Counters;
use crate::error::ServerError;
use crate::options::ServerOptions;

/// Between two warnings of the operator's certificate that ends.
const WARN: Duration = Duration::from_secs(24 * 3600);

/// Where the certificate comes from.
#[derive(Debug)]
enum Source {
    /// The data folder: the node makes it, unless the operator puts another one there.
    Own(Own),
    /// The operator's flags.
    Given(Files),
}

/// The certificate of a node, and where it comes from.
#[derive(Debug)]
pub(crate) struct Certificate {
    current: Arc<Current>,
    source: Source,
    /// The operator made it: the node does not write it.
    is_given: bool,
    /// What the files had when they were last read or written.
    pem: Pem,
    /// What is used.
    pair: Pair,
    check: Duration,
    /// What was logged last, and when the end of the certificate was.
    reported: String,
    warned: Option<Instant>,
}

impl Certificate {
    /// Reads the operator's certificate, if one is given. Touches no data.
    pub(crate) fn given(options: &ServerOptions) -> Result<Option<Self>, ServerError> {
        let Some(given) = &options.certificate else { return Ok(None) };
        let files = Files { cert: given.cert.clone(), key: given.key.clone() };
        let found = files.read().map_err(unreadable).map(Option::unwrap_or_default);
        let (pem, pair) = found.and_then(|pem| usable(pem, SystemTime::now())).map_err(|why| {
            let (cert, key) = (files.cert.display(), files.key.display());
            ServerError::Option(format!("--cert {cert} --key {key}: {why}"))
        })?;
        Ok(Some(Self::new(Source::Given(files), pem, pair, options)))
    }

    /// The certificate of the data folder. It is made if there is none.
    pub(crate) fn own(options: &ServerOptions, of: &[&str]) -> Result<Self, ServerError> {
        let own = Own {
            disk: Arc::clone(&options.disk),
            data: options.data.clone(),
            hosts: hosts(of.iter().copied()),
            life: options.certificate_life,
        };
        let (pem, pair) = own.open(SystemTime::now())?;
        Ok(Self::new(Source::Own(own), pem, pair, options))
    }

    fn new(source: Source, pem: Pem, pair: Pair, options: &ServerOptions) -> Self {
        let current = Arc::new(Current::new(Arc::clone(&pair.key)));
        let check = options.certificate_check.max(Duration::from_millis(10));
        let is_given = matches!(source, Source::Given(_)) || !pair.is_own;
        let reported = String::new();
        Self { current, source, is_given, pem, pair, check, reported, warned: None }
    }

    /// What new connections get, now and later.
    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current)
    }

    /// Renews the certificate, or reads the operator's again, for ever. A panic of that is counted,
    /// and changes nothing: all nodes may have the same files.
    pub(crate) async fn watch(mut self, counters: &Counters) {
        counters.certificate_ends.store(self.pair.ends(), Relaxed);
        let mut ticks = tokio::time::interval(self.check);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Files are read and written.
            let looked = tokio::task::spawn_blocking(move || {
                let look = AssertUnwindSafe(|| self.look(SystemTime::now()));
                let has_panicked = catch_unwind(look).is_err();
                (self, has_panicked)
            });
            let has_panicked;
            match looked.await {
                Ok(looked) => (self, has_panicked) = looked,
                Err(error) => return tracing::error!(%error, "the certificate is not renewed"),
            }
            if has_panicked {
                counters.failed_tasks.fetch_add(1, Relaxed);
                tracing::error!(
                    end = self.pair.end,
                    "keeps the certificate: looking at it panicked"
                );
            }
            counters.certificate_ends.store(self.pair.ends(), Relaxed);
        }
    }

    fn look(&mut self, now: SystemTime) {
        let looked = self.renewed(now);
        match looked {
            Ok(Some((pem, pair))) => {
                self.current.replace(Arc::clone(&pair.key));
                tracing::info!(end = pair.end, "new connections of HTTP/3 get a new certificate");
                (self.pem, self.pair, self.warned) = (pem, pair, None);
                self.reported.clear();
            }
            Ok(None) => self.reported.clear(),
            Err(why) if why != self.reported => {
                tracing::warn!(why, end = self.pair.end, "keeps the certificate of HTTP/3");
                self.reported = why;
            }
            Err(_) => {}
        }
        let is_quiet = self.warned.is_some_and(|then| then.elapsed() < WARN);
        if self.is_given && self.pair.is_due(now) && !is_quiet {
            tracing::warn!(
                end = self.pair.end,
                "the certificate of HTTP/3 ends soon: replace its files"
            );
            self.warned = Some(Instant::now());
        }
    }

    /// A pair that takes the place of the one in use, or why there is none although one is due.
    fn renewed(&mut self, now: SystemTime) -> Result<Option<(Pem, Pair)>, String> {
        let files = match &self.source {
            Source::Given(files) => files,
            Source::Own(own) => &own.files(),
        };
        // Files that cannot be read may be the operator's, and are not written.
        let found = files.read().map_err(unreadable)?.unwrap_or_default();
        let Source::Own(own) = &self.source else { return changed(found, &self.pem, now) };
        if found == Pem::default() {
            // Who removes both wants the node's own, until others are there.
            (self.is_given, self.pem) = (false, found);
        } else if self.is_given || found != self.pem {
            // What an operator puts there is used, and never written.
            self.is_given = true;
            return changed(found, &self.pem, now);
        }
        // It may have been made while the clock was ahead.
        if self.pair.is_own && self.pair.check(now).is_ok() && !self.pair.is_due(now) {
            return Ok(None);
        }
        own.make(now).map(Some).map_err(|error| {
            // One of the files may be written: it is not the operator's.
            if let Ok(Some(found)) = files.read() {
                self.pem = found;
            }
            error.to_string()
        })
    }
}

/// A pair that can be used now, or why it cannot.
fn usable(pem: Pem, now: SystemTime) -> Result<(Pem, Pair), String> {
    if pem == Pem::default() {
        return Err("the files are not there".into());
    }
    let pair = Pair::parse(&pem)?;
    pair.check(now)?;
    Ok((pem, pair))
}

/// The operator's certificate, if it is another one.
fn changed(found: Pem, known: &Pem, now: SystemTime) -> Result<Option<(Pem, Pair)>, String> {
    if found == *known { Ok(None) } else { usable(found, now).map(Some) }
}

fn unreadable((path, error): (PathBuf, io::Error)) -> String {
    format!("cannot read {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use esker_disk::sim::SimDisk;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::options::CertificateFiles;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A certificate of an operator, with these limits.
    fn put(files: &Files, begins: SystemTime, ends: SystemTime) {
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
        let files = Files::of_data(folder.path());
        let now = SystemTime::now();
        put(&files, now - DAY, now + DAY * 9);
        let mut options = ServerOptions::new(folder.path());
        options.certificate =
            Some(CertificateFiles { cert: files.cert.clone(), key: files.key.clone() });
        let mut certificate = Certificate::given(&options).unwrap().unwrap();
        let before = certificate.pair.end.clone();
        put(&files, now + DAY * 2, now + DAY * 90);
        for day in 0..2 {
            certificate.look(now + DAY * day);
            assert_eq!(certificate.pair.end, before, "day {day}");
            assert!(certificate.reported.contains("not valid yet, before"), "{certificate:?}");
        }
        certificate.look(now + DAY * 2 + Duration::from_secs(1));
        assert_ne!(certificate.pair.end, before);
        assert_eq!(certificate.reported, "");
    }

    /// A node whose clock was ahead when it made its certificate kept that when the clock was set
    /// right: no client took it.
    #[test]
    fn an_own_certificate_of_a_clock_that_was_ahead_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let options = ServerOptions::new(folder.path());
        let mut certificate = Certificate::own(&options, &["example.org"]).unwrap();
        let now = SystemTime::now();
        let before = certificate.pem.clone();
        certificate.look(now + DAY * 3650);
        certificate.look(now);
        assert_eq!(certificate.pair.check(now), Ok(()));
        assert!(certificate.pem != before && certificate.pair.is_own);
        let made = certificate.pem.clone();
        certificate.look(now);
        assert!(certificate.pem == made, "it is made once");
    }

    /// The disk fails while the operator's files are away: they are the operator's when they are
    /// back.
    #[test]
    fn files_that_come_back_are_the_operators() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::of_data(folder.path());
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
        let mut certificate = Certificate::own(&options, &["example.org"]).unwrap();
        let now = SystemTime::now();
        disk.kill();
        std::fs::remove_file(&files.cert).unwrap();
        std::fs::remove_file(&files.key).unwrap();
        certificate.look(now);
        assert_ne!(certificate.reported, "", "the node could not make its own");
        put();
        disk.power_on();
        certificate.look(now);
        assert!(certificate.is_given && !certificate.pair.is_own);
        assert_eq!(certificate.reported, "");
        // Without them, it makes its own.
        std::fs::remove_file(&files.cert).unwrap();
        std::fs::remove_file(&files.key).unwrap();
        certificate.look(now);
        assert!(!certificate.is_given && certificate.pair.is_own);
    }
}
