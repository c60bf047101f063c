//! SIGINT and SIGTERM end `append`: what was read is durable, the log is closed cleanly, the summary is
//! printed, and the status is 0. A line without its end is no record.

mod esker;

use std::io::Write;
use std::process::Stdio;

use esker::{command, end, log, place, signal};

#[test]
fn every_complete_line_is_kept() {
    for name in ["INT", "TERM", "HUP"] {
        let (_guard, dir) = place();
        let mut writer = command(&["log", "append", "--policy", "os"])
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = writer.stdin.take().unwrap();
        input.write_all(b"one\ntwo\nthr").unwrap();
        esker::until("two records", || log("cat", &dir, &[], b"").out == b"one\ntwo\n");
        signal(&writer, name);
        let ended = end(writer).ok().says(&["3 bytes of an unfinished record"]);
        assert!(ended.text().starts_with("appended 2 records"), "{}", ended.text());
        drop(input);
        assert_eq!(log("cat", &dir, &[], b"").ok().out, b"one\ntwo\n");
        assert_eq!(log("append", &dir, &[], b"").ok().err, "", "it was closed cleanly");
    }
}

#[test]
fn a_signal_in_a_stream_of_input_loses_nothing_accepted() {
    let (_guard, dir) = place();
    let mut writer = command(&["log", "append", "--json"])
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        let mut line = 0u64;
        loop {
            line += 1;
            if writeln!(input, "line {line}").is_err() {
                return line;
            }
        }
    });
    esker::until("some records", || !log("cat", &dir, &[], b"").out.is_empty());
    signal(&writer, "INT");
    let told = end(writer).ok().json();
    let fed = feeder.join().unwrap();
    let records = told["records"].as_u64().unwrap();
    assert!(0 < records && records <= fed);
    assert_eq!(told["durable"], records);
    assert_eq!(told["ended_by"], "signal");
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), esker::lines(1, records));
}

#[test]
fn a_follower_ends_with_status_0() {
    let (_guard, dir) = place();
    log("append", &dir, &[], b"only\n").ok();
    let mut follower = command(&["log", "cat", "--follow"])
        .arg(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(esker::read_lines(follower.stdout.as_mut().unwrap(), 1), "only\n");
    signal(&follower, "INT");
    assert_eq!(end(follower).ok().err, "");
}
