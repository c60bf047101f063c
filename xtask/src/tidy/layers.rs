//! Each crate depends only on those below it, and a published crate only on published ones.

use cargo_metadata::{Dependency, DependencyKind, Metadata, Package};

use super::finding::Finding;

const RULE: &str = "layers";
/// The packages of each layer, from the lowest. `esker`, the facade, shows log, consensus and kv to
/// its users.
const LAYERS: [&[&str]; 10] = [
    &["esker-disk"],
    &["esker-testkit"],
    &["esker-log", "esker-loom"],
    &["esker-consensus", "esker-kv", "unplug"],
    &["esker", "esker-raft"],
    &["esker-oracle"],
    &["esker-server", "esker-client", "esker-simulation"],
    &["esker-command"],
    &["esker-bench", "esker-lab"],
    &["esker-cli", "esker-paxos", "xtask"],
];
/// The package whose programs and models the crash tests of the components below it run.
const LAB: &str = "esker-lab";

pub fn check(metadata: &Metadata) -> Vec<Finding> {
    let in_package = |package: &Package| {
        let path = &package.manifest_path;
        let path = path.strip_prefix(&metadata.workspace_root).unwrap_or(path).to_string();
        let error = move |message| Finding::error(RULE, &path, 0, message);
        let not_published = not_published(metadata, package);
        messages(package).into_iter().chain(not_published).map(error)
    };
    metadata.packages.iter().flat_map(in_package).collect()
}

fn messages(package: &Package) -> Vec<String> {
    let name = package.name.as_str();
    let Some(layer) = layer_of(name) else {
        return vec![format!("{name} has no layer yet: add it in {}", file!())];
    };
    let is_below = |other: &Dependency| {
        // Its own tests may want a crate with one of its features.
        let is_for_tests = other.kind == DependencyKind::Development && other.name == LAB;
        let is_lower = layer_of(&other.name).is_some_and(|other| other < layer);
        is_lower || is_for_tests || other.name == name
    };
    let ours = package.dependencies.iter().filter(|other| other.path.is_some());
    ours.filter(|other| !is_below(other))
        .map(|other| format!("{name} may not depend on {}: it is not below it", other.name))
        .collect()
}

/// The dependencies that keep a crate from being published. Those of its tests do not.
fn not_published(metadata: &Metadata, package: &Package) -> Vec<String> {
    let is_private = |package: &Package| package.publish.as_ref().is_some_and(Vec::is_empty);
    if is_private(package) {
        return Vec::new();
    }
    let needed = |other: &&Dependency| other.kind != DependencyKind::Development;
    let named = package.dependencies.iter().filter(needed);
    let private = named.filter(|other| {
        metadata.packages.iter().any(|package| *package.name == other.name && is_private(package))
    });
    private
        .map(|other| format!("{} is published, and {} is not", package.name, other.name))
        .collect()
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The findings in a package with dependencies of these names, kinds and targets.
    fn found(name: &str, dependencies: &[(&str, Option<&str>, Option<&str>)]) -> Vec<Finding> {
        found_beside(name, dependencies, &[])
    }

    /// As [`found`], beside packages of these names that are not published.
    fn found_beside(
        name: &str,
        dependencies: &[(&str, Option<&str>, Option<&str>)],
        private: &[&str],
    ) -> Vec<Finding> {
        let dependency = |(name, kind, target): &(&str, Option<&str>, Option<&str>)| {
            let path = name.starts_with("esker").then(|| format!("/esker/crates/{name}"));
            json!({
                "name": name, "req": "*", "kind": kind, "target": target, "path": path,
                "optional": false, "uses_default_features": true, "features": [],
            })
        };
        let dependencies: Vec<Value> = dependencies.iter().map(dependency).collect();
        let package = |name, dependencies, publish: Value| {
            json!({
                "name": name, "version": "0.1.0", "id": name, "dependencies": dependencies,
                "targets": [], "features": {}, "manifest_path": "/esker/crates/a/Cargo.toml",
                "publish": publish,
            })
        };
        let mut packages = vec![package(name, dependencies, Value::Null)];
        packages.extend(private.iter().map(|name| package(name, Vec::new(), json!([]))));
        let metadata = json!({
            "packages": packages, "workspace_members": [], "workspace_root": "/esker",
            "target_directory": "/esker/target", "version": 1,
        });
        check(&serde_json::from_value(metadata).unwrap())
    }

    #[test]
    fn an_upward_edge_is_found() {
        for (name, other) in
            [("esker-disk", "esker-log"), ("esker-log", "esker"), ("esker", "esker-raft")]
        {
            let found = found(name, &[(other, None, None)]);
            assert_eq!((found.len(), &*found[0].path), (1, "crates/a/Cargo.toml"), "{name}");
        }
    }

    #[test]
    fn a_sideways_edge_is_found() {
        assert_eq!(found("esker-kv", &[("esker-consensus", None, None)]).len(), 1);
    }

    #[test]
    fn no_kind_or_target_hides_an_edge() {
        for kind in [Some("dev"), Some("build")] {
            assert_eq!(found("esker-log", &[("esker-kv", kind, None)]).len(), 1);
        }
        assert_eq!(found("esker-log", &[("esker-kv", None, Some("cfg(unix)"))]).len(), 1);
    }

    #[test]
    fn only_tests_use_the_lab() {
        assert_eq!(found("esker-log", &[("esker-lab", Some("dev"), None)]), []);
        assert_eq!(found("esker-log", &[("esker-lab", None, None)]).len(), 1);
    }

    #[test]
    fn a_published_crate_needs_published_ones() {
        let beside = |kind| {
            found_beside("esker-cli", &[("esker-bench", kind, None)], &["esker-bench"]).len()
        };
        assert_eq!((beside(None), beside(Some("build")), beside(Some("dev"))), (1, 1, 0));
        assert_eq!(found("esker-cli", &[("esker-bench", None, None)]), []);
    }

    #[test]
    fn an_unknown_crate_needs_a_layer() {
        assert_eq!(found("esker-attic", &[]).len(), 1);
        assert_eq!(found("esker-cli", &[("esker-attic", None, None)]).len(), 1);
    }

    #[test]
    fn downward_edges_are_fine() {
        let below = [("esker-log", None, None), ("esker-disk", None, None), ("bytes", None, None)];
        assert_eq!(found("esker-kv", &below), []);
        assert_eq!(found("esker-kv", &[("esker-kv", Some("dev"), None)]), []);
    }
}
