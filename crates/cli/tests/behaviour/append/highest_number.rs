//! Bug: a plain append took the number 2^64 - 1, which `--keep-seq` refused. A consumer that was
//! done with that record got it again, with a lag of 0. And the refusal after it spoke of a number
//! that the input did not have.
#![allow(clippy::unwrap_used)]

use crate::esker::{log, workdir};

const HIGHEST: &str = "18446744073709551614";
const OVER: &str = "18446744073709551615";

#[test]
fn every_way_of_appending_ends_with_the_same_number() {
    let (guard, dir) = workdir();
    let keep = ["--framing", "json", "--keep-seq"];
    let line = |seq: &str| format!("{{\"seq\":{seq},\"payload\":\"record {seq}\"}}\n");
    log("append", &dir, &keep, line("18446744073709551613").as_bytes()).ok();
    // Nothing of a batch that does not fit is appended.
    log("append", &dir, &[], b"the last\nmore\n").exits(1).says(&[HIGHEST]);
    log("append", &dir, &[], b"the last\n").ok();
    log("append", &dir, &[], b"more\n")
        .exits(1)
        .says(&[&format!("numbers of records end with {HIGHEST}"), "another log"]);
    for (flags, input) in [(&[][..], "more\n".to_owned()), (&keep, line(OVER))] {
        log("append", &dir, flags, input.as_bytes()).exits(1).says(&[HIGHEST]);
    }
    let exported = log("cat", &dir, &["--json"], b"").ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), "record 18446744073709551613\nthe last\n");
    let copy = guard.path().join("copy");
    let report = log("append", &copy, &[&keep[..], &["--json"]].concat(), &exported.out).ok();
    assert_eq!(report.json()["last_seq"].to_string(), HIGHEST);

    // A truncation of everything has a number, too.
    let reported = log("truncate", &copy, &["--before", OVER, "--json"], b"").ok().json();
    assert_eq!(reported["oldest"].to_string(), OVER);
    assert_eq!(log("cat", &copy, &[], b"").ok().text(), "");
}

#[test]
fn a_consumer_gets_nothing_twice() {
    let (_guard, dir) = workdir();
    let last = format!("{{\"seq\":{HIGHEST},\"payload\":\"last\"}}\n");
    log("append", &dir, &["--framing", "json", "--keep-seq"], last.as_bytes()).ok();
    let set = |offset: &str| log("offsets", &dir, &["set", "billing", offset], b"").ok();
    let cat = || log("cat", &dir, &["--consumer", "billing"], b"").ok();
    let lag = || log("offsets", &dir, &["list", "--json"], b"").ok().json()["lag"].clone();
    set("18446744073709551613");
    assert_eq!((cat().text(), lag()), ("last\n", 1.into()));
    assert_eq!(set(HIGHEST).err, "");
    assert_eq!((cat().text(), lag()), ("", 0.into()));
    set(OVER).says(&["the last durable record is 18446744073709551614"]);
    assert_eq!((cat().text(), lag()), ("", 0.into()));
    cat().says(&[OVER, HIGHEST]);
}
