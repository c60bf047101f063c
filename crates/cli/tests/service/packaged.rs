//! The files of `packaging/` name what there is: alerts, metrics, settings.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::client::{Protocol, get};
use crate::esker::{command, run};
use crate::lines::{ANY_PORT, NodeProcess, serve, until_timestamps};

const PAGE: &str = include_str!("../../../../docs/src/service-troubleshooting.md");
const PAGE_NAME: &str = "service-troubleshooting.md";
const SECURITY: &str = include_str!("../../../../docs/src/service-security.md");
const ALERTS: &str = include_str!("../../../../packaging/prometheus/alerts.yml");
const ALERT_TESTS: &str = include_str!("../../../../packaging/prometheus/alerts_test.yml");
const DASHBOARD: &str = include_str!("../../../../packaging/grafana/esker.json");
const SETTINGS: &str = include_str!("../../../../packaging/esker.toml");

/// The metrics of an alert, and the sections that say what to do.
#[derive(Debug, Default, PartialEq, Eq)]
struct AlertRow {
    metrics: BTreeSet<String>,
    sections: BTreeSet<String>,
}

/// The names of metrics in `text`.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_separator = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let names = text.split(is_separator).map(|name| name.trim_end_matches("_bucket"));
    let is_metric = |name: &&str| {
        *name == "up" || ["esker_", "process_"].iter().any(|prefix| name.starts_with(prefix))
    };
    names.filter(is_metric).map(str::to_owned).collect()
}

/// The rows of the table of alerts, by their first cells.
fn rows_of_page() -> BTreeMap<String, AlertRow> {
    let (_, table) = PAGE.split_once("\n| alert | when | go to |\n|---|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let links = cells[2].split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        let with_page = |link: &str| match link.starts_with('#') {
            true => format!("{PAGE_NAME}{link}"),
            false => link.to_owned(),
        };
        let sections = links.map(with_page).collect();
        (cells[0].to_owned(), AlertRow { metrics: metrics(cells[1]), sections })
    };
    rows.map(row).collect()
}

/// The rules, by their summaries; several may have one.
fn rows_of_rules() -> BTreeMap<String, AlertRow> {
    let mut rows = BTreeMap::<_, AlertRow>::new();
    for rule in ALERTS.split("      - alert: ").skip(1) {
        let field = |name: &str| rule.split_once(&format!("\n          {name}: ")).unwrap().1;
        let summary = field("summary").lines().next().unwrap().to_owned();
        let (_, expression) = rule.split_once("\n        expr: ").unwrap();
        let expression = expression.split("\n        labels:").next().unwrap();
        let row = rows.entry(summary).or_default();
        row.metrics.extend(metrics(expression));
        let chapter = field("chapter").lines().next().unwrap();
        row.sections.insert(chapter.to_owned());
    }
    rows
}

#[test]
fn the_alerts_of_the_page_are_those_of_the_rules() {
    let (page, rules) = (rows_of_page(), rows_of_rules());
    assert_eq!(page.keys().collect::<Vec<_>>(), rules.keys().collect::<Vec<_>>());
    for (summary, rule) in &rules {
        let row = &page[summary];
        let missing: Vec<_> = row.metrics.difference(&rule.metrics).collect();
        assert!(missing.is_empty(), "{summary}: the rule lacks {missing:?}");
        assert!(rule.sections.is_subset(&row.sections), "{summary}: {:?}", rule.sections);
        assert!(rule.sections.iter().all(|section| has_heading(section)), "{:?}", rule.sections);
    }
    // Each has a test in which it fires.
    for alert in ALERTS.split("      - alert: ").skip(1).map(|rest| rest.lines().next().unwrap()) {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        assert!(ALERT_TESTS.contains(&fires), "{alert}");
    }
}

