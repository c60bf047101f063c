//! Records that are not known to be durable are not printed, and where no writer is left to make
//! them so, `cat` says that there are more.
//!
//! Guards: records that wait for the next opening, and a reader who takes what is printed for
//! everything.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::process::Stdio;

use crate::esker::{self, command, log, until, workdir};

#[test]
fn cat_reports_records_that_await_the_next_writer() {
    let (_guard, dir) = workdir();
    let mut writer = command(&["log", "append"])
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(esker::lines(1, 100).as_bytes()).unwrap();
    // The lock is there before the log is.
    let durable = || {
        let stat = log("stat", &dir, &["--json"], b"");
        (stat.status == 0).then(|| stat.json()["durable"].as_u64()).flatten()
    };
    until("the records are durable", || durable() == Some(100));
    // Without the watermark page nothing shows that the last unit is durable.
    std::fs::remove_file(dir.join("mark")).unwrap();

    let beside = log("cat", &dir, &[], b"").ok();
    assert!(beside.text().len() < esker::lines(1, 100).len());
    assert_eq!(beside.err, "");

    writer.kill().unwrap();
    writer.wait().unwrap();
    log("cat", &dir, &[], b"").ok().says(&["not known to be durable", "the next writer"]);
    log("append", &dir, &[], b"").ok();
    let all = log("cat", &dir, &[], b"").ok();
    assert_eq!((all.text(), &*all.err), (&*esker::lines(1, 100), ""));
}
