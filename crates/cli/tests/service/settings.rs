//! Flags, environment and file of `esker serve`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use esker_testkit::free_port;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::esker::{CommandOutput, command, end, run, spawn};
use crate::lines::{ANY_PORT, NodeProcess, serve};
use crate::nodes::{LONG, Nodes};

/// The output of a node that does not start. A node that starts is stopped.
fn ended(serve: &mut Command) -> CommandOutput {
    let mut node = spawn(serve, Stdio::null());
    let deadline = Instant::now() + LONG;
    while node.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            node.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    end(node)
}

#[test]
fn wrong_settings_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        (&["--node-id", "0"][..], "--node-id"),
        (&["--node-id", "one"], "--node-id"),
        (&["--listen", "nowhere"], "host:port"),
        (&["--listen", "0.0.0.0:8080"], "--advertise"),
        (&["--raft-listen", "127.0.0.1"], "--raft-listen"),
        (&["--join", "127.0.0.1"], "--join"),
        // Its data may have the number: it is read after the ports are taken.
        (&["--join", "127.0.0.1:1", "--listen", "127.0.0.1:0"], "--node-id"),
        (&["--listen", "127.0.0.1:7", "--raft-listen", "127.0.0.1:7"], "the same port"),
        (&["--listen", "127.0.0.1:7", "--raft-listen", "0.0.0.0:7"], "the same port"),
        (&["--max-clock-step", "soon"], "--max-clock-step"),
        (&["--epoch-interval-ms", "0"], "--epoch-interval-ms"),
        (&["--timestamp-request-buffer", "0"], "--timestamp-request-buffer"),
        (&["--timestamp-request-buffer", "10000001"], "1 to 10000000"),
        (&["--max-timestamps", "0"], "--max-timestamps"),
        (&["--max-timestamps", "65537"], "1 to 65536"),
        (&["--epoch-deadline-limit", "-1"], "1 to 4294967295"),
        (&["--rtt-ms", "10001"], "1 to 10000"),
        (&["--rtt-ms", "11s"], "1 to 10000"),
        (&["--connections", "0"], "--connections"),
        (&["--http-port", "-1"], "0 to 65535"),
        (&["--raft-addr", "127.0.0.1"], "--raft-listen"),
        (&["--debug=2"], "--debug"),
        (&["--trace=on"], "--trace"),
        (&["--pretty=no"], "--pretty"),
        (&["--log-time-ms=x"], "--log-time-ms"),
        (&["--config", "/nowhere/esker.toml"], "/nowhere/esker.toml"),
        (&["--log-level-key", "node"], "LOG_LEVEL_KEY"),
        (&["--http3=maybe"], "--http3"),
        (&["--profile-listen", "6060"], "--profile-listen"),
        (
            &["--profile-listen", "127.0.0.1:7", "--listen", "127.0.0.1:7"],
            "--profile-listen (ESKER_PROFILE_LISTEN) 127.0.0.1:7 and --listen 127.0.0.1:7",
        ),
        (
            &["--profile-listen", "0.0.0.0:7", "--raft-listen", "127.0.0.1:7"],
            "and --raft-listen 127.0.0.1:7 are the same port",
        ),
        (&["--otlp-endpoint", "https://127.0.0.1:4318"], "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (&["--cert", "/nowhere/cert.pem"], "--key"),
        (&["--key", "/nowhere/key.pem"], "--cert"),
        (&["--cert", "/nowhere/cert.pem", "--key", "/nowhere/key.pem"], "/nowhere/cert.pem"),
        (&["--follower-answer", "301"], "--follower-answer"),
        (&["--cluster", "127.0.0.1:8080"], "two nodes or more"),
        (&["--cluster", "127.0.0.1:1,127.0.0.1:2"], "127.0.0.1:8080 is not in it"),
        (&["--cluster", "127.0.0.1:8080,10.0.0.2:8080"], "give --raft-listen"),
        (&["--cluster", "127.0.0.1:8080,127.0.0.1:1", "--join", "127.0.0.1:1"], "leave out --join"),
    ];
    for (words, named) in flags {
        let mut serve = command(&["serve", "--data"]);
        serve.arg(dir.path().join("data")).args(words);
        let ended = ended(&mut serve).exits(2);
        assert!(ended.err.contains(named), "{words:?}: {}", ended.err);
    }
    let variables = [
        ("NODE_ID", "0"),
        ("NODE_ID", "-1"),
        ("HTTP_PORT", "65536"),
        ("HTTP_PORT", "http"),
        ("RAFT_ADDR", "8081"),
        ("TIMESTAMP_REQUEST_BUFFER", "many"),
        ("MAX_TIMESTAMPS", "0x10"),
        ("MAX_TIMESTAMPS", "4294967296"),
        ("EPOCH_INTERVAL_MS", "0.1"),
        ("EPOCH_DEADLINE_LIMIT", "0"),
        ("EPOCH_DEADLINE_LIMIT", "1e2"),
        ("RTT_MS", "0"),
        ("RTT_MS", "ten"),
        ("LOG_LEVEL_KEY", "message"),
        ("LOG_LEVEL_KEY", ""),
        ("ESKER_CONNECTIONS", "all"),
        ("ESKER_MAX_CLOCK_STEP", "1 day or two"),
        ("ESKER_JOIN", "127.0.0.1"),
        ("ESKER_CLUSTER", "127.0.0.1:8080,127.0.0.1"),
        ("ESKER_CLUSTER", ""),
        ("ESKER_LISTEN", "127.0.0.1"),
        ("ESKER_ADVERTISE", "host"),
        ("ESKER_RAFT_ADVERTISE", "host:0"),
        ("ESKER_CONFIG", "/nowhere/esker.toml"),
        ("DEBUG", "yes"),
        ("PRETTY", "2"),
        ("LOG_TIME_MS", "x"),
        ("TRACE", "-"),
        ("ESKER_HTTP3", "h3"),
        ("ESKER_CERT", "/nowhere/cert.pem"),
        ("ESKER_KEY", "/nowhere/key.pem"),
        ("ESKER_FOLLOWER_ANSWER", "308"),
    ];
    for (name, value) in variables {
        let mut serve = command(&["serve", "--data"]);
        serve.arg(dir.path().join("data")).env(name, value);
        let ended = ended(&mut serve).exits(2);
        assert!(ended.err.contains(name), "{name}: {}", ended.err);
    }
    // Bug: some counted as not set, and the others did not.
    let of_spans = ["OLTP_ENDPOINT", "TRACING_SERVICE_NAME", "ENV"];
    let mut names: Vec<_> = variables.iter().map(|(name, _)| *name).chain(of_spans).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let mut serve = command(&["serve", "--data"]);
        serve.arg(dir.path().join("data")).env(name, "");
        let ended = ended(&mut serve).exits(2);
        assert!(ended.err.contains(name), "{name}: {}", ended.err);
    }
    let path = dir.path().join("esker.toml");
    for (text, named) in [
        ("node_id = 0", "--node-id (NODE_ID) is 0: a number from 1 to"),
        ("max_timestamps = 65537", "--max-timestamps (MAX_TIMESTAMPS) is 65537"),
        ("rtt_ms = 0", "--rtt-ms (RTT_MS)"),
        ("raft_addr = \"8081\"", "--raft-listen (RAFT_ADDR)"),
        ("http_port = 65536", "line 1"),
        (
            "pretty = true\nlisen = \"127.0.0.1:0\"",
            "line 2: unknown key `lisen`: did you mean `listen`?",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let mut serve = command(&["serve", "--data"]);
        serve.arg(dir.path().join("data")).arg("--config").arg(&path);
        let ended = ended(&mut serve).exits(2);
        assert!(ended.err.contains(named), "{text}: {}", ended.err);
    }
    assert!(!dir.path().join("data").exists());
}

