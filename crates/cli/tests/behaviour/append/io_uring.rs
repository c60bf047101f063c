//! `--disk uring` writes what `cat` reads, and says so when it is not io_uring after all.

use crate::esker::{lines, log, program, run, workdir};

#[test]
fn a_log_written_through_io_uring() {
    let (_guard, dir) = workdir();
    let input = lines(1, 20_000);
    let appended = log("append", &dir, &["--disk", "uring"], input.as_bytes()).ok();
    if !appended.err.is_empty() {
        // A machine without it.
        assert!(appended.err.contains("io_uring unavailable"), "{}", appended.err);
    }
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), input);
    log("append", &dir, &["--disk", "std"], lines(20_001, 20_010).as_bytes()).ok();
    log("append", &dir, &["--disk", "uring"], lines(20_011, 20_020).as_bytes()).ok();
    assert_eq!(log("cat", &dir, &[], b"").ok().text(), lines(1, 20_020));
    log("verify", &dir, &[], b"").ok();
}

#[test]
fn a_benchmark_names_the_disk_that_it_used() {
    let (_guard, dir) = workdir();
    let mut bench = program("esker-bench", &["log", "--disk", "uring", "--writers", "5", "--json"]);
    bench.args(["--seconds", "0.2", "--dir"]).arg(&dir);
    let reported = run(bench, b"").ok();
    let disk = reported.json()["params"]["disk"].clone();
    let noted = reported.err.contains("io_uring unavailable");
    assert_eq!(disk, if noted { "std" } else { "uring" }, "{}", reported.err);
    assert_eq!(reported.json()["verified"], true);
}
