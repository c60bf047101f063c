//! An authority for one cluster, and the certificates of its nodes, for those who have none.
//!
//! ```text
//! DIR/ca.pem        the authority's certificate
//! DIR/ca-key.pem    its key, which no node needs
//! DIR/node-N/       the files of node N: ca.pem, cert.pem and key.pem
//! ```
//!
//! A certificate names its node as `node-N.CLUSTER.esker.internal`, and its hosts.

use std::collections::BTreeMap;
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
use crate::tls::PeerName;

const CA_FILE: &str = "ca.pem";
const CA_KEY_FILE: &str = "ca-key.pem";
const CERT_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";
/// The lifetime of an authority, ten years, and of a certificate, a year.
const CA_LIFETIME: Duration = Duration::from_secs(3653 * 24 * 3600);
const NODE_LIFETIME: Duration = Duration::from_secs(366 * 24 * 3600);
/// The most by which the clocks of nodes may be behind.
const CLOCK_LAG_MAX: Duration = Duration::from_secs(3600);

/// Makes certificates for nodes, each with its hosts: names and addresses. Makes the authority in
/// `dir` if it has none; a node that has a certificate there keeps it. Returns the folders of the
/// nodes, in the order of their numbers.
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
    let folders = nodes.iter().map(|(node, hosts)| {
        let folder = node_folder(dir, *node);
        if read(&folder.join(CERT_FILE))?.is_none() {
            authority.certify(&folder, *node, hosts)?;
        }
        Ok(folder)
    });
    folders.collect()
}

/// Makes new certificates with new keys for all nodes that have one in `dir`, with the same names.
/// Returns their folders.
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
            && let Some(pem) = read(&folder.join(CERT_FILE))?
        {
            let (name, hosts) = names(&pem).map_err(|why| wrong(&folder.join(CERT_FILE), &why))?;
            nodes.insert(name.node, (folder, hosts));
        }
    }
    let folders = nodes.into_iter().map(|(node, (folder, hosts))| {
        authority.certify(&folder, node, &hosts)?;
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
    hosts.retain(|host| *host != name.to_string());
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

    /// Makes a certificate for a node, in a folder that has all files of the node.
    fn certify(&self, folder: &Path, node: u64, hosts: &[String]) -> Result<(), ServerError> {
        let name = PeerName::new(&self.cluster, node);
        let name = name.ok_or_else(|| wrong(folder, "nodes are numbered from 1"))?.to_string();
        let mut names = vec![name.clone()];
        names.extend(hosts.iter().map(|host| host.trim_matches(['[', ']']).to_owned()));
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        set_lifetime(&mut params, NODE_LIFETIME);
        let key = KeyPair::generate().map_err(failed)?;
        let authority = authority_params(&self.cluster);
        let issuer = Issuer::from_params(&authority, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        let folder = open_dir(folder)?;
        write(&*folder, CA_FILE, &self.pem)?;
        write(&*folder, KEY_FILE, key.serialize_pem().as_bytes())?;
        write(&*folder, CERT_FILE, certificate.pem().as_bytes())
    }
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
