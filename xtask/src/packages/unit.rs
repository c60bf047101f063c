//! Checks of the unit for systemd.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::commands::{first_fault, output};

const UNIT: &str = "systemd/esker.service";
/// The most that `systemd-analyze security` may rate the exposure, of 10.
const EXPOSURE_MAX: f64 = 2.0;
const VERDICT: &str = "Overall exposure level for esker.service:";

/// Has systemd read the unit. The program and its manual pages need not be installed: the unit is
/// read with a program that every system has.
pub fn check(packaging: &Path) -> Result<Option<String>> {
    let unit = fs::read_to_string(packaging.join(UNIT))?;
    let lines = unit.lines().filter(|line| !line.starts_with("Documentation=man:"));
    let unit: String = lines
        .map(|line| match line.strip_prefix("ExecStart=esker ") {
            Some(arguments) => format!("ExecStart=/bin/sh {arguments}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    let folder = packaging.join("../target/packages");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("esker.service"), unit)?;
    first_fault(&folder, &[&["systemd-analyze", "verify", "./esker.service"]])
}

pub fn check_exposure(packaging: &Path) -> Result<Option<String>> {
    let words = ["systemd-analyze", "security", "--no-pager", "--offline=true", UNIT];
    let (printed, succeeded) = output(packaging, &words)?;
    if !succeeded {
        return Ok(Some(printed));
    }
    let exposure = exposure(&printed).context("systemd-analyze rates no exposure")?;
    Ok((exposure > EXPOSURE_MAX).then_some(printed))
}

/// The exposure in the last line that `systemd-analyze security` prints.
fn exposure(printed: &str) -> Option<f64> {
    let rated = printed.lines().find_map(|line| line.split_once(VERDICT))?.1;
    rated.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposure_is_read() {
        let printed =
            "✗ PrivateNetwork= 0.5\n\n→ Overall exposure level for esker.service: 1.1 OK 🙂\n";
        assert_eq!(exposure(printed), Some(1.1));
        assert_eq!(exposure("✗ PrivateNetwork= 0.5\n"), None);
    }
}
