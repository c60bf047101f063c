//! Checks of the files in `packaging/` by the tools that read them. A tool that this machine lacks
//! is a line that begins with SKIPPED.

mod commands;
mod unit;

use std::path::Path;

use anyhow::{Context, Result};

use crate::dist::tools;
use commands::{first_fault, output};

/// A check by one tool.
struct Check {
    name: &'static str,
    tool: &'static str,
    /// How the tool gets to a machine.
    origin: &'static str,
    /// Returns what is wrong, if anything is.
    run: fn(packaging: &Path) -> Result<Option<String>>,
}

const CHECKS: [Check; 5] = [
    Check {
        name: "alerts",
        tool: "promtool",
        origin: "the Debian package prometheus",
        run: check_alerts,
    },
    Check {
        name: "chart",
        tool: "helm",
        origin: "go install helm.sh/helm/v3/cmd/helm@latest",
        run: check_chart,
    },
    Check {
        name: "unit",
        tool: "systemd-analyze",
        origin: "the Debian package systemd",
        run: unit::check,
    },
    Check {
        name: "unit, exposure",
        tool: "systemd-analyze",
        origin: "the Debian package systemd",
        run: unit::check_exposure,
    },
    Check { name: "scripts", tool: "sh", origin: "any shell", run: check_scripts },
];

/// Settings of the chart that are rendered, beside those that it has.
const CHART_SETTINGS: [&str; 4] = [
    "replicas=3",
    "replicas=1",
    "peers.plain=true,tls.plain=true,tls.secretName=,adminTokenSecret=token",
    "tls.clientCertificates=true,nodeIds.2=102,settings.rtt_ms=20",
];
/// Settings that the chart refuses: no node would start, or none could join.
const CHART_REFUSALS: [&str; 4] = [
    "tls.secretName=",
    "tls.secretName=,tls.plain=true,tls.clientCertificates=true",
    "peers.plain=true,tls.plain=true",
    "peers.plain=true,adminTokenSecret=token",
];
const CHART: &str = "helm/esker";
/// The version of Kubernetes for which the chart is rendered.
const KUBERNETES: &str = "--kube-version=1.30.0";

/// Runs all checks; `false` if one of them failed.
pub fn run(root: &Path) -> Result<bool> {
    let mut passed = true;
    for check in &CHECKS {
        if !tools::is_installed(check.tool) {
            println!("SKIPPED {}: no {}; {}", check.name, check.tool, check.origin);
            continue;
        }
        match (check.run)(&root.join("packaging")).with_context(|| check.name)? {
            None => println!("ok      {}", check.name),
            Some(wrong) => {
                passed = false;
                println!("FAILED  {}\n{}", check.name, wrong.trim_end());
            }
        }
    }
    Ok(passed)
}

fn check_alerts(packaging: &Path) -> Result<Option<String>> {
    let rules = ["promtool", "check", "rules", "prometheus/alerts.yml"];
    let tests = ["promtool", "test", "rules", "prometheus/alerts_test.yml"];
    first_fault(packaging, &[&rules, &tests])
}

fn check_chart(packaging: &Path) -> Result<Option<String>> {
    let lint = ["helm", "lint", "--strict", KUBERNETES, CHART];
    if let Some(fault) = first_fault(packaging, &[&lint])? {
        return Ok(Some(fault));
    }
    let render = |settings| ["helm", "template", "esker", KUBERNETES, CHART, "--set", settings];
    for settings in CHART_SETTINGS {
        if let Some(fault) = first_fault(packaging, &[&render(settings)])? {
            return Ok(Some(fault));
        }
    }
    for settings in CHART_REFUSALS {
        if output(packaging, &render(settings))?.1 {
            return Ok(Some(format!("the chart takes --set {settings}")));
        }
    }
    Ok(None)
}

fn check_scripts(packaging: &Path) -> Result<Option<String>> {
    let scripts = ["deb/esker/postinst", "deb/esker/prerm", "deb/esker/postrm"];
    let commands = scripts.map(|script| ["sh", "-n", script]);
    first_fault(packaging, &commands.each_ref().map(|words| &words[..]))
}
