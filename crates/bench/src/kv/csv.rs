//! The CSV of the experiment: its columns, and Esker's after them.

use esker_kv::Policy;

use super::store_callers::TimedPart;

/// The line above the policies.
pub const HEADER: &str = "mode,record_size,count,total_time_ms,throughput,p50_ns,p99_ns,p999_ns,\
max_ns,fsyncs,total_with_sync_ms";

/// The line of a policy, without a newline. The throughput includes the last sync.
pub fn row(policy: Policy, record_size: u32, timed: &TimedPart) -> String {
    let TimedPart { ops, time, before_last_sync, latencies, syncs, .. } = timed;
    let quantile = |share| latencies.quantile_ns(share);
    format!(
        "{},{record_size},{ops},{:.3},{:.1},{},{},{},{},{syncs},{:.3}",
        mode(policy),
        before_last_sync.as_secs_f64() * 1e3,
        *ops as f64 / time.as_secs_f64().max(1e-9),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        latencies.max_ns(),
        time.as_secs_f64() * 1e3,
    )
}

/// The name of a policy without a character that CSV gives a meaning.
pub fn mode(policy: Policy) -> String {
    match policy {
        Policy::Always => "always".into(),
        Policy::Batch(n) => format!("batch_{n}"),
        Policy::Periodic(period) => format!("periodic_{}ms", period.as_millis()),
        _ => "os".into(),
    }
}
