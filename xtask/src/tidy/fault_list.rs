//! `docs/faults.toml` can be planted: each fault's text occurs once in its file.

use super::finding::Finding;
use super::tree::Tree;
use crate::faults;

const RULE: &str = "fault-list";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let error = |message: String| Finding::error(RULE, faults::FILE, 0, message);
    let Some(text) = tree.text(faults::FILE) else { return Vec::new() };
    let faults = match faults::parse(text) {
        Ok(faults) => faults,
        Err(parse) => return vec![error(format!("{parse:#}"))],
    };
    faults
        .iter()
        .filter_map(|fault| match tree.text(&fault.file) {
            None => Some(error(format!("fault {}: there is no {}", fault.id, fault.file))),
            Some(sound) => fault.planted_in(sound).err().map(|why| error(why.to_string())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> usize {
        let list = "[[fault]]\nid='a'\nfile='x.rs'\nfind='sync()'\nreplace=''\ntest=''\n";
        check(&Tree::of(&[(faults::FILE, list), ("x.rs", source)])).len()
    }

    #[test]
    fn a_fault_without_its_place_is_found() {
        assert_eq!(found("flush()"), 1);
        assert_eq!(found("sync() sync()"), 1);
        assert_eq!(check(&Tree::of(&[(faults::FILE, "[[fault]]\n")])).len(), 1);
    }

    #[test]
    fn a_fault_in_its_place_is_fine() {
        assert_eq!(found("sync()"), 0);
    }
}