#[test]
fn a_folder_or_a_file_of_another_kind_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut append = command(&["log", "append"]);
    append.arg(&log);
    run(append, b"record\n").ok();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (data, status, said) in [(&log, 1, "is a log"), (&file, 2, "is a file")] {
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--data"]);
        let ended = ended(serve.arg(data)).exits(status);
        assert!(ended.err.contains(said) && ended.err.contains("--data"), "{}", ended.err);
    }
    assert!(!log.join("raft").exists());
}

/// The line that is wrong, as an editor counts.
#[test]
fn an_error_in_the_file_names_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("esker.toml");
    for (text, line) in [
        ("listen = 1\n", 1),
        ("\n\nrtt_ms = 10\nlisten = 1\n", 4),
        ("rtt_ms = 10\nno_such_key = 1\n", 2),
        ("rtt_ms = 10\n\n  connections = \"many\"", 3),
        ("rtt_ms = 10\nlisten = \n", 2),
    ] {
        std::fs::write(&path, text).unwrap();
        let mut serve = command(&["serve", "--config"]);
        let ended = ended(serve.arg(&path).current_dir(&dir)).exits(2);
        assert!(ended.err.contains(&format!("line {line}:")), "{text:?}: {}", ended.err);
    }
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
        let mut serve = serve(&["--raft-listen", "127.0.0.1:0", "--config"]);
        serve.arg(&file).arg("--data").arg(dir.path().join("data")).env("LOG_TIME_MS", "1");
        if let Some(port) = variable {
            serve.env("ESKER_LISTEN", format!("127.0.0.1:{port}"));
        }
        if let Some(port) = flag {
            serve.args(["--listen", &format!("127.0.0.1:{port}")]);
        }
        let mut node = NodeProcess::start(&mut serve);
        let line = node.says("the node answers");
        assert_eq!(line["clients"], format!("127.0.0.1:{expected}"));
        assert_eq!((&line["node"], &line["severity"]), (&Value::from(7), &Value::from("info")));
        assert!(line["time"].is_u64() && line.get("level").is_none(), "{line}");
        node.stop();
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

