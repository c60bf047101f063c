//! `esker-bench kv`: the experiment, cold reads, emulated disks.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;

use crate::esker::{CommandOutput, command, run, workdir};

fn kv_bench(words: &[&str]) -> CommandOutput {
    let (guard, dir) = workdir();
    let mut bench = command(&["kv"]);
    bench.args(words).arg("--dir").arg(&dir).current_dir(guard.path());
    let ended = run(bench, b"");
    assert!(!dir.exists(), "{} stays", dir.display());
    ended
}

fn figures(words: &[&str]) -> Vec<Value> {
    let ended = kv_bench(&[words, &["--json"]].concat()).ok();
    ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(figure: &Value, key: &str) -> f64 {
    figure[key].as_f64().unwrap_or_else(|| panic!("{key} of {figure}"))
}

const COLUMNS: &str = "mode,record_size,count,total_time_ms,throughput,p50_ns,p99_ns,p999_ns,max_ns,fsyncs,\
                       total_with_sync_ms";

/// Each line of the CSV, by column.
fn rows(csv: &str) -> Vec<(&str, Vec<f64>)> {
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some(COLUMNS));
    lines
        .map(|line| {
            let (mode, rest) = line.split_once(',').unwrap();
            let row: Vec<f64> = rest.split(',').map(|cell| cell.parse().unwrap()).collect();
            assert_eq!(row.len(), COLUMNS.split(',').count() - 1, "{line}");
            (mode, row)
        })
        .collect()
}

/// Every mode is measured long enough to hold its stalls, and the last sync counts.
#[test]
fn csv_is_well_formed_and_its_runs_are_long_enough() {
    let ended = kv_bench(&["--csv", "--keys", "20000"]).ok();
    let rows = rows(ended.text());
    let modes: Vec<_> = rows.iter().map(|(mode, _)| *mode).collect();
    assert_eq!(modes, ["always", "batch_100", "batch_1000", "periodic_10ms", "periodic_100ms"]);
    for (mode, row) in rows {
        let [size, count, ms, per_s, p50, p99, p999, max, fsyncs, with_sync] = row[..] else {
            panic!("{row:?}")
        };
        assert!(size == 128.0 && count >= 10_000.0, "{mode}: {row:?}");
        assert!(ms >= if mode == "periodic_100ms" { 2000.0 } else { 1000.0 }, "{mode}: {ms} ms");
        assert!(ms <= with_sync, "{mode}: {row:?}");
        let wanted = count / with_sync * 1e3;
        // Half of the last digit printed, of the rate and of the time it is computed from.
        let rounding = 0.05 + wanted * 0.0005 / with_sync;
        assert!((per_s - wanted).abs() <= rounding * 1.001, "{mode}: {per_s} and not {wanted}");
        assert!(p50 > 0.0 && p50 <= p99 && p99 <= p999 && p999 <= max, "{mode}: {row:?}");
        assert!(fsyncs >= 100.0, "{mode}: {fsyncs} syncs");
        if mode == "always" {
            assert_eq!(fsyncs, count);
        }
    }
    // The model is printed with its errors.
    for printed in ["T_write", "T_fsync", "error", "periodic_100ms"] {
        assert!(ended.err.contains(printed), "{printed} is not in: {}", ended.err);
    }
}

#[test]
fn csv_has_the_modes_size_and_count_of_the_flags() {
    let flags =
        ["--csv", "--policy", "batch:10", "--policy", "os", "--size", "4096", "--count", "500"];
    let ended = kv_bench(&[&flags[..], &["--keys", "100"]].concat()).ok();
    let rows = rows(ended.text());
    assert_eq!(rows.iter().map(|(mode, _)| *mode).collect::<Vec<_>>(), ["batch_10", "os"]);
    assert!(rows.iter().all(|(_, row)| row[..2] == [4096.0, 500.0]), "{rows:?}");
}

