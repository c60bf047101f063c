//! One writer at a time. A second one gets status 4 and the name of the directory, before it reads
//! anything; readers continue.

use std::io::Write;
use std::process::Stdio;

use crate::esker::{self, command, end, log, spawn, workdir};

#[test]
fn status_4_names_the_directory() {
    let (_guard, dir) = workdir();
    let mut first = spawn(command(&["log", "append"]).arg(&dir), Stdio::piped());
    let mut input = first.stdin.take().unwrap();
    input.write_all(b"the first\n").unwrap();
    esker::until("the record is durable", || log("cat", &dir, &[], b"").out == b"the first\n");

    let name = dir.to_str().unwrap();
    for (verb, flags) in [("append", &[][..]), ("repair", &[]), ("truncate", &["--before", "1"])] {
        let refused = log(verb, &dir, flags, b"never\n").exits(4).says(&[name, "open for writing"]);
        assert!(refused.out.is_empty());
    }
    for verb in ["cat", "stat", "verify"] {
        log(verb, &dir, &[], b"").ok();
    }

    drop(input);
    end(first).ok();
    log("append", &dir, &[], b"the second\n").ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"the first\nthe second\n");
}

#[test]
fn the_lock_is_taken_before_the_first_record() {
    let (_guard, dir) = workdir();
    let mut first = command(&["log", "append"])
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    esker::until("the log is there", || log("stat", &dir, &[], b"").status == 0);
    log("append", &dir, &[], b"never\n").exits(4);
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
}
