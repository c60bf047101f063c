//! Bug: the benchmark kept a latency histogram for each caller. At 2,000 callers that was 200 MB
//! and a quarter of the CPU, and the figures fell to half: the benchmark measured its own cache
//! misses.
#![allow(clippy::unwrap_used)]

use serde_json::Value;

use crate::esker::{command, run, workdir};

fn bench(writers: &str) -> Value {
    let (_guard, dir) = workdir();
    let mut bench = command(&["log", "--json", "--no-disk", "--size", "100"]);
    bench.args(["--writers", writers, "--seconds", "0.4", "--dir"]).arg(dir);
    run(bench, b"").ok().json()
}

/// A caller takes the memory of its task, its record and its place among those that wait: some
/// kilobytes.
#[test]
fn benchmark_memory_hardly_grows_with_callers() {
    let (few, many) = (bench("50"), bench("4000"));
    let rss = |figure: &Value| figure["rss_mb"].as_f64().unwrap();
    let each = (rss(&many) - rss(&few)) * 1e6 / 3950.0;
    assert!(each < 16e3, "{each} bytes a caller");
    for figure in [few, many] {
        let latency = |key: &str| figure[key].as_f64().unwrap();
        assert!(0.0 < latency("p50_us") && latency("p50_us") <= latency("p99_us"), "{figure}");
        assert!(latency("p99_us") <= latency("max_us"), "{figure}");
    }
}
