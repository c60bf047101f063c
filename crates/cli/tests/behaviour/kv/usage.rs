//! Flags, output forms and messages of `esker kv`.
#![allow(clippy::unwrap_used)]

use std::process::Stdio;
use std::time::Duration;

use crate::esker::{self, CommandOutput, command, kv, spawn};

/// Bug: `stat`, `compact`, `verify` and `backup` did not know the flag that all the others have.
#[test]
fn every_command_knows_the_keyspace_flag() {
    let (_guard, dir) = esker::workdir();
    kv(&dir, &["put", "a", "1"], b"").ok();
    kv(&dir, &["put", "b", "2", "--keyspace", "other"], b"").ok();
    let stat = kv(&dir, &["stat", "--keyspace", "other", "--json"], b"").ok().json();
    assert_eq!((&stat["keys"], &stat["keyspace"]), (&1.into(), &"other".into()));
    let stat = kv(&dir, &["stat", "--keyspace", "other"], b"").ok();
    assert!(stat.text().starts_with("keyspace     other\nkeys         1\n"), "{}", stat.text());
    kv(&dir, &["stat", "--keyspace", "absent"], b"").exits(1).says(&["\"absent\""]);
    let copy = dir.with_file_name("copy");
    for words in [&["compact"][..], &["verify"], &["backup", copy.to_str().unwrap()]] {
        let words = [words, &["--keyspace", "other"]].concat();
        kv(&dir, &words, b"").ok().says(&["note: ", words[0], "all keyspaces"]);
    }
    let copied = kv(&copy, &["get", "a"], b"").ok();
    assert_eq!(copied.text(), "1\n", "all of it");
}

#[test]
fn names_are_listed_as_json_and_escaped_as_text() {
    let (_guard, dir) = esker::workdir();
    let name = "two\nlines\\ \u{e9}\u{1b}'";
    let escaped = "two\\nlines\\\\ \u{e9}\\u{1b}'";
    kv(&dir, &["keyspaces", "create", name], b"").ok();
    kv(&dir, &["put", "a", "1"], b"").ok();
    let list = kv(&dir, &["keyspaces", "list"], b"").ok();
    assert_eq!(list.text(), format!("default\n{escaped}\n"));
    let list = kv(&dir, &["keyspaces", "list", "--json"], b"").ok();
    let lines: Vec<serde_json::Value> =
        list.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({ "name": "default", "keys": 1 }));
    assert_eq!(lines[1], serde_json::json!({ "name": name, "keys": 0 }));
    let stat = kv(&dir, &["stat"], b"").ok();
    assert!(stat.text().contains(&format!("keyspace     {escaped}: 0 keys\n")), "{}", stat.text());
    let mut watch = command(&["kv", "watch"]);
    let mut watch = spawn(watch.arg(&dir).args(["--from", "0"]), Stdio::null());
    let line = esker::read_lines(watch.stdout.as_mut().unwrap(), 1);
    assert_eq!(line, format!("1\tcreate_keyspace\t{escaped}\n"));
    esker::signal(&watch, "TERM");
    esker::end(watch).ok();
}

/// Bug: the store was created before the name was found to be invalid.
#[test]
fn an_invalid_name_creates_nothing() {
    let (_guard, dir) = esker::workdir();
    let long = "n".repeat(256);
    for name in ["", &long] {
        let of_flag =
            if name.is_empty() { "'--keyspace <NAME>' is empty" } else { "1 to 255 bytes" };
        for (words, said) in [
            (&["put", "a", "1", "--keyspace", name][..], of_flag),
            (&["import", "--keyspace", name], of_flag),
            (&["keyspaces", "create", name], "1 to 255 bytes"),
        ] {
            kv(&dir, words, b"").exits(2).says(&[said]);
            assert!(!dir.exists(), "{words:?}");
        }
    }
}

#[test]
fn a_value_is_printed_as_json() {
    let (_guard, dir) = esker::workdir();
    kv(&dir, &["put", "a", "-"], b"\xff\n").ok();
    let found = kv(&dir, &["get", "a", "--json"], b"").ok();
    assert_eq!(found.text(), "{\"key\":\"a\",\"value_b64\":\"/wo=\"}\n");
    assert_eq!(kv(&dir, &["get", "b", "--json"], b"").exits(1).out, b"");
}

#[test]
fn a_value_is_read_from_standard_input() {
    let (_guard, dir) = esker::workdir();
    let long = vec![b'v'; esker_kv::VALUE_LIMIT];
    for value in [&b""[..], b"two\nlines\n", &long] {
        kv(&dir, &["put", "a", "-"], value).ok();
        assert_eq!(kv(&dir, &["get", "a"], b"").ok().out, [value, b"\n"].concat());
    }
    let absent = dir.with_file_name("absent");
    let refused = kv(&absent, &["put", "a", "-"], &[&long[..], b"v"].concat()).exits(1);
    refused.says(&["standard input has more than 10485760 bytes"]);
    assert!(!absent.exists());
}

