//! Moving the directory of a log, or removing its file `lock`, lets no second writer in: as
//! processes.

use std::io::Write;
use std::process::Stdio;

use crate::esker::{self, command, end, log, spawn, workdir};

#[test]
fn second_writer_after_a_move_exits_with_status_4() {
    let (_guard, dir) = workdir();
    let moved = dir.with_extension("moved");
    let mut first = spawn(command(&["log", "append"]).arg(&dir), Stdio::piped());
    let pid = format!("by process {};", first.id());
    let mut input = first.stdin.take().unwrap();
    input.write_all(b"the first\n").unwrap();
    esker::until("the record is durable", || log("cat", &dir, &[], b"").out == b"the first\n");

    std::fs::rename(&dir, &moved).unwrap();
    let name = moved.to_str().unwrap();
    let refused = || {
        for (verb, flags) in
            [("append", &[][..]), ("repair", &[]), ("truncate", &["--before", "1"])]
        {
            log(verb, &moved, flags, b"never\n").exits(4).says(&[name, &pid]);
        }
    };
    refused();
    // Another log at the old path, while the first continues where it is.
    log("append", &dir, &[], b"another\n").ok();
    input.write_all(b"the second\n").unwrap();
    esker::until("the record is durable", || {
        log("cat", &moved, &[], b"").out == b"the first\nthe second\n"
    });
    refused();
    std::fs::remove_file(moved.join("lock")).unwrap();
    log("append", &moved, &[], b"never\n").exits(4).says(&[name, "open for writing"]);
    input.write_all(b"the third\n").unwrap();
    drop(input);
    end(first).ok();

    log("verify", &moved, &[], b"").ok();
    log("append", &moved, &[], b"the fourth\n").ok();
    let read = log("cat", &moved, &[], b"").ok();
    assert_eq!(read.text(), "the first\nthe second\nthe third\nthe fourth\n");
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"another\n");
}

/// A FIFO would hold a program that opens it until another process opens its other end.
#[cfg(unix)]
#[test]
fn a_fifo_or_a_link_under_a_name_of_the_log_is_an_error_and_no_hang() {
    for name in ["manifest", "mark", "lock", "00000000000000000001.seg"] {
        for fifo in [true, false] {
            let (_guard, dir) = workdir();
            log("append", &dir, &[], b"one\n").ok();
            let path = dir.join(name);
            let aside = dir.with_extension("aside");
            std::fs::rename(&path, &aside).unwrap();
            if fifo {
                let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
                assert!(made.success());
            } else {
                std::os::unix::fs::symlink(&aside, &path).unwrap();
            }
            let before = std::fs::read(&aside).unwrap();
            for verb in ["append", "repair", "cat", "verify", "stat"] {
                // The lock is the writer's.
                if name == "lock" && !matches!(verb, "append" | "repair") {
                    continue;
                }
                let mut child = spawn(command(&esker::words("log", verb)).arg(&dir), Stdio::null());
                let begin = std::time::Instant::now();
                while child.try_wait().unwrap().is_none() {
                    if begin.elapsed() > std::time::Duration::from_secs(20) {
                        child.kill().unwrap();
                        panic!("{verb} hangs at {name}");
                    }
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                let ended = end(child).exits(1);
                let found = if fifo { "a FIFO" } else { "a symbolic link" };
                assert!(
                    ended.err.contains(found) && ended.err.contains(path.to_str().unwrap()),
                    "{verb}: {}",
                    ended.err
                );
            }
            assert_eq!(std::fs::read(&aside).unwrap(), before, "{name}");
        }
    }
}
