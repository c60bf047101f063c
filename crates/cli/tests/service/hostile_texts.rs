//! Texts of other hosts do not control the terminal.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::esker::{command, run};

/// Clears the screen of a terminal.
const CLEAR: &str = "\u{1b}[2J";

/// Starts a server that answers as the leader of a cluster, with control characters in all texts.
/// It makes the change `add`, and refuses all others.
fn leader() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let own = address.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), [0; 4096]);
            let Ok(read) = stream.read(&mut head) else { continue };
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let (status, body) = answer(&own, head.split(' ').nth(1).unwrap_or_default());
            let len = body.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {len}\r\n\r\n{body}");
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    address
}

fn answer(own: &str, path: &str) -> (&'static str, String) {
    let leader = serde_json::json!({
        "nodeID": 1, "addr": own, "raftAddr": CLEAR, "voter": true,
    });
    let other = serde_json::json!({
        "nodeID": 2, "addr": format!("{CLEAR}a:1"), "raftAddr": format!("{CLEAR}a:2"), "voter": false,
    });
    match path {
        "/up" => ("200 OK", "ok".into()),
        "/members" => {
            let members = serde_json::json!({
                "leader": leader, "members": [leader, other], "cluster": CLEAR,
            });
            ("200 OK", members.to_string())
        }
        "/status" => {
            let status = serde_json::json!({
                "nodeID": 1, "cluster": CLEAR, "role": CLEAR, "term": 1, "leader": 1, "last": 1,
                "applied": 1, "epoch": 1, "disk_wait_ms": 0, "version": CLEAR, "blocked": CLEAR,
            });
            ("200 OK", status.to_string())
        }
        "/sequences" => {
            let listed = serde_json::json!({"sequences": [{"name": CLEAR, "next": 1}]});
            ("200 OK", listed.to_string())
        }
        "/cluster/add" => ("200 OK", String::new()),
        "/cluster/transfer" => ("401 Unauthorized", CLEAR.into()),
        "/cluster/remove" => ("500 Internal Server Error", CLEAR.into()),
        _ => ("422 Unprocessable Entity", format!("refused {CLEAR}")),
    }
}

/// The answer to a change reached the terminal as it was.
#[test]
fn text_of_a_node_does_not_control_the_terminal() {
    let endpoint = format!("http://{}", leader());
    // Whether the text is shown, escaped. Excerpts have spaces in place of control characters.
    for (words, status, is_shown) in [
        (&["cluster", "status"][..], 1, true),
        (&["cluster", "transfer"], 1, false),
        (&["cluster", "remove", "--node-id", "2"], 1, false),
        (&["cluster", "follow-clock", "--force"], 1, true),
        (&["cluster", "add", "--node-id", "2"], 0, true),
        (&["ts", "--timeout", "300ms"], 1, false),
        (&["sequence", "list"], 0, true),
        (&["sequence", "create", "a"], 1, true),
        (&["sequence", "next", "a", "--timeout", "300ms"], 1, false),
    ] {
        let ended = run(command(&[words, &["--endpoint", &endpoint]].concat()), b"");
        let ended = ended.exits(status);
        let printed = format!("{}{}", ended.text(), ended.err);
        let controls = printed.chars().filter(|c| c.is_control() && *c != '\n').count();
        assert_eq!(controls, 0, "{words:?}: {printed:?}");
        assert_eq!(printed.contains("u{1b}[2J"), is_shown, "{words:?}: {printed:?}");
    }
}
