//! `esker sequence` with a scripted node: what is sent, what is printed, and what a failure says.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use esker_oracle::Timestamp;
use esker_testkit::free_port;

use crate::esker::{CommandOutput, command, run};
use crate::nodes::LONG;
use crate::scripted_node::{ScriptedAnswer, start};

/// A key that no request for timestamps gets here.
const KEY: Timestamp = Timestamp { epoch: 7, index: 1_000_000 };

/// Runs a command for the node at this address, while this process serves.
async fn ask(words: &[&str], address: &str) -> CommandOutput {
    let mut command = command(words);
    command.args(["--endpoint", &format!("http://{address}")]);
    tokio::task::spawn_blocking(move || run(command, b"")).await.unwrap()
}

/// The count and the key in the path of a request for numbers.
fn query(path: &str) -> (u64, String) {
    let (count, key) = path.split_once("?n=").unwrap().1.split_once("&key=").unwrap();
    (count.parse().unwrap(), key.to_owned())
}

/// The body of a range of one timestamp.
fn timestamp(index: u64) -> Vec<u8> {
    [KEY.epoch, index, 1].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The numbers that a node gave, by key, and whether it keeps its answers to itself.
#[derive(Default)]
struct Given {
    issued: AtomicU64,
    numbers: Mutex<BTreeMap<String, u64>>,
    is_silent: AtomicBool,
}

impl Given {
    fn answer(&self, method: &str, path: &str) -> ScriptedAnswer {
        if path.starts_with("/timestamp") {
            return Some((200, vec![], timestamp(1 + self.issued.fetch_add(1, SeqCst))));
        }
        assert!(method == "POST" && path.starts_with("/sequence/invoices?"), "{method} {path}");
        let ((count, key), mut numbers) = (query(path), self.numbers.lock().unwrap());
        let next = 1 + 3 * numbers.len() as u64;
        let first = *numbers.entry(key).or_insert(next);
        let body = serde_json::json!({"name": "invoices", "first": first, "n": count});
        (!self.is_silent.load(SeqCst)).then(|| (200, vec![], body.to_string().into_bytes()))
    }
}

/// The answer is lost. The command that is printed gets the numbers that were taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_prints_the_command_that_gets_the_numbers() {
    let given = Arc::new(Given::default());
    given.is_silent.store(true, SeqCst);
    let node = Arc::clone(&given);
    let address = start(move |method, path| node.answer(method, path)).await;
    let deadline = Instant::now() + LONG;
    let words = ["sequence", "next", "invoices", "-n", "3", "--timeout", "2s"];
    let printed = loop {
        let ended = ask(&words, &address).await.exits(1);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        // On a slow machine the time may pass before anything was sent.
        if let Some((_, printed)) = ended.err.split_once("to get them: ") {
            break printed.trim().to_owned();
        }
        assert!(Instant::now() < deadline, "{}", ended.err);
    };
    given.is_silent.store(false, SeqCst);
    let again: Vec<_> = printed.strip_prefix("esker ").unwrap().split(' ').collect();
    let key = again[2].strip_prefix("--key=").unwrap();
    let first = given.numbers.lock().unwrap()[key];
    let ended = loop {
        let command = command(&again);
        let ended = tokio::task::spawn_blocking(move || run(command, b"")).await.unwrap();
        if ended.status == 0 {
            break ended;
        }
        assert!(Instant::now() < deadline, "{}", ended.err);
    };
    assert_eq!(ended.text(), format!("{first}\n{}\n{}\n", first + 1, first + 2));
}

/// One number a line, or one object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_printed_one_a_line() {
    let given = Arc::new(Given::default());
    let node = Arc::clone(&given);
    let address = start(move |method, path| node.answer(method, path)).await;
    let next = ["sequence", "next", "invoices", "--timeout", "100s", "-n"];
    let own = format!("--key={KEY}");
    for (more, expected) in [
        (&["3"][..], "1\n2\n3\n"),
        (&["1"], "4\n"),
        (&["1", &own], "7\n"),
        (&["1", &own], "7\n"),
        (
            &["2", "--json"],
            "{\"name\":\"invoices\",\"number\":10}\n{\"name\":\"invoices\",\"number\":11}\n",
        ),
    ] {
        let ended = ask(&[&next[..], more].concat(), &address).await.ok();
        assert_eq!(ended.text(), expected, "{more:?}");
    }
    assert_eq!(given.issued.load(SeqCst), 3, "a command with a key takes none");
}

