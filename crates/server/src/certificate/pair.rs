//! A certificate and its key.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rcgen::{KeyUsagePurpose, date_time_ymd};
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use x509_cert::Version;
use x509_cert::der::Decode;

use crate::certificate::files::Pem;

/// The subject of the certificates that nodes make.
const SUBJECT_NAME: &str = "Esker node";
/// The most by which the clocks of clients may be behind.
const CLIENT_CLOCK_LAG_MAX: Duration = Duration::from_secs(3600);
/// The last second of the year 9999, the last time that a certificate can have.
const UNIX_SECONDS_MAX: u64 = 253_402_300_799;
/// The longest lifetime of a certificate that a node makes, ten years.
const LIFETIME_MAX: Duration = Duration::from_secs(3600 * 24 * 3653);

const _: () = assert!(CLIENT_CLOCK_LAG_MAX.as_secs() < LIFETIME_MAX.as_secs());

/// A certificate, with its chain, and its key.
#[derive(Debug, Clone)]
pub(crate) struct CertificatePair {
    key: Arc<CertifiedKey>,
    not_before: SystemTime,
    not_after: SystemTime,
    not_before_text: String,
    not_after_text: String,
    /// Whether a node made it.
    pub(crate) is_own: bool,
}

impl CertificatePair {
    /// Parses both files.
    ///
    /// # Errors
    /// The reason why the pair cannot be used.
    pub(crate) fn parse(pem: &Pem) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.cert).collect();
        let chain = chain.map_err(|error| format!("the certificate is no PEM: {error}"))?;
        let is_swapped = chain.is_empty() && PrivateKeyDer::from_pem_slice(&pem.cert).is_ok()
            || CertificateDer::from_pem_slice(&pem.key).is_ok()
                && PrivateKeyDer::from_pem_slice(&pem.key).is_err();
        if is_swapped {
            let why = "the certificate is where the key should be, or the other way round";
            return Err(why.into());
        }
        let Some(first) = chain.first() else {
            return Err(
                "the file of the certificate has none: it is missing or empty, or it has no \
                        certificate as PEM"
                    .into(),
            );
        };
        let parsed = x509_cert::Certificate::from_der(first)
            .map_err(|error| format!("the certificate cannot be read: {error}"))?;
        let version = parsed.tbs_certificate.version;
        if version != Version::V3 {
            let version = version as u8 + 1;
            return Err(format!(
                "the certificate is of version {version} of X.509, and clients of HTTP/3 take \
                 version 3 alone: make one with extensions, such as its names"
            ));
        }
        if pem.key.is_empty() {
            return Err("the file of the key is missing or empty".into());
        }
        let key = PrivateKeyDer::from_pem_slice(&pem.key)
            .map_err(|error| format!("the key cannot be read: {error}"))?;
        let is_own = chain.len() == 1 && is_made_by_node(&parsed);
        let validity = parsed.tbs_certificate.validity;
        let key =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| {
                match error {
                    rustls::Error::InconsistentKeys(_) => {
                        "the certificate and the key do not belong together".to_owned()
                    }
                    rustls::Error::InvalidCertificate(why) => {
                        format!("the certificate cannot be used: {why}")
                    }
                    error => format!("the key cannot be used: {error}"),
                }
            })?;
        Ok(Self {
            key: Arc::new(key),
            not_before: validity.not_before.to_system_time(),
            not_after: validity.not_after.to_system_time(),
            not_before_text: validity.not_before.to_string(),
            not_after_text: validity.not_after.to_string(),
            is_own,
        })
    }

    /// Makes a self-signed pair for these hosts, ECDSA P-256.
    pub(crate) fn make(
        hosts: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Pem, String> {
        let failed = |error: rcgen::Error| format!("cannot make a certificate: {error}");
        let key = KeyPair::generate().map_err(failed)?;
        let mut certificate = CertificateParams::new(hosts).map_err(failed)?;
        certificate.distinguished_name = DistinguishedName::new();
        // OpenSSL finds one certificate among others by this name.
        let unit = format!("{:016x}", RandomState::new().hash_one(key.public_key_raw()));
        certificate.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        certificate.distinguished_name.push(DnType::CommonName, SUBJECT_NAME);
        certificate.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let lifetime = lifetime.min(LIFETIME_MAX);
        // The clock may show any time: a certificate is between 1970 and 9999.
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let epoch = date_time_ymd(1970, 1, 1);
        let at =
            |since: Duration| epoch + Duration::from_secs(since.as_secs().min(UNIX_SECONDS_MAX));
        certificate.not_before = at(now.saturating_sub(CLIENT_CLOCK_LAG_MAX.min(lifetime / 8)));
        certificate.not_after = at(now.saturating_add(lifetime));
        debug_assert!(certificate.not_before <= certificate.not_after);
        let signed = certificate.self_signed(&key).map_err(failed)?;
        Ok(Pem { cert: signed.pem().into_bytes(), key: key.serialize_pem().into_bytes() })
    }

    /// Returns the certificate and the key for new connections.
    pub(crate) fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }

    /// Returns the end of the certificate as text.
    pub(crate) fn not_after_text(&self) -> &str {
        &self.not_after_text
    }

    /// Checks that the certificate is valid now.
    pub(crate) fn check(&self, now: SystemTime) -> Result<(), String> {
        if now >= self.not_after {
            Err(format!("the certificate ended at {}", self.not_after_text))
        } else if now < self.not_before {
            let begin = &self.not_before_text;
            Err(format!("the certificate is not valid yet, before {begin}: look at the clock"))
        } else {
            Ok(())
        }
    }

    /// Returns the end of the certificate, in seconds since 1970. An operator's may end before.
    pub(crate) fn not_after_seconds(&self) -> u64 {
        let since = self.not_after.duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or(Duration::ZERO).as_secs()
    }

    /// Whether less than a third of its lifetime is left. An operator's may be empty.
    pub(crate) fn is_due(&self, now: SystemTime) -> bool {
        let lifetime = self.not_after.duration_since(self.not_before);
        let left = self.not_after.duration_since(now);
        left.unwrap_or(Duration::ZERO) < lifetime.unwrap_or(Duration::ZERO) / 3
    }

    /// Whether it names all of these hosts.
    pub(crate) fn names(&self, hosts: &[String]) -> bool {
        let Some(parsed) =
            self.key.cert.first().and_then(|der| ParsedCertificate::try_from(der).ok())
        else {
            return false;
        };
        hosts.iter().all(|host| {
            ServerName::try_from(&**host)
                .is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
        })
    }
}

