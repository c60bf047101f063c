//! Each crate depends only on those below it.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::finding::Finding;

const RULE: &str = "layers";
/// The layer of each crate. `esker`, the facade, shows log, consensus and kv to its users.
const LAYERS: [(&str, u8); 16] = [
    ("disk", 0),
    ("testkit", 1),
    ("log", 2),
    ("loom", 2),
    ("consensus", 3),
    ("kv", 3),
    ("esker", 4),
    ("raft", 4),
    ("oracle", 5),
    ("server", 6),
    ("client", 6),
    ("simulation", 6),
    ("command", 7),
    ("bench", 8),
    ("lab", 8),
    ("cli", 9),
];
const KINDS: [&str; 3] = ["dependencies", DEV, "build-dependencies"];
const DEV: &str = "dev-dependencies";
/// The crate whose programs and models the crash tests of the components below it run.
const LAB: &str = "lab";

/// The crate folder whose manifest `path` is.
pub fn crate_of(path: &str) -> Option<&str> {
    let folder = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!folder.contains('/')).then_some(folder)
}

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let Some(name) = crate_of(path) else { return Vec::new() };
    let error = |message: String| Finding::error(RULE, path, 0, message);
    let Some(layer) = layer_of(name) else {
        return vec![error(format!("{name} has no layer yet: add it in {}", file!()))];
    };
    let manifest: Table = match toml::from_str(text) {
        Ok(manifest) => manifest,
        Err(parse) => return vec![error(format!("is not TOML: {parse}"))],
    };
    let below = |other: &str| layer_of(other).is_some_and(|other| other < layer);
    project_dependencies(&manifest)
        .into_iter()
        // Its own tests may want a crate with one of its features.
        .filter(|(kind, other)| other != name && !below(other) && !(*kind == DEV && other == LAB))
        .map(|(_, other)| error(format!("{name} may not depend on {other}: it is not below it")))
        .collect()
}

fn layer_of(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

/// The crates of the project that `manifest` names, and the kind of table that does.
fn project_dependencies(manifest: &Table) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    for table in std::iter::once(manifest).chain(targets) {
        for kind in KINDS {
            let Some(dependencies) = table.get(kind).and_then(Value::as_table) else { continue };
            for (key, value) in dependencies {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                if package == "esker" {
                    found.insert((kind, package.to_owned()));
                } else if let Some(name) = package.strip_prefix("esker-") {
                    found.insert((kind, name.to_owned()));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, manifest: &str) -> usize {
        check(&format!("crates/{name}/Cargo.toml"), manifest).len()
    }

    #[test]
    fn an_upward_edge_is_found() {
        assert_eq!(of("disk", "[dependencies]\nesker-log = { workspace = true }\n"), 1);
        assert_eq!(of("log", "[dependencies]\nesker.workspace = true\n"), 1);
        assert_eq!(of("esker", "[dependencies]\nesker-raft.workspace = true\n"), 1);
    }

    #[test]
    fn a_sideways_edge_is_found() {
        assert_eq!(of("kv", "[dependencies]\nesker-consensus.workspace = true\n"), 1);
    }

    #[test]
    fn no_table_hides_an_edge() {
        assert_eq!(of("log", "[dev-dependencies]\nesker-kv.workspace = true\n"), 1);
        assert_eq!(of("log", "[target.'cfg(unix)'.dependencies]\nesker-kv.workspace = true\n"), 1);
        assert_eq!(of("log", "[dependencies]\nfriend = { package = 'esker-kv', path = '' }\n"), 1);
    }

    #[test]
    fn only_tests_use_the_lab() {
        assert_eq!(of("log", "[dev-dependencies]\nesker-lab.workspace = true\n"), 0);
        assert_eq!(of("log", "[dependencies]\nesker-lab.workspace = true\n"), 1);
    }

    #[test]
    fn an_unknown_crate_needs_a_layer() {
        assert_eq!(of("attic", ""), 1);
        assert_eq!(of("cli", "[dependencies]\nesker-attic.workspace = true\n"), 1);
    }

    #[test]
    fn downward_edges_are_fine() {
        let text = "[dependencies]\nesker-log.workspace = true\nesker-disk.workspace = true\n\
                    bytes = '1'\n[dev-dependencies]\nesker-kv = { path = '.' }\n";
        assert_eq!(of("kv", text), 0);
        assert!(check("xtask/Cargo.toml", "[dependencies]\nesker-cli = '1'\n").is_empty());
    }
}
