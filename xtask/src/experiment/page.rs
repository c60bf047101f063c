//! The tables of the page: each is between two comments, `generated: NAME` and `end`.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::file_systems::FILE_SYSTEMS;
use super::results::{Figure, Results};

/// The sets with a table of their own, and what they are.
const OTHERS: [(&str, &str); 3] =
    [("4096", "4 KiB"), ("sata", "SATA SSD, emulated"), ("hdd", "hard disk, emulated")];
/// The share of the disk's bandwidth above which a run is bound by it.
const BANDWIDTH_BOUND: f64 = 0.5;

/// The page with its tables written from the results.
pub fn filled(page: &str, results: &Results) -> Result<String> {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, name_and_rest)) = rest.split_once("<!-- generated: ") {
        let (name, body) = name_and_rest.split_once(" -->").context("an open comment")?;
        let (_, after) = body.split_once("<!-- end -->").with_context(|| format!("{name} ends"))?;
        let table = table(name, results)?;
        let _ = write!(text, "{before}<!-- generated: {name} -->\n\n{table}\n<!-- end -->");
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

fn table(name: &str, results: &Results) -> Result<String> {
    match name {
        "environment" => environment(results),
        "measured" => measured(results),
        "model" => model(results),
        "others" => others(results),
        "file systems" => file_systems(results),
        "group" => group(results),
        "observations" => observations(results),
        _ => bail!("no table {name}"),
    }
}

fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn head(columns: &str) -> String {
    let rule: Vec<_> = columns.split(" | ").map(|_| "---").collect();
    format!("| {columns} |\n|{}|\n", rule.join("|"))
}

/// Formats a number with a comma between thousands, and no more than three digits that mean
/// something below 100.
pub fn count(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} µs"),
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

fn loss(figure: Figure<'_>) -> Result<String> {
    let loss = figure.loss()?;
    Ok(match figure.policy().split_once(':') {
        Some(("batch", _)) => format!("{} records, {}", count(loss.records), time(loss.ms * 1e3)),
        Some(_) => format!("{}, {} records", time(loss.ms * 1e3), count(loss.records)),
        None => "nothing".into(),
    })
}

fn environment(results: &Results) -> Result<String> {
    let figure = results.put("128", "always")?;
    let here = &figure.0["environment"];
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "not reported".into(),
        other => other.to_string(),
    };
    let mut table = head("what | here");
    let mut put = |name: &str, value: String| row(&mut table, &[name.into(), value]);
    put("processor", format!("{}, {} cores", text(&here["cpu"]), here["cores"]));
    put("memory", format!("{} GB", here["memory_gb"]));
    put("disk", format!("{}, {}", text(&here["disk"]["device"]), text(&here["disk"]["model"])));
    put("rated speeds of the disk", "not known: the disk is virtual".into());
    put("file system", format!("{}, {}", text(&here["file_system"]), text(&here["mount_options"])));
    put("system", format!("{}, kernel {}", text(&here["os"]), text(&here["kernel"])));
    put("compiler", format!("{}, {} build", text(&here["compiler"]), text(&here["build"])));
    let dsync = figure.0["params"]["dsync"] == true;
    let sync = if dsync { "a direct write with O_DSYNC" } else { "a write and fdatasync" };
    put("a sync is", sync.into());
    for (name, key, unit) in [
        ("floor: overwrite 4 KiB and sync", "floor.sync_p50_us", "µs"),
        ("floor: append 4 KiB and sync", "floor.append_sync_p50_us", "µs"),
        ("floor: direct sequential write", "floor.seq_mb_per_s", "MB/s"),
    ] {
        put(name, format!("{} {unit}", count(figure.number(key)?)));
    }
    let change = format!("{} x, of {} runs", figure.number("floor_change")?, figure.0["attempts"]);
    put("slowest to fastest sample of the floor's sync", change);
    Ok(table)
}

const LATENCIES: [&str; 4] = ["p50_us", "p99_us", "p999_us", "max_us"];

fn latencies(figure: Figure<'_>) -> Result<Vec<String>> {
    LATENCIES.iter().map(|key| Ok(time(figure.number(key)?))).collect()
}

