//! Flags, environment and file of `esker serve`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::esker::{command, run, spawn};
use crate::nodes::free_port;

#[test]
fn wrong_settings_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        (&["--node-id", "0"][..], "--node-id"),
        (&["--node-id", "one"], "--node-id"),
        (&["--listen", "nowhere"], "--listen"),
        (&["--listen", "0.0.0.0:8080"], "--advertise"),
        (&["--raft-listen", "127.0.0.1"], "--raft-listen"),
        (&["--join", "127.0.0.1"], "--join"),
        (&["--join", "127.0.0.1:1"], "--node-id"),
        (&["--max-clock-step", "soon"], "--max-clock-step"),
        (&["--epoch-interval-ms", "0"], "EPOCH_INTERVAL_MS"),
        (&["--timestamp-request-buffer", "0"], "TIMESTAMP_REQUEST_BUFFER"),
        (&["--config", "/nowhere/esker.toml"], "/nowhere/esker.toml"),
        (&["--log-level-key", "time"], "LOG_LEVEL_KEY"),
    ];
    for (words, named) in flags {
        let mut serve = command(&["serve", "--data"]);
        serve.arg(dir.path().join("data")).args(words);
        let ended = run(serve, b"").exits(2);
        assert!(ended.err.contains(named), "{words:?}: {}", ended.err);
    }
    let variables = [
        ("NODE_ID", "0"),
        ("NODE_ID", "-1"),
        ("HTTP_PORT", "65536"),
        ("HTTP_PORT", "http"),
        ("RAFT_ADDR", "8081"),
        ("TIMESTAMP_REQUEST_BUFFER", "many"),
        ("EPOCH_INTERVAL_MS", "0.1"),
        ("EPOCH_DEADLINE_LIMIT", "0"),
        ("RTT_MS", "0"),
        ("DEBUG", "yes"),
        ("PRETTY", "2"),
        ("LOG_TIME_MS", "x"),
        ("TRACE", "-"),
    ];
    for (name, value) in variables {
        let mut serve = command(&["serve", "--data"]);
        serve.arg(dir.path().join("data")).env(name, value);
        let ended = run(serve, b"").exits(2);
        assert!(ended.err.contains(value) || ended.err.contains(name), "{name}: {}", ended.err);
    }
    assert!(!dir.path().join("data").exists());
}

/// A flag comes before the variable, that before the file, and that before the default.
#[test]
fn settings_have_an_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("esker.toml");
    let (of_file, of_variable, of_flag) = (free_port(), free_port(), free_port());
    let text =
        format!("listen = \"127.0.0.1:{of_file}\"\nnode_id = 7\nlog_level_key = \"severity\"\n");
    std::fs::write(&file, text).unwrap();
    for (variable, flag, expected) in [
        (None, None, of_file),
        (Some(of_variable), None, of_variable),
        (Some(of_variable), Some(of_flag), of_flag),
    ] {
        let mut serve = command(&["serve", "--raft-listen", "127.0.0.1:0", "--config"]);
        serve.arg(&file).arg("--data").arg(dir.path().join("data")).env("LOG_TIME_MS", "1");
        if let Some(port) = variable {
            serve.env("ESKER_LISTEN", format!("127.0.0.1:{port}"));
        }
        if let Some(port) = flag {
            serve.args(["--listen", &format!("127.0.0.1:{port}")]);
        }
        let mut node = spawn(&mut serve, Stdio::null());
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        let line: Value = lines
            .find_map(|line| {
                let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
                (line["message"] == "the node answers").then_some(line)
            })
            .unwrap();
        assert_eq!(line["clients"], format!("127.0.0.1:{expected}"));
        assert_eq!((&line["node"], &line["severity"]), (&Value::from(7), &Value::from("info")));
        assert!(line["time"].is_u64() && line.get("level").is_none(), "{line}");
        kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
        lines.for_each(drop);
        assert_eq!(node.wait().unwrap().code(), Some(0));
    }
    std::fs::write(&file, "listen = 1\n").unwrap();
    let mut serve = command(&["serve", "--config"]);
    serve.arg(&file);
    run(serve, b"").exits(2).says(&["esker.toml, line 1"]);
    std::fs::write(&file, "node-id = 1\n").unwrap();
    let mut serve = command(&["serve", "--config"]);
    serve.arg(&file);
    run(serve, b"").exits(2).says(&["node-id"]);
}

/// One node in a folder, and a folder that is something else.
#[test]
fn a_folder_has_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |data: &std::path::Path| {
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--data"]);
        serve.arg(data);
        serve
    };
    let data = dir.path().join("data");
    let mut node = spawn(&mut serve(&data), Stdio::null());
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("the node answers")));
    run(serve(&data), b"").exits(4);
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    lines.for_each(drop);
    assert_eq!(node.wait().unwrap().code(), Some(0));
    let log = dir.path().join("other").join("raft");
    std::fs::create_dir_all(&log).unwrap();
    let mut append = command(&["log", "append"]);
    append.arg(&log);
    run(append, b"one").ok();
    let ended = run(serve(&dir.path().join("other")), b"").exits(1);
    assert!(ended.err.contains("raft"), "{}", ended.err);
}
