//! An authority for one cluster, and the certificates of its nodes, for those who have none.
//!
//! ```text
//! DIR/ca.pem        the authority's certificate
//! DIR/ca-key.pem    its key, which no node needs
//! DIR/admin.pem     the certificate of an administrator, and admin-key.pem
//! DIR/node-N/       the files of node N:
//!   ca.pem            the authority's certificate
//!   cert.pem          its certificate for other nodes, and key.pem
//!   server.pem        its certificate for clients, and server-key.pem
//! ```
//!
//! A certificate for other nodes names its node as `node-N.CLUSTER.esker.internal`, all nodes as
//! `node.CLUSTER.esker.internal`, and its hosts. One for clients names the hosts alone: it makes no
//! one a node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker_disk::{Dir, Disk, StdDisk, replace_file};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::certificate::read_pem;
use crate::error::ServerError;
use crate::identity::random_bytes;
use crate::tls::{ADMIN_NAME, DOMAIN, PeerName};

const CA_FILE: &str = "ca.pem";
const CA_KEY_FILE: &str = "ca-key.pem";
/// The files of a certificate and its key.
const PEER_FILES: [&str; 2] = ["cert.pem", "key.pem"];
const SERVER_FILES: [&str; 2] = ["server.pem", "server-key.pem"];
const ADMIN_FILES: [&str; 2] = ["admin.pem", "admin-key.pem"];
/// The lifetime of an authority, ten years, and of a certificate, a year.
const CA_LIFETIME: Duration = Duration::from_secs(3653 * 24 * 3600);
const NODE_LIFETIME: Duration = Duration::from_secs(366 * 24 * 3600);
/// The most by which the clocks of nodes may be behind.
const CLOCK_LAG_MAX: Duration = Duration::from_secs(3600);

/// Makes certificates for nodes, each with its hosts: names and addresses. One is for other nodes,
/// and one for clients. Makes the authority in `dir` and a certificate for administrators if it has
/// none; a node that has certificates there keeps them. Returns the folders of the nodes, in the
/// order of their numbers.
///
/// # Durability
/// All files are durable when this returns. After a crash, call it again.
///
/// # Errors
/// [`ServerError::Certificate`]: a name cannot be in a certificate, or a file of `dir` is not what
/// this function writes. [`ServerError::Io`]: a file cannot be read or written.
pub fn make_certificates(
    dir: &Path,
    nodes: &BTreeMap<u64, Vec<String>>,
) -> Result<Vec<PathBuf>, ServerError> {
    let authority = Authority::open_or_create(dir)?;
    let is_missing =
        |folder: &Path, [file, _]: [&str; 2]| read(&folder.join(file)).map(|found| found.is_none());
    if is_missing(dir, ADMIN_FILES)? {
        authority.certify_admin(dir)?;
    }
    let folders = nodes.iter().map(|(node, hosts)| {
        let folder = node_folder(dir, *node);
        if is_missing(&folder, PEER_FILES)? {
            authority.certify_node(&folder, *node, hosts)?;
        }
        if is_missing(&folder, SERVER_FILES)? {
            authority.certify_server(&folder, hosts)?;
        }
        Ok(folder)
    });
    folders.collect()
}

/// Makes new certificates with new keys for all nodes that have one in `dir`, with the same names,
/// and for administrators. Returns the folders of the nodes.
///
/// # Durability
/// As [`make_certificates`].
///
/// # Errors
/// As [`make_certificates`]; also if `dir` has no authority.
pub fn renew_certificates(dir: &Path) -> Result<Vec<PathBuf>, ServerError> {
    let authority = Authority::open(dir)?.ok_or_else(|| {
        let why = format!("{} has no {CA_FILE} and {CA_KEY_FILE}", dir.display());
        ServerError::Certificate(why)
    })?;
    let mut nodes = BTreeMap::new();
    let failed = |error| ServerError::Io(format!("cannot read {}", dir.display()), error);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let folder = entry.map_err(failed)?.path();
        if folder.is_dir()
            && let file = folder.join(PEER_FILES[0])
            && let Some(pem) = read(&file)?
        {
            let (name, hosts) = names(&pem).map_err(|why| wrong(&file, &why))?;
            nodes.insert(name.node, (folder, hosts));
        }
    }
    authority.certify_admin(dir)?;
    let folders = nodes.into_iter().map(|(node, (folder, hosts))| {
        authority.certify_node(&folder, node, &hosts)?;
        authority.certify_server(&folder, &hosts)?;
        Ok(folder)
    });
    folders.collect()
}

fn node_folder(dir: &Path, node: u64) -> PathBuf {
    dir.join(format!("node-{node}"))
}