fn measured(results: &Results) -> Result<String> {
    let always = results.put("128", "always")?.per_s()?;
    let mut table =
        head("policy | a crash may lose | puts/s | to `always` | p50 | p99 | p99.9 | max | syncs");
    for figure in results.figures("128", "kv/put") {
        let mut cells = vec![
            format!("`{}`", figure.policy()),
            loss(figure)?,
            count(figure.per_s()?),
            format!("{} x", count(figure.per_s()? / always)),
        ];
        cells.extend(latencies(figure)?);
        cells.push(count(figure.number("params.syncs")?));
        row(&mut table, &cells);
    }
    let first = results.put("128", "always")?;
    let change = first.number("floor_change")?;
    let _ = write!(
        table,
        "\nFloor of this run: overwriting 4 KiB and a sync take {}; the slowest sample took {change} x the \
         fastest.\n",
        floor(first)?
    );
    Ok(table)
}

/// The sync of the floor, measured in the same run.
fn floor(figure: Figure<'_>) -> Result<String> {
    Ok(time(figure.number("floor.sync_p50_us")?))
}

fn model(results: &Results) -> Result<String> {
    let first = results.model("128", "always")?;
    let fitted = first.0["fitted_to"].as_array().context("fitted_to")?;
    let fitted: Vec<_> =
        fitted.iter().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
    let (write, sync) = (first.number("t_write_us")?, first.number("t_fsync_us")?);
    let mut table = format!(
        "T_write is {}, T_fsync is {}: the least sum of squared relative errors over\n{}.\n\n",
        time(write),
        time(sync),
        fitted.join(", ")
    );
    table.push_str(&head(
        "policy | N | predicted puts/s | measured puts/s | error | p99 waits for a sync: predicted | \
         measured | puts that wait",
    ));
    for figure in results.figures("128", "kv/model") {
        let yes = |key| if figure.is(key) { "yes" } else { "no" }.to_owned();
        row(
            &mut table,
            &[
                format!("`{}`", figure.policy()),
                count(figure.number("puts_per_sync")?),
                count(figure.number("predicted_per_s")?),
                count(figure.number("measured_per_s")?),
                format!("{:+.0} %", figure.number("error_percent")?),
                yes("p99_slow_path_predicted"),
                yes("p99_slow_path_measured"),
                format!("{:.3} %", figure.number("slow_part")? * 100.0),
            ],
        );
    }
    Ok(table)
}

fn others(results: &Results) -> Result<String> {
    let mut table = head(
        "run | policy | puts/s | to `always` | MB/s | p50 | p99 | p99.9 | max | error of the model | \
         floor: a sync",
    );
    for (set, name) in OTHERS {
        let always = results.put(set, "always")?.per_s()?;
        for figure in results.figures(set, "kv/put") {
            let model = results.model(set, figure.policy())?;
            let mut cells = vec![
                name.into(),
                format!("`{}`", figure.policy()),
                count(figure.per_s()?),
                format!("{} x", count(figure.per_s()? / always)),
                count(figure.number("mb_per_s")?),
            ];
            cells.extend(latencies(figure)?);
            cells.push(format!("{:+.0} %", model.number("error_percent")?));
            cells.push(floor(figure)?);
            row(&mut table, &cells);
        }
    }
    Ok(table)
}

fn file_systems(results: &Results) -> Result<String> {
    let mut table = head(
        "file system | policy | puts/s | to `always` | p50 | p99 | p99.9 | max | floor: a sync",
    );
    for set in FILE_SYSTEMS {
        let figures = results.figures(set, "kv/put");
        if figures.is_empty() {
            continue;
        }
        let always = results.put(set, "always")?.per_s()?;
        for figure in figures {
            let mut cells = vec![
                set.into(),
                format!("`{}`", figure.policy()),
                count(figure.per_s()?),
                format!("{} x", count(figure.per_s()? / always)),
            ];
            cells.extend(latencies(figure)?);
            cells.push(floor(figure)?);
            row(&mut table, &cells);
        }
    }
    Ok(table)
}

fn group(results: &Results) -> Result<String> {
    let mut table =
        head("callers | puts/s | p50 | p99 | p99.9 | max | puts for each sync | floor: a sync");
    for figure in results.figures("group", "kv/put") {
        let mut cells = vec![count_of_callers(figure)?, count(figure.per_s()?)];
        cells.extend(latencies(figure)?);
        cells.push(count(figure.number("ops")? / figure.number("params.syncs")?));
        cells.push(floor(figure)?);
        row(&mut table, &cells);
    }
    Ok(table)
}

fn count_of_callers(figure: Figure<'_>) -> Result<String> {
    Ok(format!("{}", figure.number("params.writers")?))
}

fn observations(results: &Results) -> Result<String> {
    let mut table = head("observation | Mini-KV | here | verdict");
    observe_policies(results, &mut table)?;
    observe_rates(results, &mut table)?;
    Ok(table)
}

