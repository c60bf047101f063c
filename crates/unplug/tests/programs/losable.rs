//! The list of what a program could lose when it acknowledged.

use crate::support::answer;

/// The answer for a shell program, after a setup that makes the directories `tmp` and `new`.
fn losable(program: &str) -> Option<(i32, String)> {
    answer(&["--setup", "mkdir tmp new", "--", "sh", "-c", program])
}

#[test]
fn file_that_came_and_went_is_not_missed() {
    let program = "printf A > db; sync db .; printf B > t; mv t u; rm u; echo saved";
    let Some((code, answer)) = losable(program) else { return };
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn file_that_is_back_after_its_removal_is_named() {
    let program = "printf A > t; sync t .; rm t; echo done";
    let Some((code, answer)) = losable(program) else { return };
    assert_eq!(code, 1, "{answer}");
    let line = "unlink(t): no fsync of the directory follows before line 1 of the output";
    assert!(answer.contains(line), "{answer}");
}

/// As a mail server delivers: the new directory is synced, the temporary one is not.
#[test]
fn file_moved_into_a_synced_directory_is_kept() {
    let program = "printf A > tmp/m; sync tmp/m; mv tmp/m new/m; sync new; echo delivered";
    let Some((code, answer)) = losable(program) else { return };
    assert_eq!(code, 0, "{answer}");
}

#[test]
fn name_in_a_directory_that_was_not_synced_is_named() {
    let program = "printf A > tmp/m; sync tmp/m; ln tmp/m new/m; sync new; echo linked";
    let Some((code, answer)) = losable(program) else { return };
    assert_eq!(code, 1, "{answer}");
    let line = "create(tmp/m): no fsync of the directory tmp follows before line 1 of the output";
    assert!(answer.contains(line), "{answer}");
    assert!(!answer.contains("link(new/m)"), "{answer}");
}

#[test]
fn rename_between_directories_names_both() {
    let program = "printf A > tmp/m; sync tmp/m tmp; mv tmp/m new/m; echo moved";
    let Some((code, answer)) = losable(program) else { return };
    assert_eq!(code, 1, "{answer}");
    let line = "rename(m, new/m): no fsync of the directories tmp and new follows before line 1";
    assert!(answer.contains(line), "{answer}");
}
