//! The shapes of a log that `esker-bench log` measures: rings, no disk, huge pages, a processor,
//! rests; what each says of itself; and the names that other programs have for the flags.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;

use crate::esker::{self, CommandOutput, command, run, workdir};

fn bench(flags: &[&str]) -> CommandOutput {
    let (guard, dir) = workdir();
    let mut bench = command(&["log"]);
    bench.args(flags).arg("--dir").arg(&dir).current_dir(guard.path());
    let ended = run(bench, b"");
    assert!(!dir.exists(), "{} stays", dir.display());
    ended
}

fn figure(flags: &[&str]) -> Value {
    bench(&[flags, &["--json"]].concat()).ok().json()
}

/// `params` has every setting that such a benchmark has elsewhere, under Esker's name.
#[test]
fn every_option_is_reported() {
    let figure = figure(&[
        "--dsync",
        "--retain-segments=4",
        "--retain-bytes=1G",
        "--queue-depth=8",
        "--buffers=16",
        "--buffer-size=256K",
        "--segment-records=1000",
        "--segment-size=512K",
        "--tail-cache=0",
        "--index-records=10",
        "--index-bytes=64K",
        "--count=2000",
        "--size=1000",
        "--delay=1",
        "--batch=100",
    ]);
    let params = &figure["params"];
    for (name, value) in [
        ("retain_segments", 4),
        ("retain_bytes", 1 << 30),
        ("queue_depth", 8),
        ("buffers", 16),
        ("buffer_size", 256 << 10),
        ("segment_records", 1000),
        ("segment_size", 512 << 10),
        ("tail_cache", 0),
        ("index_records", 10),
        ("index_bytes", 64 << 10),
        ("count", 2000),
        ("size", 1000),
        ("delay_ms", 1),
        ("batch", 100),
        ("readers", 0),
    ] {
        assert_eq!(params[name], value, "{name}");
    }
    assert_eq!((&params["dsync"], &params["huge_pages"]), (&true.into(), &false.into()));
    assert!(params["dir"].is_string() && params["disk"] == "std" && params["no_disk"] == false);
    for none in ["pin", "retain_age_s"] {
        assert!(params.as_object().unwrap().contains_key(none) && params[none].is_null(), "{none}");
    }
    assert_eq!(figure["ops"], 2000);
    // 19 rests of a millisecond in each slice, and they are no part of a latency's median.
    assert!(figure["seconds"].as_f64().unwrap() >= 0.018);
    assert_eq!(figure["verified"], true);
}

/// A size in powers of ten was refused: "must be a multiple of 4096". `--delay` took no unit.
#[test]
fn sizes_are_rounded_down_to_blocks_and_times_have_units() {
    let flags = ["--segment-size=10MB", "--buffer-size=1MB", "--delay=1ms", "--count=20"];
    let params = figure(&flags)["params"].clone();
    for (name, value) in [("segment_size", 9_998_336), ("buffer_size", 999_424), ("delay_ms", 1)] {
        assert_eq!(params[name], value, "{name}");
    }
    assert_eq!(figure(&["--segment-size=1.5M", "--count=20"])["params"]["segment_size"], 3 << 19);
    bench(&["--segment-size=64KB"]).exits(2);
    bench(&["--delay=61s"]).exits(2);
}

#[test]
fn other_names_are_understood() {
    let figure = figure(&[
        "--o-dsync",
        "--ring-size=3",
        "--pool-size=4",
        "--buf-capacity=128K",
        "--page-capacity=500",
        "--index-sparse-count=7",
        "--index-sparse-bytes=8192",
        "--log-size=90",
        "--count=2000",
        "--async",
    ]);
    for (name, value) in [
        ("retain_segments", 3),
        ("buffers", 4),
        ("buffer_size", 128 << 10),
        ("segment_records", 500),
        ("index_records", 7),
        ("index_bytes", 8192),
        ("size", 90),
    ] {
        assert_eq!(figure["params"][name], value, "{name}");
    }
    assert_eq!(figure["verified"], true);
}

