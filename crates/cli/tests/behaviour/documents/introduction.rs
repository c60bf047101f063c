//! The first page names what there is, and says where something else is better.

#![allow(clippy::unwrap_used)]

const PAGE: &str = include_str!("../../../../../docs/src/introduction.md");

/// Bug: it named two components of five.
#[test]
fn introduction_names_every_component() {
    for (name, chapter) in [
        ("log", "log.md"),
        ("key-value store", "kv.md"),
        ("consensus log", "consensus.md"),
        ("Raft", "raft.md"),
        ("timestamp service", "service.md"),
        ("timestamp client", "client.md"),
        ("disks", "log.md#choosing"),
        ("crash lab", "crash-lab.md"),
    ] {
        assert!(PAGE.contains(&format!("| [{name}]({chapter}) |")), "{name}");
    }
}

#[test]
fn introduction_says_when_something_else_is_better() {
    let (_, section) = PAGE.split_once("\n## When to take what\n").unwrap();
    for other in ["redb", "fjall", "RocksDB", "SQLite", "etcd", "PD", "Kafka"] {
        assert!(section.contains(other), "{other}");
    }
    for limit in ["all keys in memory", "does not compress", "no expiry", "no such server"] {
        assert!(section.contains(limit), "{limit}");
    }
}
