//! The certificate while the node runs.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior};

use crate::certificate::current::Current;
use crate::certificate::files::{Files, Pem};
use crate::certificate::own::Own;
use crate::certificate::pair::{Pair, hosts};
use crate::error::ServerError;
use crate::options::ServerOptions;

/// Between two warnings of the operator's certificate that ends.
const WARN: Duration = Duration::from_secs(24 * 3600);

/// Where the certificate comes from.
#[derive(Debug)]
enum Source {
    /// The node makes it.
    Own(Own),
    /// The operator does.
    Given(Files),
}

/// The certificate of a node, and where it comes from.
#[derive(Debug)]
pub(crate) struct Certificate {
    current: Arc<Current>,
    source: Source,
    pem: Pem,
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
        let (pem, pair) = read(&files).map_err(|why| {
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
        let source = match pair.is_own {
            true => Source::Own(own),
            false => Source::Given(own.files()),
        };
        Ok(Self::new(source, pem, pair, options))
    }

    fn new(source: Source, pem: Pem, pair: Pair, options: &ServerOptions) -> Self {
        let current = Arc::new(Current::new(Arc::clone(&pair.key)));
        let check = options.certificate_check.max(Duration::from_millis(10));
        Self { current, source, pem, pair, check, reported: String::new(), warned: None }
    }

    /// What new connections get, now and later.
    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current)
    }

    /// Renews the certificate, or reads the operator's again, for ever.
    pub(crate) async fn watch(mut self) {
        let mut ticks = tokio::time::interval(self.check);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Files are read and written.
            let looked = tokio::task::spawn_blocking(move || {
                self.look(SystemTime::now());
                self
            });
            match looked.await {
                Ok(same) => self = same,
                Err(error) => return tracing::error!(%error, "the certificate is not renewed"),
            }
        }
    }

    fn look(&mut self, now: SystemTime) {
        if let Source::Own(own) = &self.source
            && own.files().have_other_than(&self.pem)
        {
            // What an operator puts there is used, and never written.
            self.source = Source::Given(own.files());
        }
        let looked = match &self.source {
            Source::Own(_) if !self.pair.is_due(now) => Ok(None),
            Source::Own(own) => own.make(now).map(Some).map_err(|error| error.to_string()),
            Source::Given(files) => changed(files, &self.pem),
        };
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
        if matches!(self.source, Source::Given(_)) && self.pair.is_due(now) && !is_quiet {
            tracing::warn!(
                end = self.pair.end,
                "the certificate of HTTP/3 ends soon: replace its files"
            );
            self.warned = Some(Instant::now());
        }
    }
}

/// Reads a pair that can be used now, or says why there is none.
fn read(files: &Files) -> Result<(Pem, Pair), String> {
    let found = files.read();
    let found =
        found.map_err(|(path, error)| format!("cannot read {}: {error}", path.display()))?;
    let pem = found.ok_or("the files are not there")?;
    let pair = Pair::parse(&pem)?;
    pair.check(SystemTime::now())?;
    Ok((pem, pair))
}

/// The operator's certificate, if it is another one.
fn changed(files: &Files, known: &Pem) -> Result<Option<(Pem, Pair)>, String> {
    let found = files.read();
    let found =
        found.map_err(|(path, error)| format!("cannot read {}: {error}", path.display()))?;
    match found {
        Some(pem) if pem == *known => Ok(None),
        _ => read(files).map(Some),
    }
}
