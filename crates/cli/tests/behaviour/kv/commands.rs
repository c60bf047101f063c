//! The commands of `esker kv`, as a user runs them.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use crate::esker::{self, command, kv, read_lines, run, spawn};

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
fn a_repaired_store_gives_what_is_left_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    kv(&store, &["put", "a", "before"], b"").ok();
    kv(&store, &["put", "b", "before"], b"").ok();
    kv(&store, &["put", "a", "which is corrupt"], b"").ok();
    kv(&store, &["put", "c", "after"], b"").ok();
    let segments = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    for path in segments.filter(|path| path.extension().is_some_and(|end| end == "seg")) {
        let mut bytes = std::fs::read(&path).unwrap();
        let wanted = b"which is corrupt";
        if let Some(at) = bytes.windows(wanted.len()).position(|part| part == wanted) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    kv(&store, &["get", "c"], b"").exits(3);
    let mut repair = command(&["repair"]);
    repair.arg(&store);
    run(repair, b"").ok();
    assert_eq!(kv(&store, &["get", "c"], b"").ok().text(), "after\n");
    for words in [&["get", "a"][..], &["get", "new"], &["scan"], &["export"], &["compact"]] {
        let refused = kv(&store, words, b"").exits(3);
        assert_eq!(refused.out, b"", "{words:?}");
        assert!(refused.err.contains("are quarantined"), "{words:?}: {}", refused.err);
    }
    assert_eq!(kv(&store, &["stat", "--json"], b"").ok().json()["quarantined"][0]["to"], 3);
    assert!(kv(&store, &["stat"], b"").ok().text().contains("quarantined  the records above 2"));
    let left = kv(&store, &["export", "--skip-corrupt"], b"").ok();
    assert_eq!(left.text().lines().count(), 3);
    kv(&copy, &["import"], &left.out).ok();
    assert_eq!(kv(&copy, &["get", "a"], b"").ok().text(), "before\n");
    kv(&store, &["put", "a", "again"], b"").ok();
    assert_eq!(kv(&store, &["get", "a"], b"").ok().text(), "again\n");
    // `b` was put before the gap: it goes, and is not known to have been there.
    let deleted = kv(&store, &["del", "--all"], b"").ok();
    assert_eq!(deleted.text(), "keys deleted: at least 2 (some records are quarantined)\n");
    assert_eq!(kv(&store, &["export"], b"").ok().text(), "");
}

#[test]
fn an_invalid_entry_ends_the_import_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let input =
        b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\"}\n{\"key\":\"c\",\"value\":\"3\"}\n";
    kv(&dir, &["import"], input).exits(1).says(&["line 2", "`value`", "entries put: 1"]);
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

/// The watch follows the store through one writing process after another.
#[test]
fn changes_are_watched_beside_the_writers() {
    let (_guard, dir) = esker::workdir();
    kv(&dir, &["put", "before", "1"], b"").ok();
    let watch = |flags: &[&str]| {
        let mut command = command(&["kv", "watch"]);
        spawn(command.arg(&dir).args(flags), Stdio::null())
    };
    let mut new = watch(&["--from", "1"]);
    let mut all = watch(&["--from", "0", "--json", "--keyspace", "default"]);
    let mut out = all.stdout.take().unwrap();
    let first = "{\"action\":\"put\",\"key\":\"before\",\"keyspace\":\"default\",\
                 \"position\":1,\"value\":\"1\"}\n";
    assert_eq!(read_lines(&mut out, 1), first);
    kv(&dir, &["put", "key", "2", "--keyspace", "other"], b"").ok();
    kv(&dir, &["del", "before"], b"").ok();
    kv(&dir, &["keyspaces", "drop", "other"], b"").ok();
    kv(&dir, &["import"], b"{\"key\":\"a\",\"value_b64\":\"/w==\"}\n").ok();
    let lines = read_lines(&mut out, 2);
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["action"], &lines[0]["key"]), (&"delete".into(), &"before".into()));
    assert_eq!(lines[1]["value_b64"], "/w==");
    let expected = "2\tcreate_keyspace\tother\n4\tput\tother\tkey\t2\n\
                    5\tdelete\tdefault\tbefore\n6\tdrop_keyspace\tother\n";
    assert_eq!(read_lines(new.stdout.as_mut().unwrap(), 4), expected);
    for (watch, signal) in [(new, "TERM"), (all, "INT")] {
        esker::signal(&watch, signal);
        esker::end(watch).ok();
    }
    let late = kv(&dir, &["watch", "--from", "100"], b"");
    late.exits(1).says(&["position 100", "above 7"]);
    let log = dir.with_file_name("log-of-records");
    esker::log("append", &log, &[], b"record\n").ok();
    kv(&log, &["watch"], b"").exits(1).says(&["is no key-value store"]);
}

