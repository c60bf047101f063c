//! `esker kv`, as a user runs it.
#![allow(clippy::unwrap_used)]

#[path = "kit/esker.rs"]
mod esker;

use std::path::Path;

use esker::{Ended, command, run};

fn kv(dir: &Path, words: &[&str], input: &[u8]) -> Ended {
    let mut all = command(&["kv", words[0]]);
    all.arg(dir).args(&words[1..]);
    run(all, input)
}

/// Requirements: M-4.
#[test]
fn a_value_is_put_read_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    assert_eq!(kv(&dir, &["put", "colour", "blue"], b"").ok().out, b"");
    assert_eq!(kv(&dir, &["get", "colour"], b"").ok().text(), "blue\n");
    kv(&dir, &["put", "colour", "green"], b"").ok();
    assert_eq!(kv(&dir, &["get", "colour"], b"").ok().text(), "green\n");
    kv(&dir, &["del", "colour"], b"").ok();
    let absent = kv(&dir, &["get", "colour"], b"").exits(1);
    assert_eq!((absent.text(), &*absent.err), ("", ""));
    kv(&dir, &["del", "colour"], b"").ok();
    kv(&dir, &["put", "", ""], b"").ok();
    assert_eq!(kv(&dir, &["get", ""], b"").ok().text(), "\n");
}

#[test]
fn what_is_exported_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let lines = "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\\n\",\"value_b64\":\"/w==\"}\n";
    let lines = format!("{lines}\n{{\"key_b64\":\"/v8=\",\"value\":\"\"}}");
    let put = kv(&store, &["import", "--json"], lines.as_bytes()).ok();
    assert_eq!(put.json()["entries"], 3);
    let exported = kv(&store, &["export"], b"").ok();
    assert_eq!(exported.text().lines().count(), 3);
    kv(&copy, &["import"], &exported.out).ok();
    assert_eq!(kv(&copy, &["export"], b"").ok().out, exported.out);
    let frames = kv(&store, &["export", "--framing", "len32"], b"").ok();
    let flags = ["import", "--framing", "len32", "--keyspace", "other"];
    kv(&copy, &flags, &frames.out).ok();
    let again = kv(&copy, &["export", "--keyspace", "other"], b"").ok();
    assert_eq!(again.out, exported.out);
    let reversed = kv(&store, &["scan", "--reverse", "--json"], b"").ok();
    let mut reversed: Vec<_> = reversed.text().lines().collect();
    reversed.reverse();
    assert_eq!(reversed, exported.text().lines().collect::<Vec<_>>());
    let one = kv(&store, &["scan", "--from", "a", "--to", "b"], b"").ok();
    assert_eq!(one.text(), "a\t1\n");
    assert_eq!(kv(&store, &["scan", "--prefix", "b"], b"").ok().out, b"b\n\t\xff\n");
}

#[test]
fn an_invalid_entry_ends_the_import_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let input =
        b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\"}\n{\"key\":\"c\",\"value\":\"3\"}\n";
    kv(&dir, &["import"], input).exits(1).says(&["entry 2", "`value`", "entries put: 1"]);
    assert_eq!(kv(&dir, &["scan"], b"").ok().text(), "a\t1\n");
    let cut = b"\x01\0\0\0k\x05\0\0\0va";
    kv(&dir, &["import", "--framing", "len32"], cut).exits(1).says(&["entry 1", "ends inside"]);
    let huge = b"\xff\xff\xff\xff";
    kv(&dir, &["import", "--framing", "len32"], huge).exits(1).says(&["4294967295", "limit"]);
}

#[test]
fn keyspaces_are_separate() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    kv(&dir, &["put", "key", "1"], b"").ok();
    kv(&dir, &["put", "key", "2", "--keyspace", "other"], b"").ok();
    assert_eq!(kv(&dir, &["get", "key"], b"").ok().text(), "1\n");
    assert_eq!(kv(&dir, &["get", "key", "--keyspace", "other"], b"").ok().text(), "2\n");
    assert_eq!(kv(&dir, &["keyspaces", "list"], b"").ok().text(), "default\nother\n");
    kv(&dir, &["keyspaces", "drop", "other"], b"").ok();
    kv(&dir, &["get", "key", "--keyspace", "other"], b"").exits(1).says(&["no keyspace"]);
    kv(&dir, &["keyspaces", "create", "other"], b"").ok();
    kv(&dir, &["get", "key", "--keyspace", "other"], b"").exits(1);
    kv(&dir, &["keyspaces", "drop", "default"], b"").exits(1).says(&["default keyspace"]);
    kv(&dir, &["keyspaces", "create", ""], b"").exits(2).says(&["1 to 255 bytes"]);
    let stat = kv(&dir, &["stat", "--json"], b"").ok().json();
    assert_eq!((&stat["keys"], &stat["keyspaces"]["other"]), (&1.into(), &0.into()));
}

#[test]
fn a_directory_that_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = (dir.path().join("log"), dir.path().join("store"));
    esker::log("append", &log, &[], b"record\n").ok();
    kv(&store, &["put", "key", "value"], b"").ok();
    kv(&log, &["put", "key", "value"], b"").exits(1).says(&["is no key-value store"]);
    esker::log("append", &store, &[], b"record\n").exits(1).says(&["a key-value store"]);
    kv(&dir.path().join("absent"), &["get", "key"], b"").exits(1).says(&["no such directory"]);
    assert_eq!(kv(&store, &["verify", "--json"], b"").ok().json()["records"], 1);
    assert_eq!(kv(&store, &["compact", "--json"], b"").ok().json()["segments"], 0);
}
