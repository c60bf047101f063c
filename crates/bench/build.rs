//! Records the compiler, which every benchmark reports.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let version = version.unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=ESKER_COMPILER={}", version.trim());
    println!("cargo:rerun-if-changed=build.rs");
}
