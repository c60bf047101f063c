//! CPU profiles of a node.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::TcpListener;
use std::time::Duration;

use esker_server::ask;
use esker_testkit::free_port;
use rustix::process::Signal;

use crate::lines::{ANY_PORT, NodeProcess, serve};
use crate::nodes::LONG;
use crate::spans::contains;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_shows_where_a_node_spends_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let profiles = format!("127.0.0.1:{}", free_port());
    let mut command = serve(&ANY_PORT);
    command.current_dir(&dir).args(["--profile-listen", &profiles]);
    let mut node = NodeProcess::start(&mut command);
    let address = node.answers();
    let get = async |path: &str| ask(&profiles, path, None, LONG).await.unwrap();
    assert!(contains(&get("/").await.body, b"/debug/pprof/profile"));
    for wrong in ["seconds=0", "seconds=61", "seconds=x"] {
        assert_eq!(get(&format!("/debug/pprof/profile?{wrong}")).await.status, 400, "{wrong}");
    }
    assert_eq!(get("/debug/pprof/heap").await.status, 404);
    let work = tokio::spawn(async move {
        loop {
            drop(ask(&address, "/timestamp", None, LONG).await);
        }
    });
    let (one, other) = tokio::join!(get("/debug/pprof/profile?seconds=2"), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        get("/debug/pprof/profile?seconds=1").await
    });
    work.abort();
    // One at a time: samples of two would be mixed.
    assert_eq!((one.status.as_u16(), other.status.as_u16()), (200, 409));
    for part in ["samples", "count", "cpu", "nanoseconds", "tokio::runtime"] {
        assert!(contains(&one.body, part.as_bytes()), "{part} of {} bytes", one.body.len());
    }
    assert_eq!(get("/debug/pprof/profile?seconds=1").await.status, 200);
    node.signal(Signal::TERM);
    let (status, errors) = node.end();
    assert_eq!(status, Some(0), "{errors}");
}

#[test]
fn a_port_of_profiles_that_is_taken_ends_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = serve(&ANY_PORT);
    command.current_dir(&dir).args(["--profile-listen", &address]);
    let (status, errors) = NodeProcess::start(&mut command).end();
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains(&address) && errors.contains("--profile-listen"), "{errors}");
    assert!(!dir.path().join("esker-data").exists());
}
