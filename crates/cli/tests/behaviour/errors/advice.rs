//! Advice that helps in the situation in which it is given.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use esker_consensus::{ConsensusLog, LogManager};

use crate::esker::{CommandOutput, command, kv, log, run, workdir};

fn with_key(words: &[&str], dir: &Path) -> CommandOutput {
    let mut all = command(words);
    all.arg(dir).args(["--key", "users"]);
    if words == ["snapshot", "create-from"] {
        all.args(["--slot", "0"]);
    }
    run(all, b"").exits(1)
}

/// Bug: for a directory that is not there, the advice was to leave out --key.
#[test]
fn a_key_is_to_be_left_out_only_where_that_helps() {
    let (guard, dir) = workdir();
    let at = |name: &str| guard.path().join(name);
    std::fs::create_dir(at("empty")).unwrap();
    log("append", &at("plain"), &[], b"x\n").ok();
    kv(&at("store"), &["put", "a", "b"], b"").ok();
    ConsensusLog::open(at("one")).unwrap().close().unwrap();
    let many = LogManager::open(at("many")).unwrap();
    drop(many.get("accounts").unwrap());
    many.close_all().unwrap();
    for words in [
        ["consensus", "dump"],
        ["snapshot", "list"],
        ["snapshot", "create-from"],
        ["snapshot", "restore"],
        ["snapshot", "verify"],
    ] {
        for (name, said) in [
            ("absent", "there is no such directory"),
            ("empty", "is that the right path?"),
            ("plain", "it is a plain log"),
            ("store", "it is a key-value store"),
            ("many", "has no log of key"),
        ] {
            let refused = with_key(&words, &at(name)).says(&[said]);
            assert!(!refused.err.contains("--key"), "{words:?} {name}: {}", refused.err);
        }
        with_key(&words, &at("one")).says(&["directory of one log", "leave out --key"]);
    }
    assert!(!dir.exists());
}