fn wrong(file: &Path, why: &str) -> ServerError {
    ServerError::Certificate(format!("{}: {why}", file.display()))
}

fn failed(error: rcgen::Error) -> ServerError {
    ServerError::Certificate(format!("cannot make a certificate: {error}"))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, ServerError> {
    let failed = |error| ServerError::Io(format!("cannot read {}", path.display()), error);
    read_pem(path).map_err(failed)
}

fn open_dir(path: &Path) -> Result<Arc<dyn Dir>, ServerError> {
    StdDisk::new().create_dir(path).map_err(not_written)
}

fn write(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Result<(), ServerError> {
    replace_file(dir, name, bytes).map_err(not_written)
}

fn not_written(error: esker_disk::Error) -> ServerError {
    let error = std::io::Error::new(error.kind(), error);
    ServerError::Io("a certificate was not written".into(), error)
}

/// The name of the node and its hosts in a certificate.
fn names(pem: &[u8]) -> Result<(PeerName, Vec<String>), String> {
    let certificate = CertificateDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
    let name = PeerName::from_certificate(&certificate)?;
    let mut hosts = PeerName::hosts(&certificate)?;
    hosts.retain(|host| *host != name.to_string() && *host != name.any_node());
    Ok((name, hosts))
}

/// An authority for the nodes of one cluster.
struct Authority {
    /// The name of the cluster in the names of its nodes: 16 random hexadecimal digits.
    cluster: String,
    pem: Vec<u8>,
    key: KeyPair,
}

impl Authority {
    fn open_or_create(dir: &Path) -> Result<Self, ServerError> {
        match Self::open(dir)? {
            Some(authority) => Ok(authority),
            None => Self::create(dir),
        }
    }

    /// Opens the authority of a folder; `None` if there is none.
    fn open(dir: &Path) -> Result<Option<Self>, ServerError> {
        let (file, key_file) = (dir.join(CA_FILE), dir.join(CA_KEY_FILE));
        let Some(pem) = read(&file)? else { return Ok(None) };
        let key = read(&key_file)?.ok_or_else(|| wrong(&key_file, "it is not there"))?;
        let key = String::from_utf8(key).map_err(|error| wrong(&key_file, &error.to_string()))?;
        let key = KeyPair::from_pem(&key).map_err(|error| wrong(&key_file, &error.to_string()))?;
        let certificate = CertificateDer::from_pem_slice(&pem);
        let certificate = certificate.map_err(|error| wrong(&file, &error.to_string()))?;
        let cluster =
            PeerName::authority_cluster(&certificate).map_err(|why| wrong(&file, &why))?;
        Ok(Some(Self { cluster, pem, key }))
    }

    fn create(dir: &Path) -> Result<Self, ServerError> {
        let random = u128::from_le_bytes(random_bytes()?);
        let cluster = format!("{:016x}", random as u64);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = authority_params(&cluster).self_signed(&key).map_err(failed)?;
        let pem = certificate.pem().into_bytes();
        let folder = open_dir(dir)?;
        // The certificate is last: without it there is no authority.
        write(&*folder, CA_KEY_FILE, key.serialize_pem().as_bytes())?;
        write(&*folder, CA_FILE, &pem)?;
        Ok(Self { cluster, pem, key })
    }

    /// Makes the certificate of a node for other nodes.
    fn certify_node(&self, folder: &Path, node: u64, hosts: &[String]) -> Result<(), ServerError> {
        let name = PeerName::new(&self.cluster, node);
        let name = name.ok_or_else(|| wrong(folder, "nodes are numbered from 1"))?;
        // A host of such a name would make others nodes or administrators.
        if let Some(host) = hosts.iter().find(|host| host.to_ascii_lowercase().ends_with(DOMAIN)) {
            return Err(wrong(folder, &format!("{host}: no host is below {DOMAIN}")));
        }
        let mut names = vec![name.to_string(), name.any_node()];
        names.extend(hosts.iter().map(|host| bare(host).to_owned()));
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        write(&*open_dir(folder)?, CA_FILE, &self.pem)?;
        self.certify(folder, PEER_FILES, names, usages)
    }

    /// Makes the certificate of a node for clients.
    fn certify_server(&self, folder: &Path, hosts: &[String]) -> Result<(), ServerError> {
        let mut names: Vec<_> = hosts.iter().map(|host| bare(host).to_owned()).collect();
        let of_loopback = ["localhost", "127.0.0.1", "::1"];
        // Where clients are on this host alone, they name it by any of these.
        let count = if hosts.iter().any(|host| is_loopback_host(bare(host))) { 3 } else { 1 };
        names.extend(of_loopback[..count].iter().map(|&name| name.to_owned()));
        self.certify(folder, SERVER_FILES, names, vec![ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// Makes the certificate of an administrator.
    fn certify_admin(&self, dir: &Path) -> Result<(), ServerError> {
        let usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.certify(dir, ADMIN_FILES, vec![ADMIN_NAME.to_owned()], usages)
    }

    /// Makes a certificate with these names, the first of which is that of its subject.
    fn certify(
        &self,
        folder: &Path,
        [cert_file, key_file]: [&str; 2],
        mut names: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
    ) -> Result<(), ServerError> {
        let subject = names.first().cloned().unwrap_or_default();
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        set_lifetime(&mut params, NODE_LIFETIME);
        let key = KeyPair::generate().map_err(failed)?;
        let authority = authority_params(&self.cluster);
        let issuer = Issuer::from_params(&authority, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        let folder = open_dir(folder)?;
        write(&*folder, key_file, key.serialize_pem().as_bytes())?;
        write(&*folder, cert_file, certificate.pem().as_bytes())
    }
}

/// Returns a host without the brackets of IPv6.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The authority's certificate. Its name, and with the key all that issuing needs, follow from the
/// cluster's name.
fn authority_params(cluster: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, PeerName::authority_name(cluster));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_lifetime(&mut params, CA_LIFETIME);
    params
}

fn set_lifetime(params: &mut CertificateParams, lifetime: Duration) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_LAG_MAX);
    params.not_after = epoch + now + lifetime;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustls::pki_types::UnixTime;

    use super::*;
    use crate::tls::{ClientCa, ClientRole};

    fn certificate(file: &Path) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(file).unwrap()
    }

    /// Each certificate is good for what it is made for, and for nothing else.
    #[test]
    fn certificates_have_the_names_of_their_use() {
        use rustls::server::danger::ClientCertVerifier;

        let dir = tempfile::tempdir().unwrap();
        let hosts = |hosts: &[&str]| hosts.iter().map(|&host| host.to_owned()).collect();
        let nodes =
            BTreeMap::from([(1, hosts(&["10.0.0.1", "db1.example.org"])), (2, hosts(&["[::1]"]))]);
        let folders = make_certificates(dir.path(), &nodes).unwrap();
        let names = |file: &Path| PeerName::hosts(&certificate(file)).unwrap();
        let server = folders[0].join("server.pem");
        assert_eq!(names(&server), ["10.0.0.1", "db1.example.org", "localhost"]);
        assert_eq!(names(&folders[1].join("server.pem")), ["::1", "localhost", "127.0.0.1"]);
        let peer = names(&folders[0].join("cert.pem"));
        assert!(peer[0].starts_with("node-1.") && peer[1].starts_with("node."), "{peer:?}");
        assert_eq!(peer[2..], ["10.0.0.1", "db1.example.org"]);
        for host in ["admin.esker.internal", "*.Esker.Internal"] {
            let nodes = BTreeMap::from([(3, hosts(&[host]))]);
            let refused = make_certificates(dir.path(), &nodes).unwrap_err().to_string();
            assert!(refused.contains("no host is below"), "{refused}");
        }
        let admin = certificate(&dir.path().join("admin.pem"));
        assert_eq!(ClientRole::from_certificate(Some(&admin)), ClientRole::Admin);
        let ca = ClientCa::open(&dir.path().join("ca.pem")).unwrap();
        let shows = |certificate: &CertificateDer<'_>| {
            ca.verify_client_cert(certificate, &[], UnixTime::now()).is_ok()
        };
        assert!(shows(&admin));
        assert!(!shows(&certificate(&server)), "it is for a server alone");
    }

    #[test]
    fn missing_certificates_are_made_and_others_stay_until_they_are_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let nodes = BTreeMap::from([(1, vec!["10.0.0.1".to_owned()])]);
        let folder = make_certificates(dir.path(), &nodes).unwrap().remove(0);
        let files =
            [folder.join("cert.pem"), folder.join("server.pem"), dir.path().join("admin.pem")];
        let read = || files.each_ref().map(|file| std::fs::read(file).unwrap());
        let made = read();
        std::fs::remove_file(&files[1]).unwrap();
        make_certificates(dir.path(), &nodes).unwrap();
        let again = read();
        assert!(again[0] == made[0] && again[1] != made[1] && again[2] == made[2]);
        renew_certificates(dir.path()).unwrap();
        let renewed = read();
        assert!((0..3).all(|at| renewed[at] != again[at]));
        let names = |file: &Path| PeerName::hosts(&certificate(file)).unwrap();
        assert_eq!(names(&files[1]), ["10.0.0.1", "localhost"]);
        assert_eq!(names(&files[0]).len(), 3);
    }
}
