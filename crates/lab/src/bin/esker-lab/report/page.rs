//! The page of the report.

use std::fmt::Write;

use serde_json::Value;

use super::charts::{self, Crash, Loss, Point, escaped, short, time};

const STYLE: &str = "body{font-family:sans-serif;max-width:900px;margin:2em auto;color:#222}\
table{border-collapse:collapse;font-size:13px}td,th{padding:3px 9px;text-align:right;\
border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
.bad{color:#b03030;font-weight:bold}p,small{line-height:1.5}";

/// The page with what these lines have.
pub fn html(lines: &[Value]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Esker: crash report</title>\
         <style>{STYLE}</style><h1>Crash report</h1>"
    );
    let of = |bench: &str| lines.iter().filter(|line| line["bench"] == bench).collect::<Vec<_>>();
    let (puts, models) = (of("kv/put"), of("kv/model"));
    let crashed: Vec<_> = lines.iter().filter(|line| line["face"].is_string()).collect();
    environments(&mut page, &puts);
    throughput(&mut page, &puts);
    latencies(&mut page, &puts);
    model(&mut page, &models);
    crashes(&mut page, &crashed);
    page + "</html>\n"
}

fn number(line: &Value, key: &str) -> f64 {
    key.split('.').fold(line, |value, part| &value[part]).as_f64().unwrap_or(0.0)
}

fn word(line: &Value, key: &str) -> String {
    let value = key.split('.').fold(line, |value, part| &value[part]);
    escaped(value.as_str().unwrap_or("?"))
}

fn policy(line: &Value) -> String {
    word(line, "params.policy")
}

/// The machine on which a figure was measured.
fn place(line: &Value) -> String {
    let system = word(line, "environment.file_system");
    match line["environment"]["disk"]["emulated"].as_str() {
        Some(emulated) => format!("{system}, {} (emulated)", escaped(emulated)),
        None => system,
    }
}

/// The places of these figures, each once, in order.
fn places(puts: &[&Value]) -> Vec<String> {
    let mut places = Vec::new();
    for put in puts {
        let place = place(put);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn environments(page: &mut String, puts: &[&Value]) {
    let mut all: Vec<String> = Vec::new();
    for put in puts {
        let text = format!(
            "<p>{} with {} cores, {}, kernel {}; {}. Puts of {} bytes, {} at a time.</p>",
            word(put, "environment.cpu"),
            number(put, "environment.cores"),
            word(put, "environment.os"),
            word(put, "environment.kernel"),
            word(put, "environment.compiler"),
            number(put, "params.size"),
            number(put, "params.writers"),
        );
        if !all.contains(&text) {
            all.push(text);
        }
    }
    page.push_str(&all.concat());
}

fn throughput(page: &mut String, puts: &[&Value]) {
    if puts.is_empty() {
        return;
    }
    let places = places(puts);
    let points: Vec<_> = puts
        .iter()
        .map(|put| Point {
            name: put["params"]["policy"].as_str().unwrap_or("?").to_owned(),
            group: places.iter().position(|known| *known == place(put)).unwrap_or(0),
            per_s: number(put, "ops_per_s"),
            loss: loss(put),
        })
        .collect();
    page.push_str("<h2>Throughput against what a crash may lose</h2><p>");
    for (n, place) in places.iter().enumerate() {
        let _ = write!(page, "<span style=\"color:{}\">&#9679; {place}</span> ", charts::color(n));
    }
    let _ = write!(
        page,
        "</p>{}<p><small>Across: what a crash may lose, as a time at the measured rate: 2n - 1 puts \
         of batch:n, the period and one sync of periodic:t. The last sync is part of the rate.\
         </small></p>",
        charts::throughput(&points)
    );
    page.push_str(
        "<table><tr><th>policy</th><th>on</th><th>puts/s</th><th>a crash may lose</th><th>p50</th>\
         <th>p99</th><th>p99.9</th><th>max</th><th>syncs</th><th>floor: sync</th></tr>",
    );
    for put in puts {
        let loss = match loss(put) {
            Loss::Ms(ms) => time(ms * 1e3),
            Loss::Everything => "everything".to_owned(),
            Loss::Nothing => "nothing".to_owned(),
        };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{loss}</td>",
            policy(put),
            place(put),
            short(number(put, "ops_per_s"))
        );
        for key in ["p50_us", "p99_us", "p999_us", "max_us"] {
            let _ = write!(page, "<td>{}</td>", time(number(put, key)));
        }
        let floor = time(number(put, "floor.sync_p50_us"));
        let syncs = number(put, "params.syncs");
        let _ = write!(page, "<td>{syncs}</td><td>{floor}</td></tr>");
    }
    page.push_str("</table>");
}

/// The largest loss at a crash: a time at the measured rate.
fn loss(put: &Value) -> Loss {
    let per_ms = number(put, "ops_per_s").max(1e-9) / 1e3;
    let sync_ms = number(put, "floor.sync_p50_us") / 1e3;
    let policy = put["params"]["policy"].as_str().unwrap_or_default();
    match policy.split_once(':') {
        Some(("batch", n)) => Loss::Ms((2.0 * n.parse().unwrap_or(1.0) - 1.0) / per_ms),
        Some(("periodic", ms)) => Loss::Ms(ms.parse().unwrap_or(0.0) + sync_ms),
        _ if policy == "os" => Loss::Everything,
        _ => Loss::Nothing,
    }
}

fn latencies(page: &mut String, puts: &[&Value]) {
    let has_bars = |put: &&&Value| put["latency_histogram"].is_array();
    if !puts.iter().any(|put| has_bars(&put)) {
        return;
    }
    page.push_str(
        "<h2>Latencies of puts</h2><p><small>Counts are on a scale of powers of ten.</small></p>",
    );
    for put in puts.iter().filter(has_bars) {
        let bars: Vec<_> = put["latency_histogram"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|bar| (bar[0].as_f64().unwrap_or(0.0), bar[1].as_f64().unwrap_or(0.0)))
            .collect();
        let (policy, place, bars) = (policy(put), place(put), charts::histogram(&bars));
        let _ = write!(page, "<h3>{policy} <small>{place}</small></h3>{bars}");
    }
}

fn model(page: &mut String, models: &[&Value]) {
    if models.is_empty() {
        return;
    }
    page.push_str(
        "<h2>The model beside the measurement</h2><p>throughput = 1 / (T_write + T_fsync / N)</p>\
         <table><tr><th>policy</th><th>N</th><th>T_write</th><th>T_fsync</th><th>predicted/s</th>\
         <th>measured/s</th><th>error</th></tr>",
    );
    for line in models {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:+.1} %</td></tr>",
            policy(line),
            number(line, "puts_per_sync"),
            time(number(line, "t_write_us")),
            time(number(line, "t_fsync_us")),
            short(number(line, "predicted_per_s")),
            short(number(line, "measured_per_s")),
            number(line, "error_percent"),
        );
    }
    page.push_str("</table>");
}