#[test]
fn model_is_printed_beside_the_measurement() {
    let flags = ["--policy", "always,batch:10", "--count", "2000", "--keys", "1000", "--blocking"];
    let figures = figures(&flags);
    let benches: Vec<_> = figures.iter().map(|figure| figure["bench"].as_str().unwrap()).collect();
    assert_eq!(benches, ["kv/put", "kv/put", "kv/model", "kv/model"]);
    for (put, model) in figures[..2].iter().zip(&figures[2..]) {
        assert_eq!(put["params"]["policy"], model["params"]["policy"]);
        let n = number(model, "puts_per_sync");
        let predicted = 1e6 / (number(model, "t_write_us") + number(model, "t_fsync_us") / n);
        assert!((number(model, "predicted_per_s") / predicted - 1.0).abs() < 0.01, "{model}");
        let measured = number(model, "measured_per_s");
        assert!((measured / number(put, "ops_per_s") - 1.0).abs() < 0.01, "{model}");
        let error = (predicted / measured - 1.0) * 100.0;
        assert!((number(model, "error_percent") - error).abs() < 1.0, "{model}");
        assert_eq!(model["p99_slow_path_predicted"], true);
        assert!(model["p99_slow_path_measured"].is_boolean());
        assert_eq!(put["params"]["latency_of_every"], 1);
    }
}

/// Bug: a model was fitted to runs of a few syncs, and printed as if it said something.
#[test]
fn no_model_is_fitted_to_runs_that_are_too_short() {
    let flags = ["--policy", "always,batch:100", "--count", "500", "--keys", "100"];
    let short = ["no model was fitted: batch:100 had ", "--count"];
    for form in [&["--csv"][..], &["--json", "--blocking"], &["--blocking"]] {
        let ended = kv_bench(&[&flags[..], form].concat()).ok();
        for said in short {
            assert!(ended.err.contains(said), "{form:?}: {}", ended.err);
        }
        for printed in ["T_write", "kv/model"] {
            assert!(!ended.err.contains(printed) && !ended.text().contains(printed), "{form:?}");
        }
    }
}

#[test]
fn figures_name_the_machine() {
    let figures = figures(&["--count", "10", "--keys", "10"]);
    let here = &figures[0]["environment"];
    let keys =
        ["cpu", "cores", "file_system", "mount_options", "os", "kernel", "compiler", "build"];
    for key in keys {
        assert!(!here[key].is_null(), "{key} of {here}");
    }
    assert!(!here["disk"]["device"].is_null(), "{here}");
    let text = kv_bench(&["--count", "10", "--keys", "10"]).ok();
    for line in ["cpu:", "disk:", "file system:", "system:", "compiler:"] {
        assert!(text.text().contains(line), "{}", text.text());
    }
}

#[test]
fn cold_reads_are_compared_with_those_of_the_device() {
    let flags = ["--what", "get,scan", "--cold", "--writers", "4", "--keys", "50000"];
    let figures = figures(&[&flags[..], &["--seconds", "0.3"]].concat());
    assert_eq!(figures.len(), 2);
    for figure in &figures {
        assert_eq!(figure["verified"], true);
        assert!(number(&figure["floor"], "random_read_per_s") > 0.0, "{figure}");
        assert!(number(&figure["ratio"], "ops_to_random_read") > 0.0, "{figure}");
        assert!(number(&figure["params"], "cache_bytes") <= 1_048_576.0, "{figure}");
        assert_eq!(figure["params"]["cold"], true);
        assert_eq!(figure["params"]["random_read_bytes"], 4096);
    }
    // Tasks would wait for one another's reads.
    assert_eq!(figures[0]["params"]["callers"], "threads");
}

#[test]
fn slow_disks_are_emulated_for_the_store_and_its_floor() {
    for (name, sync_us) in [("hdd", 8000.0), ("sata", 700.0)] {
        let figures = figures(&["--slow-disk", name, "--count", "20", "--keys", "20"]);
        let put = &figures[0];
        assert_eq!(put["params"]["slow_disk"], name);
        assert_eq!(put["environment"]["disk"]["emulated"], name);
        assert!(number(put, "p50_us") >= sync_us, "{put}");
        assert!(number(&put["floor"], "sync_p50_us") >= sync_us, "{put}");
    }
}

#[test]
fn flags_that_contradict_are_refused() {
    for (words, named) in [
        (&["--csv", "--json"][..], "--json"),
        (&["--csv", "--what", "get"], "--what"),
        (&["--cold"], "--what get"),
        (&["--policy", "always,os", "--keep"], "--keep"),
        (&["--policy", "batch:0"], "batch:N"),
        (&["--slow-disk", "tape"], "tape"),
    ] {
        let ended = kv_bench(words).exits(2);
        assert!(ended.err.contains(named), "{words:?}: {}", ended.err);
    }
}