/// The reason of the leader is in one line, and no request for numbers is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_says_what_helps() {
    for (status, refusal, said) in [
        (404, "", &["no such sequence", "esker sequence create", "why"][..]),
        (410, "", &["older than the answers", "why"]),
        (422, "key-used", &["used for another request", "why"]),
        (422, "key-not-issued", &["has issued", "why"]),
        (422, "used-up", &["left", "why"]),
        (400, "", &["refuses", "why"]),
    ] {
        let address = start(move |_, path| {
            Some(match path.starts_with("/timestamp") {
                true => (200, vec![], timestamp(1)),
                false => (status, vec![("esker-refusal", refusal)], b"why".to_vec()),
            })
        });
        let address = address.await;
        let words = ["sequence", "next", "invoices", "--timeout", "100s"];
        let ended = ask(&words, &address).await.exits(1).says(said);
        assert!(!ended.err.contains("to get them"), "{}", ended.err);
    }
}

/// Changes are sent once, and their outcome is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_are_created_listed_and_removed() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&sent);
    let address = start(move |method, path| {
        kept.lock().unwrap().push(format!("{method} {path}"));
        let last = 1_u64 << 53;
        let list = format!(
            r#"{{"sequences":[{{"name":"a","next":{last}}},{{"name":"invoices","next":44}}]}}"#
        );
        Some(match (method, path) {
            ("PUT", "/sequence/invoices?first=41") => (201, vec![], b"{}".to_vec()),
            ("PUT", "/sequence/twice?first=1") => (422, vec![], b"it exists".to_vec()),
            ("DELETE", "/sequence/invoices") => (200, vec![], b"{}".to_vec()),
            ("DELETE", "/sequence/slow") => (500, vec![], b"no quorum".to_vec()),
            ("DELETE", _) => (404, vec![], b"there is none".to_vec()),
            ("GET", "/sequences") => (200, vec![], list.into_bytes()),
            _ => (400, vec![], b"what?".to_vec()),
        })
    });
    let address = address.await;
    let create = ["sequence", "create", "invoices", "--first", "41"];
    let created = ask(&create, &address).await.ok();
    assert_eq!(created.text(), "the next number of invoices is 41\n");
    ask(&["sequence", "create", "twice"], &address).await.exits(1).says(&["it exists"]);
    let listed = ask(&["sequence", "list"], &address).await.ok();
    let table = "name      next\na         none is left\ninvoices  44\n";
    assert_eq!(listed.text(), table);
    let listed = ask(&["sequence", "list", "--json"], &address).await.ok();
    let objects = format!(
        "{{\"name\":\"a\",\"next\":{}}}\n{{\"name\":\"invoices\",\"next\":44}}\n",
        1_u64 << 53
    );
    assert_eq!(listed.text(), objects);
    let removed = ask(&["sequence", "remove", "invoices"], &address).await.ok();
    assert_eq!(removed.text(), "there is no sequence invoices any more\n");
    ask(&["sequence", "remove", "other"], &address).await.exits(1).says(&["there is none"]);
    let unknown = ask(&["sequence", "remove", "slow"], &address).await.exits(1);
    unknown.says(&["no quorum", "may still be made", "esker sequence list"]);
    let expected = [
        "PUT /sequence/invoices?first=41",
        "PUT /sequence/twice?first=1",
        "GET /sequences",
        "GET /sequences",
        "DELETE /sequence/invoices",
        "DELETE /sequence/other",
        "DELETE /sequence/slow",
    ];
    assert_eq!(*sent.lock().unwrap(), expected);
}

#[test]
fn wrong_words_are_refused() {
    for wrong in [
        &["next"][..],
        &["next", ""],
        &["next", "in voices"],
        &["next", "a/b"],
        &["next", "a", "-n", "0"],
        &["next", "a", "-n", "65537"],
        &["next", "a", "--key", "7"],
        &["create", "a", "--first", "0"],
        &["create", "a", "--first", "9007199254740992"],
        &["create", "a?first=2"],
        &["remove"],
        &["list", "a"],
    ] {
        run(command(&[&["sequence"][..], wrong].concat()), b"").exits(2);
    }
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let words = ["sequence", "next", "a", "--timeout", "200ms", "--endpoint", &endpoint];
    let nothing = run(command(&words), b"").exits(1).says(&["127.0.0.1"]);
    assert!(!nothing.err.contains("to get them"), "{}", nothing.err);
}
