//! A path at which there is a symbolic link to nothing.

#![allow(clippy::unwrap_used)]

use crate::esker::{command, kv, log, run, workdir};

/// Bug: writing said "File exists", of something that does not, and reading that no such file does.
#[test]
fn a_link_to_nothing_is_named_as_such() {
    let (guard, target) = workdir();
    let link = guard.path().join("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let said = ["symbolic link", "link"];
    kv(&link, &["put", "a", "b"], b"").exits(1).says(&said);
    kv(&link, &["get", "a"], b"").exits(1).says(&said);
    log("append", &link, &[], b"x\n").exits(1).says(&said);
    log("append", &link.join("below"), &[], b"x\n").exits(1).says(&said);
    log("cat", &link, &[], b"").exits(1).says(&said);
    log("verify", &link, &[], b"").exits(1).says(&said);
    let mut stat = command(&["stat"]);
    run(
        {
            stat.arg(&link);
            stat
        },
        b"",
    )
    .exits(1)
    .says(&said);
    assert!(!target.exists());
    // With its target, it is a directory as any other.
    std::fs::create_dir(&target).unwrap();
    log("append", &link, &[], b"x\n").ok();
    assert_eq!(log("cat", &target, &[], b"").ok().text(), "x\n");
}
