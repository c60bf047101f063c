//! Every crate takes the lints of the workspace.

use toml::{Table, Value};

use super::finding::Finding;

const RULE: &str = "lints";

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let folder = path.strip_suffix("Cargo.toml").unwrap_or_default();
    let ours = |group: &str| folder.starts_with(group) && folder.matches('/').count() == 2;
    if !ours("crates/") && !ours("examples/") && folder != "xtask/" {
        return Vec::new();
    }
    let manifest: Table = toml::from_str(text).unwrap_or_default();
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints.and_then(Value::as_bool) == Some(true) {
        return Vec::new();
    }
    vec![Finding::error(RULE, path, 0, "lacks `[lints]` with `workspace = true`")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_them_is_found() {
        assert_eq!(check("crates/log/Cargo.toml", "[package]\nname = 'a'\n").len(), 1);
        assert_eq!(check("crates/log/Cargo.toml", "[lints]\nworkspace = false\n").len(), 1);
        assert_eq!(check("xtask/Cargo.toml", "").len(), 1);
    }

    #[test]
    fn a_crate_with_them_is_fine() {
        assert!(check("crates/log/Cargo.toml", "[lints]\nworkspace = true\n").is_empty());
        assert!(check("crates/log/fuzz/Cargo.toml", "").is_empty());
    }
}
