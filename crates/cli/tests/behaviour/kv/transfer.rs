//! `esker kv export` and `import`, as a user runs them.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::esker::{self, command, kv, spawn};

/// Bug: an export held the default keyspace only, and an import put the lines of every keyspace
/// into one.
#[test]
fn all_keyspaces_are_exported_and_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    kv(&store, &["put", "key", "1"], b"").ok();
    kv(&store, &["put", "key", "2", "--keyspace", "accounts"], b"").ok();
    kv(&store, &["put", "key", "3", "--keyspace", "a \"name\"\n"], b"").ok();
    kv(&store, &["keyspaces", "create", "empty"], b"").ok();
    let exported = kv(&store, &["export", "--all-keyspaces"], b"").ok();
    let expected = "{\"key\":\"key\",\"keyspace\":\"a \\\"name\\\"\\n\",\"value\":\"3\"}\n\
                    {\"key\":\"key\",\"keyspace\":\"accounts\",\"value\":\"2\"}\n\
                    {\"key\":\"key\",\"keyspace\":\"default\",\"value\":\"1\"}\n\
                    {\"keyspace\":\"empty\"}\n";
    assert_eq!(exported.text(), expected);
    kv(&copy, &["import"], &exported.out).ok();
    assert_eq!(kv(&copy, &["export", "--all-keyspaces"], b"").ok().text(), expected);
    assert_eq!(kv(&copy, &["get", "key", "--keyspace", "accounts"], b"").ok().text(), "2\n");
    let default = kv(&store, &["export"], b"").ok();
    default.says(&["note: other keyspaces are left out", "--all-keyspaces"]);
    // One keyspace: the lines name none.
    let one = kv(&store, &["export", "--keyspace", "accounts"], b"").ok();
    assert_eq!(one.text(), "{\"key\":\"key\",\"value\":\"2\"}\n");
    let refused = kv(&store, &["export", "--all-keyspaces", "--framing", "len32"], b"");
    refused.exits(2).says(&["len32 has no place", "--keyspace"]);
    let both = kv(&store, &["export", "--all-keyspaces", "--keyspace", "accounts"], b"").exits(2);
    assert!(both.err.contains("cannot be used with"), "{}", both.err);
}

#[test]
fn a_line_of_another_keyspace_is_refused_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let lines = b"{\"key\":\"a\",\"value\":\"1\"}\n\n\
                  {\"key\":\"b\",\"value\":\"2\",\"keyspace\":\"one\"}\n\
                  {\"key\":\"c\",\"value\":\"3\",\"keyspace\":\"two\"}\n";
    let import = kv(&dir, &["import", "--keyspace", "one"], lines).exits(1);
    import.says(&["line 4 of the input", "\"two\"", "\"one\"", "entries put: 2"]);
    assert_eq!(kv(&dir, &["scan", "--keyspace", "one"], b"").ok().text(), "a\t1\nb\t2\n");
    assert_eq!(kv(&dir, &["keyspaces", "list"], b"").ok().text(), "default\none\n");
}

#[test]
fn an_import_names_the_line_that_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let long = "k".repeat(esker_kv::KEY_LIMIT + 1);
    for (line, words) in [
        ("{\"key\":\"b\",\"value\":\"2\",\"ttl\":1}", &["\"ttl\"", "unknown"][..]),
        ("{\"key\":\"b\",\"value\":\"2\",\"keyspace\":\"\"}", &["1 to 255 bytes"]),
        ("{\"key\":\"b\",\"value\":\"2\",\"keyspace\":1}", &["`keyspace` is no string"]),
        (&format!("{{\"key\":{long:?},\"value\":\"2\"}}"), &["1048577 bytes exceeds the limit"]),
        ("key", &["no JSON object"]),
    ] {
        let lines = format!("\n{{\"key\":\"a\",\"value\":\"1\"}}\n{line}\n");
        let failed = kv(&dir, &["import"], lines.as_bytes()).exits(1).says(words);
        failed.says(&["line 3 of the input", "entries put: 1"]);
    }
    // Bug: the message named two lines, that of the input and line 1 of what was parsed.
    for line in ["{\"key\":\"b\"", "{\"key\":\"b\",,}", "[]", "{\"key\":\"\\ud800\"}"] {
        let lines = format!("{{\"key\":\"a\",\"value\":\"1\"}}\n{line}\n");
        let failed = kv(&dir, &["import"], lines.as_bytes()).exits(1);
        assert_eq!(failed.err.matches("line").count(), 1, "{}", failed.err);
        failed.says(&["line 2 of the input", "no JSON object", " at column "]);
    }
    let cut = b"\x01\0\0\0k\x01\0\0\0v\x01\0\0\0k";
    let cut = kv(&dir, &["import", "--framing", "len32"], cut).exits(1);
    cut.says(&["entry 2 of the input", "ends after its key", "entries put: 1"]);
}

/// Bug: with `--json` nothing was printed on standard output when the import failed.
#[test]
fn a_failed_import_prints_what_it_put_as_json() {
    let (_guard, dir) = esker::workdir();
    let lines = b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\nnot JSON\n";
    let failed = kv(&dir, &["import", "--json"], lines).exits(1);
    assert_eq!(failed.json(), serde_json::json!({ "entries": 2, "ended_by": "error" }));
    failed.says(&["line 3 of the input", "entries put: 2"]);
    let failed = kv(&dir, &["import"], lines).exits(1);
    assert_eq!(failed.out, b"");
    let first = kv(&dir, &["import", "--json"], b"x").exits(1);
    assert_eq!(first.json()["entries"], 0);
}

/// An import that waits for input, and has put one entry of it and read a part of the next.
fn waiting(dir: &Path, flags: &[&str]) -> (Child, std::process::ChildStdin) {
    let mut import = command(&["kv", "import"]);
    let mut import = spawn(import.arg(dir).args(flags), Stdio::piped());
    let mut input = import.stdin.take().unwrap();
    input.write_all(b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":").unwrap();
    input.flush().unwrap();
    esker::until("the entry is durable", || kv(dir, &["get", "a"], b"").out == b"1\n");
    (import, input)
}

/// Bug: entries were written a thousand at a time, so those of a slow input were lost by a crash an
/// hour later.
#[test]
fn what_was_read_becomes_durable_while_the_input_is_idle() {
    let (_guard, dir) = esker::workdir();
    let (import, mut input) = waiting(&dir, &[]);
    input.write_all(b"\"b\",\"value\":\"2\"}").unwrap();
    drop(input);
    assert_eq!(esker::end(import).ok().text(), "entries put: 2\n");
    assert_eq!(kv(&dir, &["scan"], b"").ok().text(), "a\t1\nb\t2\n");
}

/// Bug: a signal killed the import, which did not report what was put.
#[test]
fn a_signal_ends_the_import() {
    for (name, status) in [("INT", 130), ("TERM", 0), ("HUP", 0)] {
        let (_guard, dir) = esker::workdir();
        let (import, input) = waiting(&dir, &["--json"]);
        esker::signal(&import, name);
        let ended = esker::end(import).exits(status).says(&["7 bytes of an unfinished entry"]);
        let ended = match name {
            "INT" => {
                ended.says(&["interrupted: 31 bytes of the input were read", "entries put: 1"])
            }
            _ => ended,
        };
        let expected = serde_json::json!({ "entries": 1, "ended_by": "signal" });
        assert_eq!(ended.json(), expected);
        drop(input);
        assert_eq!(kv(&dir, &["scan"], b"").ok().text(), "a\t1\n");
    }
}