/// Each setting has its default, and is set by its variable, its flag and its key in the file.
#[test]
fn each_setting_has_a_default_a_variable_a_flag_and_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let starts = |command: &mut Command| {
        let mut node = NodeProcess::start(command.current_dir(&dir));
        let settings = node.says("starts a node with these settings");
        node.signal(Signal::TERM);
        let (status, errors) = node.end();
        // Another program may use the default port.
        assert!(status == Some(0) || errors.contains("cannot listen"), "{errors}");
        settings
    };
    let settings = starts(&mut serve(&[]));
    for (name, value) in [
        ("data", json!("./esker-data")),
        ("listen", json!("127.0.0.1:8080")),
        ("raft_listen", json!("127.0.0.1:8081")),
        ("max_clock_step", json!("10s")),
        ("timestamp_request_buffer", json!(10_000)),
        ("max_timestamps", json!(65_536)),
        ("epoch_interval_ms", json!(100)),
        ("epoch_deadline_limit", json!(100)),
        ("rtt_ms", json!(10)),
        ("connections", json!(10_000)),
        ("http3", json!("on")),
        ("follower_answer", json!("409")),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    let absent = ["advertise", "raft_advertise", "node_id", "join", "cert", "key", "peer_ca"];
    for absent in absent.into_iter().chain(["otlp_endpoint", "env", "profile_listen"]) {
        assert_eq!(settings.get(absent), None, "{settings}");
    }
    let mut certs = command(&["cluster", "certs", "operator", "--nodes", "1=127.0.0.1"]);
    certs.current_dir(&dir);
    run(certs, b"").ok();
    let token = dir.path().join("token");
    std::fs::write(&token, "a-token-of-16-bytes-or-more").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (port, raft) = (free_port(), format!("127.0.0.1:{}", free_port()));
    let listen = format!("127.0.0.1:{port}");
    let profiles = format!("127.0.0.1:{}", free_port());
    // The variable, the field of the log line, and the value.
    let all = [
        ("ESKER_DATA", "data", json!("other")),
        ("ESKER_LISTEN", "listen", json!(listen)),
        ("RAFT_ADDR", "raft_listen", json!(raft)),
        ("ESKER_ADVERTISE", "advertise", json!("host.example:1")),
        ("ESKER_RAFT_ADVERTISE", "raft_advertise", json!("host.example:2")),
        ("NODE_ID", "node_id", json!(7)),
        ("ESKER_MAX_CLOCK_STEP", "max_clock_step", json!("3s")),
        ("TIMESTAMP_REQUEST_BUFFER", "timestamp_request_buffer", json!(50)),
        ("MAX_TIMESTAMPS", "max_timestamps", json!(100)),
        ("EPOCH_INTERVAL_MS", "epoch_interval_ms", json!(250)),
        ("EPOCH_DEADLINE_LIMIT", "epoch_deadline_limit", json!(9)),
        ("RTT_MS", "rtt_ms", json!(20)),
        ("ESKER_CONNECTIONS", "connections", json!(77)),
        ("ESKER_HTTP3", "http3", json!("off")),
        ("ESKER_CERT", "cert", json!("operator/node-1/server.pem")),
        ("ESKER_KEY", "key", json!("operator/node-1/server-key.pem")),
        ("ESKER_CLIENT_CA", "client_ca", json!("operator/ca.pem")),
        ("ESKER_PLAIN_HTTP", "plain_http", json!("on")),
        ("ESKER_ADMIN_TOKEN_FILE", "admin_token_file", json!("token")),
        ("ESKER_FOLLOWER_ANSWER", "follower_answer", json!("307")),
        ("ESKER_PROFILE_LISTEN", "profile_listen", json!(profiles)),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint", json!("http://127.0.0.1:9/v1/traces")),
        ("TRACING_SERVICE_NAME", "tracing_service_name", json!("clock")),
        ("ENV", "env", json!("test")),
    ];
    let of_spans = ["otlp_endpoint", "tracing_service_name", "env"];
    let is_built = |name: &str| {
        let is_of_spans = of_spans.contains(&name);
        (cfg!(feature = "otlp") || !is_of_spans)
            && (cfg!(feature = "profile") || name != "profile_listen")
    };
    let all: Vec<_> = all.into_iter().filter(|(_, name, _)| is_built(name)).collect();
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (mut by_variable, mut by_flag, mut file) = (serve(&[]), serve(&[]), String::new());
    for (variable, name, value) in &all {
        by_variable.env(variable, plain(value));
        by_flag.arg(format!("--{}", name.replace('_', "-"))).arg(plain(value));
        // Booleans of the file are those of TOML.
        let value = match value.as_str() {
            Some("on" | "off") => json!(value == "on"),
            _ => value.clone(),
        };
        file.push_str(&format!("{name} = {value}\n"));
    }
    std::fs::write(dir.path().join("esker.toml"), file).unwrap();
    for mut command in [by_variable, by_flag, serve(&["--config", "esker.toml"])] {
        let settings = starts(&mut command);
        for (variable, name, value) in &all {
            assert_eq!(settings[name], *value, "{variable}");
        }
    }
    let port = free_port();
    let variable =
        starts(serve(&["--raft-addr", "127.0.0.1:0"]).env("HTTP_PORT", port.to_string()));
    assert_eq!(variable["listen"], format!("127.0.0.1:{port}"));
    let units = ["--rtt-ms=20ms", "--epoch-interval-ms=0.25s", "--listen=127.0.0.1:0"];
    let units = starts(&mut serve(&units));
    assert_eq!((&units["rtt_ms"], &units["epoch_interval_ms"]), (&json!(20), &json!(250)));
    let flag = starts(&mut serve(&["--http-port", &port.to_string()]));
    assert_eq!(flag["raft_listen"], format!("127.0.0.1:{}", port + 1));
}

