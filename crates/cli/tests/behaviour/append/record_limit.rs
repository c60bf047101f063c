//! A record over the limit ends the input with status 1 and says which it was; everything before it
//! is durable. The limit itself is still a record.

use crate::esker::{log, workdir};

#[test]
fn a_line_over_the_limit() {
    let (_guard, dir) = workdir();
    let flags = ["--record-limit", "8"];
    log("append", &dir, &flags, b"one\n12345678\n123456789\nnever\n").exits(1).says(&[
        "record 3 of the input",
        "limit is 8",
        "--record-limit",
        "records through 2 are durable",
    ]);
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"one\n12345678\n");
}

#[test]
fn a_line_that_never_ends_takes_no_memory() {
    let (_guard, dir) = workdir();
    let endless = vec![b'x'; 40 << 20];
    log("append", &dir, &[], &endless)
        .exits(1)
        .says(&["record 1 of the input", "limit is 1048576"]);
}

#[test]
fn a_length_over_the_limit() {
    let (_guard, dir) = workdir();
    log("append", &dir, &["--framing", "len32"], b"\x01\0\0\0a\xff\xff\xff\xff").exits(1).says(&[
        "record 2 of the input",
        "4294967295",
        "not framed as len32",
    ]);
    assert_eq!(log("cat", &dir, &[], b"").ok().out, b"a\n");
}

#[test]
fn a_limit_that_no_log_has() {
    let (_guard, dir) = workdir();
    log("append", &dir, &["--record-limit", "65M"], b"").exits(2).says(&["--record-limit"]);
}
