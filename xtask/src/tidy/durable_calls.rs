//! Only `disk` and `log` write, sync, rename or checksum. A component that did so would have
//! untested crash cases of its own.

use super::finding::Finding;
use super::source;

const RULE: &str = "durable-calls";
/// The crates that may.
const OWNERS: [&str; 2] = ["crates/disk/", "crates/log/"];
/// Frames between nodes have a checksum, and are not durable.
const WIRE: (&str, &str) = ("crates/raft/src/network/", "crc_fast");
/// Each is looked for as the start of a word.
const DENIED: [&str; 28] = [
    "File::create",
    "File::options",
    "OpenOptions",
    "blake3",
    "copy_file_range",
    "crc16",
    "crc32",
    "crc64",
    "crc_fast",
    "fallocate",
    "fdatasync",
    "fs::copy",
    "fs::hard_link",
    "fs::remove",
    "fs::rename",
    "fs::write",
    "fsync",
    "ftruncate",
    "pwrite",
    "renameat",
    ".rename(",
    ".set_len(",
    "sync_all",
    "sync_data",
    "sync_dir",
    "write_all_at",
    "write_at",
    "xxhash",
];

pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if !source::is_shipped(path) || OWNERS.iter().any(|owner| path.starts_with(owner)) {
        return Vec::new();
    }
    let code = source::code_without_tests(text);
    let found = |token: &'static str| {
        source::lines_with(&code, token).into_iter().map(move |line| {
            let message = format!("`{token}` belongs to the crates disk and log alone");
            Finding::error(RULE, path, line, message)
        })
    };
    let is_wire = |token: &&str| path.starts_with(WIRE.0) && *token == WIRE.1;
    DENIED.into_iter().filter(|token| !is_wire(token)).flat_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_in_a_face_is_found() {
        let found = check("crates/kv/src/index.rs", "fn a() {\n    file.sync_data()?;\n}\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
    }

    #[test]
    fn only_the_network_has_checksums_of_its_own() {
        let text = "fn a() { crc_fast::checksum(); fs::write() }\n";
        assert_eq!(check("crates/raft/src/network/frame.rs", text).len(), 1);
        assert_eq!(check("crates/raft/src/machine.rs", text).len(), 2);
    }

    #[test]
    fn every_denied_call_is_found() {
        for token in DENIED {
            let call = token.trim_end_matches('(');
            let text = format!("fn a() {{ std::{call}() }}\n");
            assert!(!check("crates/cli/src/main.rs", &text).is_empty(), "{token}");
        }
    }

    #[test]
    fn the_owners_and_the_tests_may() {
        assert!(check("crates/log/src/a.rs", "file.sync_data();").is_empty());
        assert!(check("crates/kv/tests/a.rs", "std::fs::write(a, b);").is_empty());
        let inside = "#[cfg(test)]\nmod tests {\n    fn a() { std::fs::write(a, b); }\n}\n";
        assert!(check("crates/kv/src/a.rs", inside).is_empty());
    }

    #[test]
    fn words_about_it_are_no_calls() {
        let text = "/// p50 of fdatasync\nstatic A: &str = \"fsync\";\n";
        assert!(check("crates/cli/src/a.rs", text).is_empty());
    }
}