fn add(table: &mut String, what: &str, seed: &str, here: String, holds: bool) {
    let verdict = if holds { "reproduced" } else { "refuted here" };
    row(table, &[what.into(), seed.into(), here, verdict.into()]);
}

/// The effect of batches and periods on latencies and throughput.
fn observe_policies(results: &Results, table: &mut String) -> Result<()> {
    let put = |policy: &str| results.put("128", policy);
    let model = results.model("128", "always")?;
    let (write, sync) = (model.number("t_write_us")?, model.number("t_fsync_us")?);
    let here = format!("{} against {}", time(sync), time(write));
    add(table, "The sync dominates a write.", "276 µs against 1.5 µs", here, sync > 10.0 * write);

    let hundred = results.model("128", "batch:100")?;
    let slow = hundred.number("slow_part")?;
    let (p50, p99) = (hundred.number("p50_us")?, hundred.number("p99_us")?);
    let here =
        format!("p50 {}, p99 {}; {:.2} % wait for a sync", time(p50), time(p99), slow * 100.0);
    let bimodal = hundred.is("p99_slow_path_measured");
    add(
        table,
        "Batches of 100 make latency bimodal: 99 % fast, 1 % a sync.",
        "1.6 µs, 292 µs",
        here,
        bimodal,
    );

    let (small, large) = (put("batch:100")?, put("batch:1000")?);
    let of_small = small.per_s()? / large.per_s()?;
    let here = format!("batch 100 has {:.0} % of the rate of batch 1000", of_small * 100.0);
    add(table, "Small batches lose throughput.", "45 %", here, of_small < 0.8);

    let (p99, p999, max) =
        (large.number("p99_us")?, large.number("p999_us")?, large.number("max_us")?);
    let here = format!("p99 {}, p99.9 {}, max {}", time(p99), time(p999), time(max));
    add(table, "Large batches hide the stall above p99.", "p99 6 µs", here, max > 10.0 * p99);

    let tens = put("periodic:10")?;
    let (p99, max) = (tens.number("p99_us")?, tens.number("max_us")?);
    let here = format!("p99 {}, but max {}", time(p99), time(max));
    add(
        table,
        "A period looks flat: the stalls are above p99.9.",
        "p99 12 µs, no maximum",
        here,
        max > 10.0 * p99,
    );
    Ok(())
}

/// The effect of the build, the size of records and the policy on the rate.
fn observe_rates(results: &Results, table: &mut String) -> Result<()> {
    let put = |policy: &str| results.put("128", policy);
    let large = put("batch:1000")?;
    let debug = results.put("debug", "batch:1000")?;
    let gain = large.per_s()? / debug.per_s()? - 1.0;
    let here = format!("{:+.0} %; Esker's debug build is optimized, too", gain * 100.0);
    add(table, "A release build is faster, at batch 1000.", "+49 %", here, gain > 0.1);

    let share = |set: &str| {
        let figure = results.put(set, "batch:1000")?;
        let (mb, seq) = (figure.number("mb_per_s")?, figure.number("floor.seq_mb_per_s")?);
        Ok::<_, anyhow::Error>((mb, mb / seq))
    };
    let (mb, part) = share("128")?;
    let here = format!("{} MB/s, {:.1} % of the disk", count(mb), part * 100.0);
    add(
        table,
        "128 bytes are bound by latency.",
        "47.8 MB/s, 1 % of the disk",
        here,
        part < BANDWIDTH_BOUND,
    );
    let (mb, part) = share("4096")?;
    let here = format!("{} MB/s, {:.1} % of the disk", count(mb), part * 100.0);
    add(table, "4 KiB may be bound by bandwidth.", "not measured", here, part > BANDWIDTH_BOUND);

    let times = put("periodic:100")?.per_s()? / put("always")?.per_s()?;
    let here = format!("{} x", count(times));
    add(
        table,
        "100 ms of durability buy about 110 x.",
        "106.5 x in its table",
        here,
        (80.0..140.0).contains(&times),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_times_have_units() {
        let texts = [count(1_234_567.8), count(999.6), count(1.25), time(0.5), time(12_345.0)];
        assert_eq!(texts, ["1,234,568", "1,000", "1.2", "0.50 µs", "12 ms"]);
    }

    #[test]
    fn a_table_that_is_unknown_or_has_no_end_is_an_error() {
        let results = Results::parse("").unwrap();
        assert!(filled("<!-- generated: other -->\n<!-- end -->", &results).is_err());
        assert!(filled("<!-- generated: model -->\n", &results).is_err());
        assert_eq!(filled("text", &results).unwrap(), "text");
    }
}