#[test]
fn a_range_of_keys_is_deleted() {
    let (_guard, dir) = esker::workdir();
    let lines: String = ["a", "b1", "b2", "c", "d", "e"]
        .map(|key| format!("{{\"key\":\"{key}\",\"value\":\"\"}}\n"))
        .concat();
    kv(&dir, &["import"], lines.as_bytes()).ok();
    let left = || {
        let scan = kv(&dir, &["scan"], b"").ok();
        scan.text().lines().map(|line| line.trim_end()).collect::<Vec<_>>().join(" ")
    };
    for words in [
        &["del"][..],
        &["del", "a", "--prefix", "b"],
        &["del", "a", "--from", "b"],
        &["del", "--prefix", "b", "--to", "c"],
    ] {
        kv(&dir, words, b"").exits(2);
    }
    assert_eq!(left(), "a b1 b2 c d e");
    kv(&dir, &["del", "--prefix", "b"], b"").ok();
    assert_eq!(left(), "a c d e");
    kv(&dir, &["del", "--from", "c", "--to", "d"], b"").ok();
    assert_eq!(left(), "a d e");
    kv(&dir, &["del", "--to", "b"], b"").ok();
    kv(&dir, &["del", "--from", "e"], b"").ok();
    assert_eq!(left(), "d");
    kv(&dir, &["del", "d"], b"").ok();
    assert_eq!(left(), "");
}

/// Bug: `--prefix "$UNSET"` deleted all keys, with exit status 0 and no output; so did `--from` and
/// `--to`.
#[test]
fn an_empty_value_of_a_flag_deletes_nothing() {
    let (_guard, dir) = esker::workdir();
    for key in ["a", "b1", "b2"] {
        kv(&dir, &["put", key, "1"], b"").ok();
    }
    for words in [
        &["del", "--prefix", ""][..],
        &["del", "--from", ""],
        &["del", "--to="],
        &["del", "--from", "a", "--to", ""],
        &["del", "a", "--keyspace", ""],
        &["scan", "--prefix", ""],
        &["scan", "--from="],
        &["export", "--keyspace", ""],
        &["stat", "--keyspace", ""],
    ] {
        let refused = kv(&dir, words, b"").exits(2);
        let refused = refused.says(&["is empty: give one, or leave out the flag"]);
        assert!(refused.out.is_empty(), "{words:?}");
    }
    assert_eq!(kv(&dir, &["scan"], b"").ok().text(), "a\t1\nb1\t1\nb2\t1\n");
}

/// The number is that of the keys which were there.
#[test]
fn a_delete_prints_how_many_keys_it_deleted() {
    let (_guard, dir) = esker::workdir();
    for key in ["", "a", "b1", "b2", "c"] {
        kv(&dir, &["put", key, "1"], b"").ok();
    }
    kv(&dir, &["put", "a", "1", "--keyspace", "other"], b"").ok();
    for (words, deleted) in [
        (&["del", "b1"][..], 1),
        (&["del", "b1"], 0),
        (&["del", ""], 1),
        (&["del", "--prefix", "b"], 1),
        (&["del", "--from", "x"], 0),
        (&["del", "--all"], 2),
        (&["del", "--all"], 0),
    ] {
        let printed = kv(&dir, words, b"").ok();
        assert_eq!(printed.text(), format!("keys deleted: {deleted}\n"), "{words:?}");
    }
    assert_eq!(kv(&dir, &["scan"], b"").ok().text(), "");
    assert_eq!(kv(&dir, &["scan", "--keyspace", "other"], b"").ok().text(), "a\t1\n");
    for words in [&["del"][..], &["del", "a", "--all"], &["del", "--all", "--prefix", "a"]] {
        kv(&dir, words, b"").exits(2);
    }
    kv(&dir, &["del"], b"").exits(2).says(&["--all"]);
}

