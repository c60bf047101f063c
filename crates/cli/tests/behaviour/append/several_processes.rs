//! Several processes, each with a log of its own, on one real disk at once, through system calls
//! and through io_uring: each reads back what it wrote.

#![allow(clippy::unwrap_used)]

use std::process::{Child, Stdio};

use crate::esker::{end, log, program, spawn, workdir};

#[test]
fn each_reads_back_what_it_wrote() {
    for disks in [["std"; 4], ["uring"; 4], ["std", "uring", "std", "uring"]] {
        let (guard, _) = workdir();
        let start = |n: usize, disk: &str| -> Child {
            let mut bench = program("esker-bench", &["log", "--json", "--keep", "--count", "6000"]);
            bench.args(["--size", "100..9000", "--segment-size", "1M", "--writers", "7"]);
            bench.args(["--disk", disk, "--seed", &n.to_string()]);
            bench.arg("--dir").arg(guard.path().join(n.to_string()));
            spawn(&mut bench, Stdio::null())
        };
        let all: Vec<Child> = disks.iter().enumerate().map(|(n, disk)| start(n, disk)).collect();
        for (n, child) in all.into_iter().enumerate() {
            let ended = end(child).ok();
            assert_eq!(ended.json()["verified"], true, "{n} of {disks:?}");
            log("verify", &guard.path().join(n.to_string()).join("log"), &[], b"").ok();
        }
    }
}
