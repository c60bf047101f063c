//! The verdict, the sentence and the exit status.

use crate::support::{answer, unplug};

/// Replaces the file `db` twice, with the syncs that the placeholders stand for.
fn save(file_sync: &str, directory_sync: &str) -> String {
    format!(
        "for text in AAAA BBBB; do
             printf $text > db.tmp; {file_sync}
             mv db.tmp db; {directory_sync}
             echo $text
         done"
    )
}

/// Accepts the last text that was printed, or the next one.
const CHECK: &str = r#"
    found=$(cat db 2> /dev/null)
    case "$(tail -n 1 "$UNPLUG_OUTPUT")" in
        "") [ -z "$found" ] || [ "$found" = AAAA ] ;;
        AAAA) [ "$found" = AAAA ] || [ "$found" = BBBB ] ;;
        BBBB) [ "$found" = BBBB ] ;;
    esac"#;

fn check(program: &str) -> Option<(i32, String)> {
    answer(&["--states", "200", "--check", CHECK, "--", "sh", "-c", program])
}

#[test]
fn file_that_is_synced_and_named_durably_is_kept() {
    let program = save("sync db.tmp", "sync .");
    let Some((code, answer)) = check(&program) else { return };
    assert_eq!(code, 0, "{answer}");
    assert!(answer.starts_with("kept: "), "{answer}");
    let (code, answer) = self::answer(&["--", "sh", "-c", &program]).expect("ran just now");
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn missing_sync_of_the_file_is_found() {
    let program = save(":", "sync .");
    let Some((code, answer)) = check(&program) else { return };
    assert_eq!(code, 1, "{answer}");
    assert!(answer.contains("lost `2 write(db.tmp, 4 bytes at 0)`"), "{answer}");
    let (code, answer) = self::answer(&["--", "sh", "-c", &program]).expect("ran just now");
    assert_eq!(code, 1, "{answer}");
    let line =
        "write(db.tmp, 4 bytes at 0): no fsync of the file follows before line 1 of the output";
    assert!(answer.contains(line), "{answer}");
}

#[test]
fn missing_sync_of_the_directory_is_found() {
    let program = save("sync db.tmp", ":");
    let Some((code, answer)) = check(&program) else { return };
    assert_eq!(code, 1, "{answer}");
    assert!(answer.contains("rename(db.tmp, db)"), "{answer}");
    let (_, answer) = self::answer(&["--", "sh", "-c", &program]).expect("ran just now");
    let line = "rename(db.tmp, db): no fsync of the directory follows before line 1 of the output";
    assert!(answer.contains(line), "{answer}");
}

#[test]
fn setup_counts_as_durable() {
    let setup = "printf AAAA > db";
    let Some((code, answer)) =
        answer(&["--setup", setup, "--check", "[ \"$(cat db)\" = AAAA ]", "--", "true"])
    else {
        return;
    };
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn check_that_fails_where_nothing_is_lost_is_broken() {
    let Some((code, answer)) = answer(&["--check", "false", "--", "sh", "-c", "echo a > b"]) else {
        return;
    };
    assert_eq!(code, 3, "{answer}");
    assert!(answer.starts_with("check broken: "), "{answer}");
}

#[test]
fn check_that_does_not_end_is_ended() {
    // It ends where nothing is lost.
    let check = "[ -e b ] || sleep 600";
    let program = "echo a > a; sync a .; echo b > b; sync b .";
    let Some((code, answer)) =
        answer(&["--check-timeout", "2", "--check", check, "--", "sh", "-c", program])
    else {
        return;
    };
    assert_eq!(code, 1, "{answer}");
    assert!(answer.contains("the check did not end in time"), "{answer}");
}

#[test]
fn program_that_changes_nothing_is_not_measured() {
    let Some((code, answer)) = answer(&["--", "true"]) else { return };
    assert_eq!(code, 3, "{answer}");
}

#[test]
fn answer_is_one_json_object() {
    let Some((code, answer)) = answer(&["--json", "--", "sh", "-c", "echo a > b"]) else { return };
    assert_eq!(code, 1, "{answer}");
    let json: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(json["verdict"], "lost");
    assert_eq!(json["losable"].as_array().map(Vec::len), Some(2), "{answer}");
}

/// The kernel does not tell a file system of `sync` through FUSE.
#[test]
fn sync_of_everything_is_a_false_alarm_until_a_line_says_so() {
    let program = "printf AAAA > db; sync; echo synced 1; echo saved";
    let check = r#"[ ! -s "$UNPLUG_OUTPUT" ] || [ "$(cat db)" = AAAA ]"#;
    let run = |options: &[&str]| answer(&[options, &["--", "sh", "-c", program]].concat());
    let Some((code, alarm)) = run(&["--check", check]) else { return };
    assert_eq!(code, 1, "{alarm}");
    let durable = ["--sync-is-durable-at", "synced"];
    let (code, kept) = run(&[&durable[..], &["--check", check]].concat()).expect("ran just now");
    assert_eq!(code, 0, "{kept}");
    let (code, kept) = run(&durable).expect("ran just now");
    assert_eq!(code, 0, "{kept}");
    let (code, alarm) = run(&["--sync-is-durable-at", "ynced"]).expect("ran just now");
    assert_eq!(code, 1, "{alarm}");
}

#[test]
fn usage_is_refused_with_2() {
    let status = unplug(&[]).output().expect("unplug starts").status;
    assert_eq!(status.code(), Some(2));
}

#[test]
fn recording_is_explained_and_a_state_of_it_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("recording");
    let recording = recording.to_str().expect("is text");
    let program = save(":", "sync .");
    let arguments = ["--record", recording, "--json", "--check", CHECK, "--", "sh", "-c", &program];
    let Some((code, answer)) = answer(&arguments) else { return };
    assert_eq!(code, 1, "{answer}");
    let json: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let state = json["failing"]["state"].as_str().expect("a name");

    let (code, timeline) = self::answer(&["explain", recording]).expect("needs no mount");
    assert_eq!(code, 0, "{timeline}");
    assert!(
        timeline.contains("rename(db.tmp, db)") && timeline.contains("output: AAAA"),
        "{timeline}"
    );

    let replay = ["replay", recording, "--state", state, "--check", CHECK];
    let (code, replayed) = self::answer(&replay).expect("ran just now");
    assert_eq!(code, 1, "{replayed}");
    assert!(replayed.starts_with("the check failed\n"), "{replayed}");
    let sentence = json["failing"]["sentence"].as_str().expect("a sentence");
    assert!(replayed.contains(sentence), "{replayed}");
    // The whole search finds the same state again.
    let (code, again) =
        self::answer(&["replay", recording, "--json", "--check", CHECK]).expect("ran just now");
    assert_eq!(code, 1, "{again}");
    let again: serde_json::Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again["failing"]["sentence"], json["failing"]["sentence"]);
}