/// Bug: the messages were those of `esker log`, and named its commands.
#[test]
fn messages_speak_of_stores() {
    let (_guard, dir) = esker::workdir();
    let says_not =
        |ended: &CommandOutput, word: &str| assert!(!ended.err.contains(word), "{}", ended.err);
    let absent = kv(&dir, &["get", "a"], b"").exits(1);
    says_not(&absent, "a log");
    absent.says(&["is not a key-value store: there is no such directory"]);
    let file = dir.with_file_name("file");
    std::fs::write(&file, "precious").unwrap();
    for words in [&["get", "a"][..], &["put", "a", "1"], &["watch"]] {
        let refused = kv(&file, words, b"").exits(1);
        says_not(&refused, "a log");
        refused.says(&["it is a file"]);
    }

    kv(&dir, &["put", "a", "1"], b"").ok();
    for words in [&["get", "a"][..], &["del", "a"], &["keyspaces", "drop"]] {
        let mut words = words.to_vec();
        words.extend(if words[0] == "keyspaces" {
            &["absent"][..]
        } else {
            &["--keyspace", "absent"]
        });
        let refused = kv(&dir, &words, b"").exits(1);
        says_not(&refused, "create it");
        refused.says(&["no keyspace \"absent\""]);
    }

    let store = esker_kv::Store::open(&dir).unwrap();
    let locked = kv(&dir, &["put", "a", "2"], b"").exits(4);
    says_not(&locked, "esker log");
    locked.says(&["is open for writing by process", "esker kv get", "esker kv scan"]);
    store.close().unwrap();

    let unfinished = dir.with_file_name("unfinished");
    let log = esker_log::Log::builder(&unfinished).component(esker_kv::UNFINISHED_BACKUP);
    log.open().unwrap().close().unwrap();
    let remedy = "delete it and back up again";
    kv(&unfinished, &["get", "a"], b"").exits(1).says(&["an unfinished backup", remedy]);
    let again = kv(&dir, &["backup", unfinished.to_str().unwrap()], b"").exits(1);
    again.says(&["an unfinished backup", remedy]);
}

/// Bug: nothing showed that a checkpoint was corrupt.
#[test]
fn stat_reports_whether_the_checkpoint_is_used() {
    let (_guard, dir) = esker::workdir();
    let lines: String =
        (0..20_000).map(|n| format!("{{\"key\":\"{n}\",\"value\":\"{n:0>80}\"}}\n")).collect();
    kv(&dir, &["import"], lines.as_bytes()).ok();
    let stat = || kv(&dir, &["stat", "--json"], b"").ok().json();
    let before = stat();
    assert!(before["checkpoint_bytes"].as_u64() > Some(1 << 18), "{before}");
    assert_eq!(before["replayed"], 0);
    let file = dir.join("checkpoint");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let after = stat();
    assert_eq!((&after["checkpoint_bytes"], &after["replayed"]), (&0.into(), &20_000.into()));
    assert_eq!(after["keys"], 20_000);
    assert_eq!(
        (&before["checkpoint_corrupt"], &after["checkpoint_corrupt"]),
        (&false.into(), &true.into())
    );
    assert_eq!(after["oldest"], 1);
    // Each value has 80 bytes.
    let (live, disk) =
        (after["live_bytes"].as_u64().unwrap(), after["disk_bytes"].as_u64().unwrap());
    assert!(live > 20_000 * 80 && live < disk, "{after}");
    let text = kv(&dir, &["stat"], b"").ok();
    assert!(text.text().contains("checkpoint   corrupt; opening read 20000 records\n"));
    std::fs::remove_file(&file).unwrap();
    let text = kv(&dir, &["stat"], b"").ok();
    assert!(text.text().contains("checkpoint   none; opening read 20000 records\n"));
}

/// Bug: a watch of a keyspace with a misspelled name waited silently.
#[test]
fn a_watch_of_an_absent_keyspace_says_so_and_waits_for_it() {
    let (_guard, dir) = esker::workdir();
    kv(&dir, &["put", "a", "1"], b"").ok();
    let watch = |name: &str| {
        let mut watch = command(&["kv", "watch"]);
        spawn(watch.arg(&dir).args(["--from", "0", "--keyspace", name]), Stdio::null())
    };
    let mut later = watch("later");
    let mut errors = later.stderr.take().unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for count in [1, usize::MAX] {
            drop(sender.send(esker::read_lines(&mut errors, count)));
        }
    });
    let note = lines.recv_timeout(Duration::from_secs(20)).unwrap();
    let expected = "note: the keyspace \"later\" does not exist yet; the command waits for it";
    assert!(note.contains(expected), "{note}");
    kv(&dir, &["put", "b", "2", "--keyspace", "later"], b"").ok();
    let changes = esker::read_lines(later.stdout.as_mut().unwrap(), 2);
    assert_eq!(changes, "2\tcreate_keyspace\tlater\n4\tput\tlater\tb\t2\n");
    esker::signal(&later, "TERM");
    esker::end(later).ok();
    assert_eq!(lines.recv().unwrap(), "", "one line");
    for name in ["default", "later"] {
        let mut known = watch(name);
        esker::read_lines(known.stdout.as_mut().unwrap(), 1);
        esker::signal(&known, "TERM");
        assert_eq!(esker::end(known).ok().err, "", "{name}");
    }
    kv(&dir, &["watch", "--keyspace", ""], b"").exits(2).says(&["is empty"]);
}