/// Records that a ring kept are compared, from the oldest that is there to the last written.
#[test]
fn records_kept_by_a_ring_are_verified() {
    let ring = ["--retain-segments=2", "--segment-size=64K", "--count=6000", "--async"];
    for more in [&["--writers=3"][..], &["--size=5", "--writers=1"], &["--blocking", "--writers=5"]]
    {
        let figure = figure(&[&ring[..], more].concat());
        let compared = figure["params"]["compared"].as_u64().unwrap();
        let size = figure["params"]["size"].as_u64().unwrap();
        assert!(compared > 0 && compared * size <= 3 * (64 << 10), "{more:?}: {compared}");
        assert_eq!(figure["verified"], true);
    }
}

#[test]
fn without_a_disk_nothing_is_verified() {
    for more in [&["--buffer-size=1M"][..], &["--buffer-size=10M", "--writers=10"]] {
        let shape = ["--no-disk", "--async", "--size=90", "--segment-size=1M", "--count=100000"];
        let figure = figure(&[&shape[..], more].concat());
        assert_eq!(figure["verified"], false);
        assert_eq!(
            (&figure["params"]["no_disk"], &figure["params"]["disk"]),
            (&true.into(), &"none".into())
        );
        assert!(figure["params"]["compared"].is_null());
        assert!(figure["ops"].as_u64().unwrap() >= 100_000);
    }
    bench(&["--no-disk", "--keep"]).exits(2);
    bench(&["--no-disk", "--open"]).exits(2);
}

/// Nothing was written to the segments: so nothing can be there.
#[test]
fn without_a_disk_the_segments_stay_as_they_were_made() {
    let (guard, dir) = workdir();
    let mut bench =
        command(&["log", "--no-disk", "--async", "--seconds=20", "--segment-size=1M", "--dir"]);
    bench.arg(&dir).current_dir(guard.path());
    let child = bench.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let child = child.spawn().unwrap();
    let log = dir.join("log");
    esker::until("some segments", || log.exists() && esker::segments(&log).len() > 4);
    for segment in &esker::segments(&log)[1..4] {
        assert!(std::fs::read(segment).unwrap_or_default().iter().all(|byte| *byte == 0));
    }
    esker::signal(&child, "TERM");
    esker::end(child);
}

#[test]
fn huge_pages_are_whole_or_refused() {
    if !std::fs::read_to_string("/proc/meminfo")
        .is_ok_and(|reported| reported.contains("Hugepagesize"))
    {
        return;
    }
    let uneven = bench(&["--huge-pages", "--buffer-size=20K"]).exits(2);
    assert!(
        uneven.err.contains("--buffer-size") && uneven.err.contains("huge page"),
        "{}",
        uneven.err
    );
    let ended =
        bench(&["--huge-pages", "--buffer-size=64M", "--buffers=1024", "--json", "--count=10"]);
    if ended.status != 0 {
        let command = "`sysctl -w vm.nr_hugepages=";
        ended.exits(1).says(&["huge pages", command]);
    }
    for (size, status) in [("20K", 2), ("3G", 1)] {
        let (guard, dir) = workdir();
        let mut raw = command(&["floor", "--raw", "--huge-pages", "--readers=100"]);
        raw.args(["--buffer-size", size, "--dir"]).arg(&dir).current_dir(guard.path());
        run(raw, b"").exits(status).says(&["huge pages"]);
    }
}

#[test]
fn a_processor_that_is_not_there_is_refused() {
    bench(&["--pin=1000000"]).exits(2).says(&["--pin", "1000000"]);
    if cfg!(target_os = "linux") {
        assert_eq!(figure(&["--pin=0", "--count=100"])["params"]["pin"], 0);
    }
}

/// The output for people: the state at opening and progress on standard error, four lines of
/// summary.
#[test]
fn summary_has_four_lines() {
    let reported = bench(&["--count=1000", "--writers=2", "--delay=0"]).ok();
    assert!(
        reported.err.contains("opened in") && reported.err.contains("0 records"),
        "{}",
        reported.err
    );
    assert!(reported.err.contains("part 2 of 2"), "{}", reported.err);
    for (line, words) in [
        ("Bench:", &["8 buffers", "queue depth", "0 readers", "delay 0 ms"][..]),
        ("Worker:", &["1000 records of 900 bytes", "batches of 1", "0.9 MB"]),
        ("Writer:", &[" s, ", "records/s", "MB/s", "p99.9"]),
        ("Readers:", &["records read back in", "records/s", "MB/s"]),
    ] {
        let line = reported.text().lines().find(|l| l.trim_start().starts_with(line)).unwrap();
        for word in words {
            assert!(line.contains(word), "{word:?} is not in: {line}");
        }
    }
}
