//! When the input pauses, what was read becomes durable by itself, under every policy: a follower
//! sees it while the writer waits for more.

use std::io::Write;
use std::process::Stdio;

use crate::esker::{self, command, end, log, workdir};

#[test]
fn a_follower_sees_each_line_before_the_next_is_typed() {
    for policy in ["always", "batch:1000", "periodic:60000", "os"] {
        let (_guard, dir) = workdir();
        let mut writer = command(&["log", "append", "--policy", policy])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = writer.stdin.take().unwrap();
        input.write_all(b"line 0\n").unwrap();
        esker::until("the first line", || log("cat", &dir, &[], b"").out == b"line 0\n");
        let mut follower = command(&["log", "cat", "--follow", "--from", "2"])
            .arg(&dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = follower.stdout.as_mut().unwrap();
        for number in 1..=5 {
            writeln!(input, "line {number}").unwrap();
            assert_eq!(esker::read_lines(out, 1), format!("line {number}\n"));
        }
        drop(input);
        assert!(writer.wait().unwrap().success());
        esker::signal(&follower, "TERM");
        end(follower).ok();
    }
}
