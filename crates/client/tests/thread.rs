//! The thread of a client. Alone in its process: it counts threads.
#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use esker_client::Client;

const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The threads of clients in this process.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks.map(name).filter(|name| name.trim() == "esker-client").count()
}

/// A client whose connection is being made, and one that does nothing.
#[test]
fn a_dropped_client_leaves_neither_a_thread_nor_a_connection() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let builder = Client::builder().endpoint(address).timeout(Duration::from_millis(200));
    let builder = builder.connect_timeout(TEST_TIMEOUT);
    let (client, idle) = (builder.clone().build().unwrap(), builder.build().unwrap());
    assert_eq!(threads(), 2);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(client.clone().timestamp()).unwrap_err();
    let (mut connection, _) = silent.accept().unwrap();
    drop((client, idle));
    let begun = Instant::now();
    while threads() > 0 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{} threads", threads());
        std::thread::sleep(Duration::from_millis(1));
    }
    connection.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut sent = Vec::new();
    connection.read_to_end(&mut sent).unwrap();
}