/// Whether a node made this certificate.
fn is_made_by_node(certificate: &x509_cert::Certificate) -> bool {
    let fields = &certificate.tbs_certificate;
    let name = fields.subject.to_string();
    // The first versions gave all of them the same name.
    let is_named =
        name == format!("CN={SUBJECT_NAME}") || name.starts_with(&format!("CN={SUBJECT_NAME},OU="));
    is_named && fields.issuer == fields.subject
}

/// Whether this file has a certificate that no node made: the operator did.
pub(crate) fn is_operators(cert: &[u8]) -> bool {
    let first = CertificateDer::from_pem_slice(cert).ok();
    let parsed = first.and_then(|der| x509_cert::Certificate::from_der(&der).ok());
    parsed.is_some_and(|parsed| !is_made_by_node(&parsed))
}

/// Returns the hosts that a certificate names: loopback, and those of these that it can name.
pub(crate) fn certificate_hosts<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let loopback = ["localhost", "127.0.0.1", "::1"].map(ToOwned::to_owned);
    let mut all = Vec::from(loopback);
    for host in hosts {
        // As a certificate writes an address.
        let host = host.trim_matches(['[', ']']);
        let host = host.parse().map_or_else(|_| host.to_owned(), |ip: IpAddr| ip.to_string());
        if ServerName::try_from(&*host).is_ok() && !all.contains(&host) {
            all.push(host);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const ONE_DAY: Duration = Duration::from_secs(24 * 3600);
    /// A pair as `openssl x509 -req` makes it without extensions.
    const VERSION_1: (&[u8], &[u8]) = (
        b"-----BEGIN CERTIFICATE-----
MIIBFTCBvQIUSCh4TLmtNzP9K2OnK+AF9fqcDAUwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCdjEwIBcNMjYxMTI3MTYzMDI4WhgPMjEyNjExMDMxNjMwMjhaMA0xCzAJ
BgNVBAMMAnYxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAECxZvkX+ZOoyQZP+T
V7iLS0SJljDcDdKYhR/GNsmew8qseQQjG+JMd/cUjZJ1C7j++PfrQUwKhK1DNeBA
zg4k+TAKBggqhkjOPQQDAgNHADBEAiAMNY44Fy3IIhn4f7cPXVs3VdTkTB7tpVIv
9N7lSRx2ngIgb6ehES7Fk0uKiAAopFjVWVqyDCZDOLZqkOeeY+5mfnQ=
-----END CERTIFICATE-----
",
        b"-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgc4rjP7qgGd310/LF
TN1Lp3ks9JWidJ2brv/ItdXgBuOhRANCAAQLFm+Rf5k6jJBk/5NXuItLRImWMNwN
0piFH8Y2yZ7Dyqx5BCMb4kx39xSNknULuP749+tBTAqErUM14EDODiT5
-----END PRIVATE KEY-----
",
    );

    fn pair(life: Duration, now: SystemTime) -> CertificatePair {
        let hosts = certificate_hosts(["10.0.0.1", "[fd00::1]", "node-1.example", "node_2"]);
        CertificatePair::parse(&CertificatePair::make(&hosts, now, life).unwrap()).unwrap()
    }

    /// A clock at any time made a certificate, or the node panicked.
    #[test]
    fn any_clock_makes_a_certificate() {
        let epoch = SystemTime::UNIX_EPOCH;
        let years = |years: u64| ONE_DAY * 365 * u32::try_from(years).unwrap();
        for now in [epoch - years(10), epoch, epoch + years(630), epoch + years(9_000)] {
            let pair = pair(ONE_DAY, now);
            assert!(pair.is_own && pair.not_after_seconds() <= UNIX_SECONDS_MAX, "{pair:?}");
        }
    }

    /// Certificates of several nodes are put into one file, where OpenSSL finds them by their
    /// subject.
    #[test]
    fn each_certificate_has_a_subject_of_its_own() {
        let made = |_| {
            let pem =
                CertificatePair::make(&certificate_hosts([]), SystemTime::now(), ONE_DAY).unwrap();
            let der = CertificateDer::from_pem_slice(&pem.cert).unwrap();
            x509_cert::Certificate::from_der(&der).unwrap()
        };
        let all = [0, 1].map(made);
        assert!(all.iter().all(is_made_by_node));
        assert_ne!(all[0].tbs_certificate.subject, all[1].tbs_certificate.subject);
        // As the first versions made it.
        let mut before = all[0].clone();
        before.tbs_certificate.subject = format!("CN={SUBJECT_NAME}").parse().unwrap();
        assert!(!is_made_by_node(&before));
        before.tbs_certificate.issuer = before.tbs_certificate.subject.clone();
        assert!(is_made_by_node(&before));
    }

    #[test]
    fn a_certificate_is_due_when_a_third_of_its_life_is_left() {
        let now = SystemTime::now();
        let pair = pair(ONE_DAY * 180, now);
        assert!(pair.is_own);
        for (day, is_valid, is_due) in [
            (0, true, false),
            (119, true, false),
            (121, true, true),
            (179, true, true),
            (180, false, true),
        ] {
            let then = now + ONE_DAY * day;
            assert_eq!((pair.check(then).is_ok(), pair.is_due(then)), (is_valid, is_due), "{day}");
        }
        assert!(pair.check(now - ONE_DAY).is_err(), "the clock was set back");
        assert!(
            pair.check(now - CLIENT_CLOCK_LAG_MAX / 2).is_ok(),
            "the clock of a client is behind"
        );
    }

    #[test]
    fn a_certificate_names_its_hosts() {
        let pair = pair(ONE_DAY, SystemTime::now());
        let named = ["localhost", "127.0.0.1", "::1", "10.0.0.1", "fd00::1", "node-1.example"];
        assert!(pair.names(&named.map(ToOwned::to_owned)));
        for other in ["10.0.0.2", "node-2.example", "example"] {
            assert!(!pair.names(&[other.to_owned()]), "{other}");
        }
    }

    #[test]
    fn what_is_no_pair_is_refused() {
        let hosts = certificate_hosts([]);
        let make = || CertificatePair::make(&hosts, SystemTime::now(), ONE_DAY).unwrap();
        let (one, two) = (make(), make());
        for (cert, key, why) in [
            (&b""[..], &one.key[..], "has none"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &one.key, "read"),
            (b"-----BEGIN CERTIFICATE-----\nAA", &one.key, "PEM"),
            (&one.cert, b"nothing", "key"),
            (&one.cert, &two.key, "together"),
            (&one.key, &one.cert, "where the key should be"),
            (&one.cert, &one.cert, "where the key should be"),
            (
                &one.cert,
                b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "key cannot be used",
            ),
            (VERSION_1.0, VERSION_1.1, "version 1 of X.509"),
        ] {
            let pem = Pem { cert: cert.to_vec(), key: key.to_vec() };
            let found = CertificatePair::parse(&pem).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }
}
