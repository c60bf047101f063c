//! A node as a process of this program, with a clock and a disk that obey the test.
//!
//! The test starts its own executable again, with the settings of a node in the environment. The
//! node takes commands as lines on its standard input, and ends when that ends.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_disk::{Error, Op, StdDisk};
use esker_raft::WallClock;
use esker_server::{CertificateFiles, PeerCertificateFiles, Server, ServerOptions};
use esker_testkit::{Call, HookedDisk};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Names the settings of a node, and makes a process one.
pub const NODE_SETTINGS_ENV: &str = "ESKER_TEST_NODE";
/// Nodes that get no processor for a lease of the default round trip elect leaders without end.
pub const ROUND_TRIP: Duration = Duration::from_millis(30);
/// Longer than a node takes to restart, and than leadership takes to go to another and back: these
/// happen within one epoch.
const EPOCH_INTERVAL: Duration = Duration::from_secs(1);
/// The end of a node that failed, as that of `esker serve`.
const EXIT_FAILED: i32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    pub node: u64,
    pub data: PathBuf,
    pub listen: SocketAddr,
    pub raft_listen: SocketAddr,
    /// Where the other nodes find it: a network that can be cut.
    pub raft_advertise: SocketAddr,
    pub join: Option<SocketAddr>,
    /// Whether leaders answer under their lease.
    pub lease_reads: bool,
    /// The file with the token of changes of the cluster.
    pub tokens: PathBuf,
    /// The folder of its certificates, if nodes and clients use TLS.
    pub certificates: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disk {
    Well,
    /// Nothing that changes something returns.
    Stalled,
    /// Whatever writes gets `ENOSPC`.
    Full,
    /// Whatever writes gets `EIO`.
    Failing,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Command {
    Disk(Disk),
    /// How far the wall clock is from the right time, in seconds.
    Clock(i64),
    Stop,
}

#[derive(Debug)]
struct Health {
    disk: Mutex<Disk>,
    changed: Condvar,
}

impl Health {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        if !matches!(call.op, Op::Write | Op::Sync | Op::Size | Op::SyncDir | Op::CreateDir) {
            return Ok(());
        }
        let disk = self.disk.lock().unwrap();
        let disk = self.changed.wait_while(disk, |disk| *disk == Disk::Stalled).unwrap();
        let errno = match *disk {
            Disk::Full if call.op != Op::Sync && call.op != Op::SyncDir => Errno::NOSPC,
            Disk::Failing => Errno::IO,
            _ => return Ok(()),
        };
        let error = io::Error::from_raw_os_error(errno.raw_os_error());
        Err(Error::new(call.op, call.path, Some(call.offset), error))
    }
}

/// Not a test: the node, when the environment has its settings.
#[test]
fn node() {
    let Ok(settings) = std::env::var(NODE_SETTINGS_ENV) else { return };
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    std::process::exit(runtime.block_on(run(settings)));
}

async fn run(settings: Settings) -> i32 {
    let health = Arc::new(Health { disk: Mutex::new(Disk::Well), changed: Condvar::new() });
    let offset = Arc::new(AtomicI64::new(0));
    let mut options = ServerOptions::new(settings.data);
    options.node = Some(settings.node);
    options.listen = settings.listen;
    options.raft_listen = settings.raft_listen;
    options.raft_advertise = Some(settings.raft_advertise.to_string());
    // Namespaces have addresses off loopback.
    (options.plain_peers, options.plain_http) = (true, true);
    if let Some(dir) = settings.certificates {
        let pair = |cert, key| CertificateFiles { cert: dir.join(cert), key: dir.join(key) };
        options.certificate = Some(pair("server.pem", "server-key.pem"));
        let own = pair("cert.pem", "key.pem");
        options.peer_certificates = Some(PeerCertificateFiles { ca: dir.join("ca.pem"), own });
        // The test itself asks without TLS.
        options.plain_peers = false;
    }
    options.admin_token_file = Some(settings.tokens);
    options.join = settings.join.map(|address| address.to_string());
    options.lease_reads = Some(settings.lease_reads);
    options.oracle.epoch_interval = EPOCH_INTERVAL;
    options.round_trip = ROUND_TRIP;
    let (disk, clock) = (Arc::clone(&health), Arc::clone(&offset));
    let hook = move |call: &Call<'_>| disk.before(call);
    options.disk = Arc::new(HookedDisk::new(Arc::new(StdDisk::new()), hook));
    options.clock = WallClock::new(move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        now.wrapping_add_signed(clock.load(SeqCst) * 1_000_000_000)
    });
    let (stop, mut stopped) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line).unwrap() {
                Command::Disk(disk) => {
                    *health.disk.lock().unwrap() = disk;
                    health.changed.notify_all();
                }
                Command::Clock(seconds) => offset.store(seconds, SeqCst),
                Command::Stop => stop.blocking_send(()).unwrap(),
            }
        }
        // The test is gone.
        std::process::exit(EXIT_FAILED);
    });
    let server = match Server::start(options).await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("node {}: {error}", settings.node);
            return EXIT_FAILED;
        }
    };
    tokio::select! {
        failure = server.failed() => {
            eprintln!("node {}: {failure}", settings.node);
            EXIT_FAILED
        }
        _ = stopped.recv() => match server.stop().await {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("node {}: {error}", settings.node);
                EXIT_FAILED
            }
        },
    }
}