/// Whether the page of `page.md#anchor` has the heading that the anchor is made from.
fn has_heading(section: &str) -> bool {
    let (page, anchor) = section.split_once('#').unwrap();
    let page = match page {
        PAGE_NAME => PAGE,
        "service-security.md" => SECURITY,
        other => panic!("no page of alerts: {other}"),
    };
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let kept = |c: char| c.is_alphanumeric() || c == ' ' || c == '-';
    let anchor_of = |line: &str| {
        let text: String =
            line.trim_start_matches('#').trim().chars().filter(|c| kept(*c)).collect();
        text.to_lowercase().replace(' ', "-")
    };
    headings.into_iter().any(|line| anchor_of(line) == anchor)
}

/// A node with certificates, so that it has the metrics of those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_of_alerts_and_dashboard_are_those_of_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut certs = command(&["cluster", "certs", "certs", "--nodes", "1=127.0.0.1"]);
    certs.current_dir(&dir);
    run(certs, b"").ok();
    let mut started = serve(&ANY_PORT);
    let own = dir.path().join("certs/node-1");
    for (flag, file) in [("--peer-ca", "ca.pem"), ("--peer-cert", "cert.pem")] {
        started.arg(flag).arg(own.join(file));
    }
    started.arg("--peer-key").arg(own.join("key.pem"));
    let mut node = NodeProcess::start(started.current_dir(&dir));
    let address = node.answers();
    until_timestamps(&address).await;
    let answer = get(Protocol::Http1, &address, "/metrics").await;
    let mut has = metrics(answer.text());
    // Prometheus has that of itself.
    has.insert("up".into());
    for (file, text) in [("alerts.yml", ALERTS), ("esker.json", DASHBOARD)] {
        let named = metrics(text);
        assert!(named.len() > 10, "{named:?}");
        let unknown: Vec<_> = named.difference(&has).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    node.stop();
}

/// The standard error of a node that ends with status 2 because of `--listen`, if not of its file.
fn refused(file: &Path, text: &str) -> String {
    fs::write(file, text).unwrap();
    let mut serve = serve(&["--listen", "nowhere", "--config"]);
    serve.arg(file);
    run(serve, b"").exits(2).err.clone()
}

/// As it is, it says nothing, and without the marks of comments all of it is valid.
#[test]
fn the_settings_of_the_packages_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("esker.toml");
    let settings = SETTINGS.lines().filter_map(|line| line.strip_prefix('#'));
    let settings = settings.filter(|line| !line.is_empty() && !line.starts_with(' '));
    let settings: Vec<_> = settings.collect();
    assert!(settings.len() > 5, "{settings:?}");
    for text in [SETTINGS.to_owned(), settings.join("\n") + "\n"] {
        let printed = refused(&file, &text);
        assert!(printed.contains("--listen"), "{printed}");
    }
    let printed = refused(&file, &(settings.join("\n") + "\nno_setting = 1\n"));
    assert!(printed.contains("unknown key `no_setting`"), "{printed}");
    assert!(SETTINGS.lines().all(|line| line.is_empty() || line.starts_with('#')));
}

/// The keys that the chart writes are those of the file.
#[test]
fn the_settings_of_the_chart_are_known() {
    let chart = include_str!("../../../../packaging/helm/esker/templates/configmap.yaml");
    let dir = tempfile::tempdir().unwrap();
    let keys = chart.lines().filter_map(|line| line.trim().split_once(" = ").map(|(key, _)| key));
    let keys: BTreeSet<_> = keys.filter(|key| !key.starts_with('{')).collect();
    assert!(keys.len() > 10, "{keys:?}");
    for key in keys {
        // No key takes an empty list, and one that is not known is another error.
        let file = dir.path().join("esker.toml");
        fs::write(&file, format!("{key} = []\n")).unwrap();
        let serve = serve(&["--config", file.to_str().unwrap()]);
        let printed = run(serve, b"").exits(2).err;
        assert!(!printed.contains("unknown key"), "{printed}");
    }
}
