//! Wrong usage is status 2, and creates nothing.

use crate::esker::{command, log, run, workdir};

#[test]
fn wrong_flags_and_values() {
    let (_guard, dir) = workdir();
    for flags in [
        &["--policy", "sometimes"][..],
        &["--policy", "batch:0"],
        &["--framing", "xml"],
        &["--segment-size", "5"],
        &["--segment-size", "huge"],
        &["--retain-segments", "1"],
        &["--retain-age", "long"],
        &["--disk", "floppy"],
        &["--no-such-flag"],
        &["another", "directory"],
    ] {
        let refused = log("append", &dir, flags, b"x\n").exits(2);
        assert!(!refused.err.is_empty() && refused.out.is_empty());
        assert!(!dir.exists(), "{flags:?}");
    }
    let refused = log("append", &dir, &["--retain-bytes", "64m"], b"").exits(2);
    assert!(refused.err.contains("at least 134217728") && refused.err.contains("--retain-bytes"));
    log("truncate", &dir, &[], b"").exits(2);
    log("cat", &dir, &["--from", "first"], b"").exits(2);
}

/// They were in the words of the parser: "invalid digit found in string".
#[test]
fn numbers_are_refused_in_plain_words() {
    let too_large = "99999999999999999999";
    for (arguments, words) in [
        (
            &["log", "cat", "d", "--from", "abc"][..],
            ["'abc' for '--from <N>'", "not a whole number"],
        ),
        (&["log", "cat", "d", "--from", ""], ["--from <N>", "not a whole number"]),
        (&["log", "cat", "d", "--to", too_large], ["--to <N>", "the number is too large"]),
        (
            &["log", "append", "d", "--record-limit", "65M"],
            ["at most 64M and 4K", "--record-limit"],
        ),
        (&["log", "append", "d", "--retain-bytes", "1M"], ["--retain-bytes", "128M"]),
        (
            &["log", "append", "d", "--retain-bytes", "10MB"],
            ["--retain-bytes must be at least 134217728 (128M)", "--segment-size 4194304 (4M)"],
        ),
        (
            &["log", "append", "d", "--retain-bytes", "100K"],
            ["--retain-bytes must be", "at least 131072 (128K) with the smallest"],
        ),
        (&["log", "append", "d", "--retain-bytes", "-5"], ["'-5'", "a size is like"]),
        (&["log", "cat", "d", "--from", "-5"], ["'-5' for '--from <N>'", "not a whole number"]),
        (&["log", "append", "d", "--retain-age", "0"], ["--retain-age must be", "such as 10ms"]),
        (
            &["log", "append", "d", "--segment-size", "1K"],
            ["--segment-size must be", "from 64K to 512M"],
        ),
        (&["log", "append", "d", "--policy", "batch:9999999999"], ["--policy must be", "batch:N"]),
        (&["log", "append", "d", "--dsync", "off"], ["follows a '='", "'--dsync=off'"]),
        (&["log", "append", "--dsync", "off", "d"], ["follows a '='", "'--dsync=off'"]),
        (&["log", "append", "d", "--dsync", "=", "off"], ["follows a '='", "'--dsync=off'"]),
        (
            &["log", "append", "d", "--segment-size", "-1M"],
            ["'-1M' for '--segment-size'", "negative"],
        ),
        (&["log", "cat", "d", "--since", "-10m"], ["'-10m' for '--since'", "negative"]),
        (&["log", "offsets", "d", "set", "x", "-1"], ["'-1'", "not a whole number"]),
        (&["log", "append", "d", "--reserve", "1G"], ["--reserve must be", "512M"]),
        (&["ts", "--timeout", "0"], ["--timeout <TIME>", "above 0"]),
    ] {
        let refused = run(command(arguments), b"").exits(2);
        for word in words {
            assert!(refused.err.contains(word), "{arguments:?}: {}", refused.err);
        }
        assert!(!refused.err.contains("found in string"), "{}", refused.err);
    }
}

/// It was accepted silently.
#[test]
fn a_queue_depth_without_io_uring_is_noted() {
    let (_guard, dir) = workdir();
    let noted = log("append", &dir, &["--queue-depth", "2"], b"x\n").ok();
    noted.says(&["--queue-depth has no effect", "--disk uring"]);
}

#[test]
fn wrong_commands() {
    for arguments in [
        &[][..],
        &["log"],
        &["log", "append"],
        &["log", "eat", "d"],
        &["log", "bench"],
        &["crash", "power"],
        &["bench"],
        &["sing"],
    ] {
        run(command(arguments), b"").exits(2);
    }
}