/// A repaired log may lack votes: nothing advises to repair it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_a_node_is_not_to_be_repaired() {
    let mut nodes = Nodes::start_all(1).await;
    nodes.kill(1);
    let log = nodes.data(1).join("raft");
    let mut files: Vec<_> =
        std::fs::read_dir(&log).unwrap().map(|one| one.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "seg"));
    for file in files {
        // The header, and the first entries.
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[..16_384].fill(0x55);
        std::fs::write(file, bytes).unwrap();
    }
    let refused = || {
        let ended = nodes.serve(1).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(3), "{said}");
        said
    };
    let said = refused();
    assert!(said.contains("do not repair") && !said.contains("esker repair"), "{said}");
    // Who does it nevertheless has no node.
    run(command(&[OsStr::new("repair"), log.as_os_str()]), b"");
    let said = refused();
    assert!(said.contains("was repaired") && said.contains(log.to_str().unwrap()), "{said}");
    assert!(said.contains("new number"), "{said}");
}

/// A flag comes before a variable, also one of another name for the same thing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_of_a_flag_comes_before_that_of_a_variable() {
    let mut nodes = Nodes::start_all(1).await;
    nodes.kill(1);
    let mut serve = nodes.serve(1);
    let mut process = serve.env("HTTP_PORT", "1").spawn().unwrap();
    nodes.ready(1).await;
    process.kill().unwrap();
    process.wait().unwrap();
}

/// The variable is the standard's: an empty one is as good as none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_variable_of_the_collector_counts_as_unset() {
    let mut nodes = Nodes::start_all(1).await;
    nodes.kill(1);
    let mut serve = nodes.serve(1);
    let mut process = serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", "").spawn().unwrap();
    nodes.ready(1).await;
    process.kill().unwrap();
    process.wait().unwrap();
}

/// A feature that the build lacks is refused where it is asked for, not left out silently.
#[test]
fn a_build_without_spans_or_profiles_refuses_their_flags() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let collector = "http://127.0.0.1:9";
    let otlp = (!cfg!(feature = "otlp")).then_some(["--otlp-endpoint", collector]);
    let profile = (!cfg!(feature = "profile")).then_some(["--profile-listen", &address]);
    for flag in [otlp, profile].into_iter().flatten() {
        let mut serve = serve(&ANY_PORT);
        let refused = ended(serve.current_dir(&dir).args(flag)).exits(2);
        assert!(refused.err.contains("build esker with --features"), "{}", refused.err);
    }
}
