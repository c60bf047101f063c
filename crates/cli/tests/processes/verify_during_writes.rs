//! `verify` of a small ring that another process writes to as fast as it can reports no corruption.

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::esker::{self, command, end, log, spawn, workdir};

const RUNS: usize = 80;

/// Ends the writer, however the test ends.
struct Enough<'a>(&'a AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn verify_of_a_ring_during_writes_reports_nothing() {
    let (_guard, dir) = workdir();
    for policy in ["always", "os"] {
        let mut append = command(&["log", "append", "--segment-size=64K", "--retain-segments=2"]);
        let mut writer = spawn(append.args(["--policy", policy]).arg(&dir), Stdio::piped());
        let mut input = writer.stdin.take().unwrap();
        let enough = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let fed = scope.spawn(|| {
                let line = [vec![b'x'; 700], vec![b'\n']].concat();
                while !enough.load(Relaxed) {
                    input.write_all(&line).unwrap();
                }
                drop(input);
            });
            let stop = Enough(&enough);
            esker::until("there is a log", || log("stat", &dir, &["--json"], b"").status == 0);
            let durable =
                || log("stat", &dir, &["--json"], b"").ok().json()["durable"].as_u64().unwrap();
            let before = durable();
            for _ in 0..RUNS {
                log("verify", &dir, &[], b"").ok();
            }
            assert!(durable() > before, "the writer appended nothing meanwhile");
            drop(stop);
            fed.join().unwrap();
        });
        end(writer).ok();
        log("verify", &dir, &[], b"").ok();
    }
}
