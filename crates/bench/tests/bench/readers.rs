//! The benchmarks of readers count what was read, check it, and fail when a reader does.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::esker::{self, CommandOutput, command, run, spawn, workdir};

/// Runs `esker-bench log` in a directory that has to be gone at the end.
fn bench(words: &[&str]) -> CommandOutput {
    let (guard, dir) = workdir();
    let mut bench = command(&[&["log", "--json"], words].concat());
    bench.arg("--dir").arg(&dir).current_dir(guard.path());
    let ended = run(bench, b"");
    assert!(!dir.exists(), "{} stays", dir.display());
    ended
}

fn figures(words: &[&str]) -> Vec<Value> {
    bench(words).ok().text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(figure: &Value, key: &str) -> f64 {
    figure[key].as_f64().unwrap_or_else(|| panic!("{key} is {}", figure[key]))
}

#[test]
fn every_reader_gets_every_record() {
    let records = ["--readers", "7", "--count", "300", "--batch", "10", "--size", "1000"];
    for (verify, touched) in
        [("none", 0..=0), ("header", 30_000..=36_000), ("full", 2_100_000..=2_100_000)]
    {
        let figures = figures(&[&records[..], &["--verify", verify]].concat());
        let [wrote, read] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!((&wrote["bench"], &read["bench"]), (&"log/append".into(), &"log/fanout".into()));
        assert_eq!((&wrote["ops"], &wrote["bytes"]), (&300.into(), &300_000.into()));
        assert_eq!((&read["ops"], &read["bytes"]), (&2100.into(), &2_100_000.into()));
        assert!(touched.contains(&read["touched_bytes"].as_u64().unwrap()), "{verify}: {read}");
        assert_eq!(read["verified"], verify != "none");
        assert_eq!(wrote["verified"], true);
        assert_eq!(read["params"]["verify"], verify);
        assert!(number(read, "lag_p50_us") <= number(read, "lag_p99_us"));
        assert!(number(read, "lag_p99_us") <= number(read, "lag_max_us"));
        for key in ["mb_per_s", "cpu_seconds", "idle_bytes_per_reader", "deliveries", "lag_max_us"]
        {
            assert!(number(read, key) > 0.0, "{key}: {read}");
        }
        assert!(number(&read["floor"], "read_mb_per_s") > 0.0);
    }
}

#[test]
fn records_may_be_of_any_size_and_the_writer_may_have_a_thread() {
    let flags = ["--readers", "3", "--count", "200", "--size", "0..5000", "--verify", "full"];
    for more in [&["--batch", "7"][..], &["--blocking"]] {
        let figures = figures(&[&flags[..], more].concat());
        assert_eq!(figures[1]["ops"], 600);
        assert_eq!(number(&figures[1], "bytes"), 3.0 * number(&figures[0], "bytes"));
        assert_eq!(figures[1]["touched_bytes"], figures[1]["bytes"]);
    }
}

#[test]
fn a_rate_is_a_rate() {
    let flags = ["--readers", "5", "--rate", "1000000", "--batch", "10", "--size", "1000"];
    let figures = figures(&[&flags[..], &["--seconds", "0.4"]].concat());
    assert_eq!(figures[0]["params"]["rate"], 1_000_000);
    // No more than was asked for; how much less is the machine's affair.
    let kept = number(&figures[1]["params"], "rate_kept");
    assert!(0.0 < kept && kept <= 1.0, "{kept}");
}

#[test]
fn idle_readers_are_given_one_append_at_a_time() {
    let figures = figures(&["--readers", "50", "--rate", "0", "--count", "3"]);
    assert_eq!((&figures[0]["ops"], &figures[1]["ops"]), (&3.into(), &150.into()));
    assert_eq!(figures[1]["deliveries"], 150);
    assert_eq!(figures[1]["params"]["slices"], 3);
}

#[test]
fn a_reader_that_catches_up() {
    for more in [&["--verify", "full"][..], &["--direct", "off"], &["--verify", "none"]] {
        let flags = ["--catchup", "--bytes", "3M", "--segment-size", "1M", "--seconds", "0.2"];
        let figures = figures(&[&flags[..], more].concat());
        let [read] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!(read["bench"], "log/catchup");
        assert_eq!(read["verified"], more != ["--verify", "none"]);
        let records = (3_u64 << 20).div_ceil(900);
        assert_eq!((&read["ops"], &read["bytes"]), (&records.into(), &(records * 900).into()));
        for key in [
            "mb_per_s",
            "writer_mb_per_s_alone",
            "writer_mb_per_s_with_reader",
            "writer_kept",
            "reader_mb_per_s_with_writer",
        ] {
            assert!(number(read, key) > 0.0, "{key}: {read}");
        }
        assert!(number(&read["ratio"], "mb_per_s_to_read") > 0.0);
        assert!(read["params"]["page_cache"].is_string());
    }
}

#[test]
fn a_follower_is_another_process_and_reads_the_same() {
    let flags = ["--catchup", "--bytes", "3M", "--segment-size", "1M", "--seconds", "0.1"];
    for more in [&["--verify", "full"][..], &["--direct", "off"]] {
        let figures = figures(&[&flags[..], &["--follower"], more].concat());
        let [read] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!(read["params"]["follower"], true);
        for key in ["records", "bytes", "touched_bytes"] {
            let inside = if key == "records" { "ops" } else { key };
            assert_eq!(read[format!("follower_{key}")], read[inside], "{key}: {read}");
        }
        for key in ["mb_per_s", "to_read", "to_reader", "open_ms", "cpu_seconds"] {
            assert!(number(read, &format!("follower_{key}")) > 0.0, "{key}: {read}");
        }
    }
    let flags = ["--readers", "2", "--rate", "1000000", "--batch", "10", "--size", "1000"];
    let figures = figures(&[&flags[..], &["--seconds", "0.4", "--follower"]].concat());
    let read = &figures[1];
    // What came before the timed part, too, and each record once.
    assert!(number(read, "follower_records") > number(&figures[0], "ops"), "{read}");
    assert_eq!(number(read, "follower_bytes"), 1000.0 * number(read, "follower_records"));
    assert!(number(read, "follower_deliveries") > 0.0);
    assert!(number(read, "follower_lag_p50_us") <= number(read, "follower_lag_p99_us"));
    assert!(number(read, "follower_lag_p99_us") <= number(read, "follower_lag_max_us"));
}

/// The follower process of a benchmark, asked to read 100 records.
fn follower(dir: &std::path::Path, seed: &str) -> CommandOutput {
    let mut child = spawn(
        command(&["log-follow", "--size=900..900", "--verify=full", seed]).arg(dir),
        Stdio::piped(),
    );
    // Held until it has ended: the follower does not outlive its parent.
    let mut goal = child.stdin.take().unwrap();
    goal.write_all(b"100\n").unwrap();
    let ended = esker::end(child);
    drop(goal);
    ended
}

#[test]
fn a_follower_that_gets_something_else_fails() {
    let (guard, dir) = workdir();
    let mut build = command(&["log", "--count", "100", "--keep", "--json", "--dir"]);
    build.arg(&dir).current_dir(guard.path());
    run(build, b"").ok();
    let ended = follower(&dir.join("log"), "--seed=1").ok();
    let reported: Value = serde_json::from_str(ended.text().lines().last().unwrap()).unwrap();
    assert!(number(&reported, "records") >= 100.0, "{reported}");
    follower(&dir.join("log"), "--seed=2").exits(1).says(&["is not what was written there"]);
}

#[test]
fn a_reader_that_gets_something_else_fails_the_bench() {
    let expecting = ["--seed", "1", "--expect-seed", "2"];
    for (flags, verify) in [
        (&["--readers", "3", "--count", "200"][..], "header"),
        (&["--readers", "3", "--count", "200"], "full"),
        (&["--catchup", "--bytes", "1M", "--seconds", "0.1"], "header"),
    ] {
        let ended = bench(&[flags, &expecting, &["--verify", verify]].concat()).exits(1);
        assert_eq!(ended.text(), "", "a figure of readers that failed");
        ended.says(&["is not what was written there"]);
    }
    // Who does not look, sees nothing.
    bench(&[&["--readers", "3", "--count", "9", "--verify", "none"], &expecting[..]].concat()).ok();
}

#[test]
fn a_reader_that_fails_is_named() {
    let flags = ["--readers", "1", "--count", "200", "--expect-seed", "2"];
    bench(&flags).exits(1).says(&["reader 0 of 1"]);
}