fn crashes(page: &mut String, crashed: &[&Value]) {
    if crashed.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Crashes</h2><table><tr><th>component</th><th>instrument</th><th>policy</th><th>runs</th>\
         <th>cuts</th><th>violations</th><th>loss promised</th><th>loss seen</th><th>avg durable</th>\
         <th>avg recovered</th><th>avg lost</th><th>max lost</th></tr>",
    );
    for row in crashed {
        let unit = if row["loss_unit"] == "ms" { " ms" } else { "" };
        let promised = match row["loss_promised"].as_u64() {
            Some(promised) => format!("{promised}{unit}"),
            None => "-".to_owned(),
        };
        // Some instruments only say whether a promise was kept.
        let counted = |key: &str, unit: &str| match row["recoveries"].as_u64() {
            Some(0) => "-".to_owned(),
            _ => format!("{}{unit}", number(row, key)),
        };
        let violations = number(row, "violations");
        let class = if violations > 0.0 { " class=\"bad\"" } else { "" };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td{class}>{violations}</td>\
             <td>{promised}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            word(row, "face"),
            word(row, "instrument"),
            word(row, "policy"),
            number(row, "runs"),
            number(row, "cuts"),
            counted("loss_seen", unit),
            counted("avg_durable", ""),
            counted("avg_recovered", ""),
            counted("avg_lost", ""),
            counted("max_lost", ""),
        );
    }
    page.push_str("</table>");
    let each = |row: &&&Value| row["each"].as_array().is_some_and(|each| !each.is_empty());
    if !crashed.iter().any(|row| each(&row)) {
        return;
    }
    page.push_str(
        "<h2>What each crash left</h2><p><span style=\"color:#2068a8\">&#9632; durable</span> \
         <span style=\"color:#9cc3e0\">&#9632; also recovered</span> \
         <span style=\"color:#e2b6b6\">&#9632; accepted and lost</span> \
         <span style=\"color:#d00000\">&#9632; durable and lost</span></p>",
    );
    for row in crashed.iter().filter(each) {
        let number = |crash: &Value, n: usize| crash[n].as_f64().unwrap_or(0.0);
        let crashes: Vec<_> = row["each"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|crash| Crash {
                accepted: number(crash, 1),
                durable: number(crash, 2),
                recovered: number(crash, 3),
            })
            .collect();
        let (face, policy) = (word(row, "face"), word(row, "policy"));
        let (instrument, bars) = (word(row, "instrument"), charts::survival(&crashes));
        let _ = write!(page, "<h3>{face} {policy} <small>{instrument}</small></h3>{bars}");
    }
}
