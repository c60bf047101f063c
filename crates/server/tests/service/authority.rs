//! An authority of certificates.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use esker_server::{CertificateFiles, PeerCertificateFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority, with the folder of its certificates.
pub struct Authority {
    dir: PathBuf,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    pub fn new(dir: &Path, name: &str) -> Self {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(dir.join("ca.pem"), pem).unwrap();
        Self { dir, params, key }
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Makes a certificate with these names, which ends in an hour.
    pub fn issue(&self, file: &str, names: &[&str]) -> CertificateFiles {
        self.issue_until(file, names, 3600)
    }

    /// Makes a certificate with these names, which ends so many seconds from now.
    pub fn issue_until(&self, file: &str, names: &[&str], ends: i64) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let at = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        params.not_before = at(now - 7200);
        params.not_after = at(now.saturating_add_signed(ends));
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let cert = params.signed_by(&key, &issuer).unwrap();
        let [cert_file, key_file] =
            ["pem", "key"].map(|kind| self.dir.join(format!("{file}.{kind}")));
        fs::write(&cert_file, cert.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        CertificateFiles { cert: cert_file, key: key_file }
    }

    /// Makes the certificate of a node for other nodes.
    pub fn peer(&self, node: u64, cluster: &str) -> PeerCertificateFiles {
        let names = [format!("node-{node}.{cluster}.esker.internal"), any_node(cluster)];
        let own = self.issue(&format!("{cluster}-{node}"), &names.each_ref().map(|name| &**name));
        PeerCertificateFiles { ca: self.ca(), own }
    }

    /// Makes the certificate of a server on loopback.
    pub fn server(&self) -> CertificateFiles {
        self.issue("server", &["localhost"])
    }
}

/// The name of all nodes of a cluster.
pub fn any_node(cluster: &str) -> String {
    format!("node.{cluster}.esker.internal")
}