/// A writer has the store open meanwhile. What reads the store works beside it.
#[test]
fn a_store_is_backed_up_beside_its_writer() {
    let (_guard, dir) = esker::workdir();
    let copy = dir.with_file_name("copy");
    let mut import = command(&["kv", "import"]);
    let mut writer = spawn(import.arg(&dir), Stdio::piped());
    let mut input = writer.stdin.take().unwrap();
    let lines: String =
        (0..3000).map(|n| format!("{{\"key\":\"{n:04}\",\"value\":\"v\"}}\n")).collect();
    input.write_all(lines.as_bytes()).unwrap();
    input.flush().unwrap();
    esker::until("the writer has committed", || {
        let log = esker_log::ReadOnlyLog::open(&dir);
        log.is_ok_and(|log| log.durable().0 >= 1000)
    });
    kv(&dir, &["put", "0000", "v"], b"").exits(4);
    // What reads works beside the writer.
    assert_eq!(kv(&dir, &["get", "0000"], b"").ok().text(), "v\n");
    assert_eq!(kv(&dir, &["scan", "--limit", "1"], b"").ok().text(), "0000\tv\n");
    assert_eq!(kv(&dir, &["keyspaces", "list"], b"").ok().text(), "default\n");
    assert!(kv(&dir, &["stat", "--json"], b"").ok().json()["keys"].as_u64().unwrap() >= 1000);
    let exported = kv(&dir, &["export"], b"").ok();
    assert!(exported.text().lines().count() >= 1000);
    assert!(lines.starts_with(exported.text()), "it is a prefix");
    let backup = |to: &Path| {
        let mut command = command(&["backup"]);
        command.arg(&dir).arg(to).arg("--json");
        run(command, b"")
    };
    let position = backup(&copy).ok().json()["position"].as_u64().unwrap();
    assert!(position >= 1000, "{position}");
    drop(input);
    esker::end(writer).ok();
    let copied = kv(&copy, &["export"], b"").ok();
    let count = copied.text().lines().count();
    assert_eq!(count as u64, position);
    assert!(lines.starts_with(copied.text()), "the copy is a prefix");
    backup(&copy).exits(1).says(&["holds files"]);
    let unfinished = dir.with_file_name("unfinished");
    let log = esker_log::Log::builder(&unfinished).component(esker_kv::UNFINISHED_BACKUP);
    log.open().unwrap().close().unwrap();
    kv(&unfinished, &["get", "key"], b"").exits(1).says(&["an unfinished backup"]);
}

/// Its output is not read at all. It waited until a second signal terminated it.
#[test]
fn a_watch_with_more_to_print_ends_at_a_signal() {
    let (_guard, dir) = esker::workdir();
    let input: String =
        (0..20_000).map(|n| format!("{{\"key\":\"{n}\",\"value\":\"value {n}\"}}\n")).collect();
    kv(&dir, &["import"], input.as_bytes()).ok();
    for is_read in [true, false] {
        let mut watch = command(&["kv", "watch"]);
        let mut watch = spawn(watch.arg(&dir).args(["--from", "0"]), Stdio::null());
        let mut out = watch.stdout.take().unwrap();
        esker::read_lines(&mut out, 1);
        std::thread::sleep(std::time::Duration::from_millis(100));
        esker::signal(&watch, "TERM");
        std::thread::sleep(std::time::Duration::from_millis(100));
        if is_read {
            let mut rest = String::new();
            out.read_to_string(&mut rest).unwrap();
            assert!(rest.ends_with('\n') && rest.lines().count() < 19_000);
            assert_eq!(esker::end(watch).ok().err, "");
        } else {
            esker::until("the watch ends", || watch.try_wait().unwrap().is_some());
            esker::end(watch).ok().says(&["standard output is blocked"]);
        }
    }
}
