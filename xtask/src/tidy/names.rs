//! Files are named after what they are about.

use super::finding::Finding;

const RULE: &str = "names";
/// Names that say nothing.
const EMPTY: [&str; 8] =
    ["common", "helper", "helpers", "misc", "types", "util", "utilities", "utils"];

pub fn check(path: &str, _: &str) -> Vec<Finding> {
    let Some(stem) = path.strip_suffix(".rs") else { return Vec::new() };
    stem.split('/')
        .filter(|part| EMPTY.contains(part))
        .map(|part| Finding::error(RULE, path, 0, format!("`{part}` does not say what is in it")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_name_is_found() {
        assert_eq!(check("crates/log/src/utils.rs", "").len(), 1);
        assert_eq!(check("crates/log/tests/common/mod.rs", "").len(), 1);
    }

    #[test]
    fn a_telling_name_is_fine() {
        assert!(check("crates/log/src/segment.rs", "").is_empty());
        assert!(check("crates/log/src/typestate.rs", "").is_empty());
        assert!(check("docs/src/types.md", "").is_empty());
    }
}
