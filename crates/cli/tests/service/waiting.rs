//! Commands that ask a node which waits for its cluster.
//!
//! Guards: "no Esker node answers there", of a node that had just said what it waits for.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::Ipv4Addr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use esker_testkit::free_port;

use crate::esker::{command, run};
use crate::nodes::LONG;

/// Stopped when dropped.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn commands_say_what_a_waiting_node_says() {
    let dir = tempfile::tempdir().unwrap();
    let port = || format!("{}:{}", Ipv4Addr::LOCALHOST, free_port());
    let (own, other, raft) = (port(), port(), port());
    let mut serve = command(&["serve", "--cluster", &format!("{own},{other}")]);
    serve.args(["--listen", &own, "--raft-listen", &raft, "--data"]).arg(dir.path());
    serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _node = Waiting(serve.spawn().unwrap());
    let endpoint = format!("http://{own}");
    for words in [&["cluster", "status"][..], &["ts"]] {
        let deadline = Instant::now() + LONG;
        loop {
            let mut asking = command(words);
            asking.args(["--endpoint", &endpoint]);
            let refused = run(asking, b"").exits(1);
            if refused.err.contains("this node waits for its cluster; GET /ready says why") {
                break;
            }
            assert!(Instant::now() < deadline, "{words:?}: {}", refused.err);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
