//! The flags of TLS: the authority of nodes, and the certificate of a command.
//!
//! Their variables are for all commands of a shell. So they count only where the endpoints are
//! `https://`; a flag of the command line that does not fit the endpoints is refused.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::parser::ValueSource;
use clap::{Arg, Args, Command, Error};
use esker_client::TlsOptions;

use crate::exit::{Failure, Outcome};

/// The failure of TLS flags beside `http://` endpoints.
pub(crate) const TLS_WITHOUT_HTTPS: &str =
    "--ca, --client-cert and --client-key are for https:// endpoints: give --endpoint https://...";

/// The flags of TLS.
#[derive(Debug, Args)]
pub struct TlsFlags {
    /// The authority of https:// endpoints, PEM [default: those of the system]
    #[arg(long, value_name = "FILE", env = "ESKER_CA")]
    ca: Option<TlsFile>,
    /// A certificate for https:// endpoints that want one, PEM
    #[arg(long, value_name = "FILE", env = "ESKER_CLIENT_CERT")]
    client_cert: Option<TlsFile>,
    /// The key of --client-cert, PEM
    #[arg(long, value_name = "FILE", env = "ESKER_CLIENT_KEY")]
    client_key: Option<TlsFile>,
}

impl TlsFlags {
    /// Returns the authority, if it is not the system's.
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_ref().map(|file| &*file.path)
    }

    /// Returns the certificate and its key.
    ///
    /// # Errors
    /// If there is only one of them.
    pub fn client_certificate(&self) -> Outcome<Option<(&Path, &Path)>> {
        match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => Ok(Some((&cert.path, &key.path))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Failure::usage(
                "--client-cert (ESKER_CLIENT_CERT) needs --client-key (ESKER_CLIENT_KEY)",
            )),
            (None, Some(_)) => Err(Failure::usage(
                "--client-key (ESKER_CLIENT_KEY) needs --client-cert (ESKER_CLIENT_CERT)",
            )),
        }
    }

    /// Returns whether a flag or a variable names a file.
    pub fn is_given(&self) -> bool {
        self.ca.is_some() || self.client_cert.is_some() || self.client_key.is_some()
    }

    /// Returns the options for `https://` endpoints, if the flags or their variables say any.
    ///
    /// # Errors
    /// If there is only a certificate, or only its key.
    pub(crate) fn https_options(&self) -> Outcome<Option<TlsOptions>> {
        let options = self.ca().map(|ca| TlsOptions::new().ca_file(ca));
        Ok(match self.client_certificate()? {
            Some((cert, key)) => Some(options.unwrap_or_default().client_certificate(cert, key)),
            None => options,
        })
    }

    /// Checks that the command line has no such flag.
    ///
    /// # Errors
    /// If it has one.
    pub(crate) fn refuse(&self) -> Outcome {
        let mut files = [&self.ca, &self.client_cert, &self.client_key].into_iter().flatten();
        match files.any(|file| file.is_flag) {
            true => Err(Failure::usage(TLS_WITHOUT_HTTPS)),
            false => Ok(()),
        }
    }
}

/// A file that a flag or its variable names.
#[derive(Debug, Clone)]
struct TlsFile {
    path: PathBuf,
    /// Whether the command line names it.
    is_flag: bool,
}

impl ValueParserFactory for TlsFile {
    type Parser = TlsFileParser;

    fn value_parser() -> TlsFileParser {
        TlsFileParser
    }
}

#[derive(Debug, Clone)]
struct TlsFileParser;

impl TypedValueParser for TlsFileParser {
    type Value = TlsFile;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, value: &OsStr) -> Result<TlsFile, Error> {
        Ok(TlsFile { path: value.into(), is_flag: true })
    }

    fn parse_ref_(
        &self,
        _: &Command,
        _: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<TlsFile, Error> {
        Ok(TlsFile { path: value.into(), is_flag: source == ValueSource::CommandLine })
    }
}