#[test]
fn child_that_keeps_the_output_open_does_not_hold_the_answer_up() {
    let start = std::time::Instant::now();
    let program = "sleep 600 2> /dev/null & printf AAAA > db; chmod 444 db; sync db .; echo saved";
    let check = "[ ! -s \"$UNPLUG_OUTPUT\" ] || [ \"$(stat -c %a db)\" = 444 ]";
    let Some((code, answer)) =
        answer(&["--states", "50", "--check", check, "--", "sh", "-c", program])
    else {
        return;
    };
    assert_eq!(code, 0, "{answer}");
    assert!(start.elapsed() < std::time::Duration::from_secs(300));
}

/// `dd` with O_DSYNC: the write is undecided until it returns, and nothing else becomes durable.
#[test]
fn write_with_dsync_is_torn_before_it_returns_and_syncs_nothing_else() {
    let setup = "head -c 8192 /dev/zero > db";
    let dsync = "dd if=/dev/zero bs=4096 count=1 of=db oflag=dsync conv=notrunc status=none";
    let program =
        format!("printf BBBB | dd of=db conv=notrunc status=none; {dsync} seek=1; echo done");
    let check = "[ ! -s \"$UNPLUG_OUTPUT\" ] || grep -q BBBB db";
    let arguments = ["--setup", setup, "--check", check, "--", "sh", "-c", &program];
    let Some((code, answer)) = answer(&arguments) else { return };
    assert_eq!(code, 1, "{answer}");
    assert!(answer.contains("lost `3 write(db, 4 bytes at 0)`"), "{answer}");

    let program = "printf A%.0s $(seq 2048) | dd of=db bs=2048 oflag=dsync status=none; echo done";
    let whole =
        "[ \"$(tr -d '\\0' < db | wc -c)\" = 0 ] || [ \"$(tr -d '\\0' < db | wc -c)\" = 2048 ]";
    let (code, answer) =
        self::answer(&["--states", "50", "--check", whole, "--", "sh", "-c", program])
            .expect("ran");
    assert_eq!(code, 1, "{answer}");
}

#[test]
fn program_that_changes_nothing_is_not_measured_with_a_check_either() {
    let Some((code, answer)) = answer(&["--check", "true", "--", "true"]) else { return };
    assert_eq!(code, 3, "{answer}");
}
