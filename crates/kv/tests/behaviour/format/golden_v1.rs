//! The format of component `ESKRKV01`, as it was written once and for all.
//!
//! Guards: an unnoticed change of the format, so that stores of the day before cannot be read, or
//! are read wrongly. The fixture under `golden/v1` is a store that an earlier Esker wrote; the
//! hexadecimal ones are single structures, byte for byte. Neither may change: what has to be
//! written otherwise is another component.
//!
//! `cargo test -p esker-kv --test behaviour -- --ignored regenerate` writes the fixture again:
//! only before the first release.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_kv::{Batch, Store};

use crate::fixture::{CHECKPOINT, DIR, SimEnv, file, log_files, put};

const EXPECTED: &str = "expected.txt";
const BLOCK: usize = 4096;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// A simulated disk with the fixture on it.
fn load() -> SimEnv {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    for entry in std::fs::read_dir(fixture()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name != EXPECTED {
            disk.put(&file(&name), &std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
    SimEnv::on(disk)
}

/// One line for each key.
fn lines(store: &Store) -> String {
    let mut text = String::new();
    for name in store.keyspaces() {
        let keyspace = store.find_keyspace(&name).unwrap();
        let _ = writeln!(text, "{name}: {} keys", keyspace.len());
        for entry in keyspace.scan(..).unwrap() {
            let (key, value) = entry.unwrap();
            let begin = &value[..value.len().min(16)];
            let (key, begin) = (key.escape_ascii(), begin.escape_ascii());
            let _ = writeln!(text, "{key} = {} bytes, {begin}", value.len());
        }
    }
    text
}

/// Every kind of record, with a checkpoint between them.
fn build(sim_env: &SimEnv) -> Store {
    let store = sim_env.open();
    let keys = store.keyspace();
    put(&keys, 0..30, 1, 3000);
    put(&keys, 3..30, 2, 10);
    store.sync().unwrap();
    assert_eq!(store.compact().unwrap().records_copied, 3, "copied records");
    let named = store.create_keyspace("named").unwrap();
    store.create_keyspace("dropped").unwrap();
    for key in ["", "a", "b", "c", "d", "e", "f"] {
        drop(named.put(key, format!("value of {key}")).unwrap());
    }
    assert!(store.checkpoint().unwrap());
    drop(named.delete("a").unwrap());
    drop(named.delete_range("b".."d").unwrap());
    drop(named.delete_range("e"..).unwrap());
    let mut batch = Batch::new();
    batch.put(&keys, "batch", "one").unwrap();
    batch.put(&named, "batch", "two").unwrap();
    batch.delete(&keys, 29u32.to_be_bytes()).unwrap();
    drop(store.write(&batch).unwrap());
    store.drop_keyspace("dropped").unwrap();
    store.sync().unwrap();
    store
}

#[test]
fn a_store_of_version_1_is_read_back() {
    let expected = std::fs::read_to_string(fixture().join(EXPECTED)).unwrap();
    for with_checkpoint in [true, false] {
        let sim_env = load();
        if !with_checkpoint {
            sim_env.disk.remove(&file(CHECKPOINT)).unwrap();
        }
        let store = sim_env.open();
        assert_eq!(lines(&store), expected);
        // A delete, two of ranges, three of the batch, a dropped keyspace.
        assert_eq!(store.stats().replayed == 7, with_checkpoint, "{:?}", store.stats().replayed);
        let keyspace = store.create_keyspace("new").unwrap();
        drop(keyspace.put("key", "value").unwrap());
        store.close().unwrap();
        let store = sim_env.open();
        assert_eq!(lines(&store), format!("{expected}new: 1 keys\nkey = 5 bytes, value\n"));
        store.close().unwrap();
    }
}

/// Writing has not changed either: the same calls write the same files, as far as they name no
/// time and no random number.
#[test]
fn a_checkpoint_is_that_of_version_1_byte_for_byte() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    let keys = store.keyspace();
    drop(keys.put("ridge", "under the ice").unwrap());
    drop(keys.put("esker", "").unwrap());
    drop(keys.put("deleted", "1").unwrap());
    drop(keys.delete("deleted").unwrap());
    drop(store.create_keyspace("named").unwrap().put("", "empty").unwrap());
    assert!(store.checkpoint().unwrap());
    store.close().unwrap();
    let bytes = sim_env.disk.contents(&file(CHECKPOINT)).unwrap();
    assert_eq!(bytes.len(), 2 * BLOCK);
    assert_eq!(&bytes[..12], b"ESKRCKPT\x02\0\0\0");
    assert_eq!(hex(&bytes[32..92]), HEADER_AND_NOTE);
    assert!(bytes[92..3824].iter().all(|byte| *byte == 0));
    assert_eq!(hex(&bytes[3824..3840 + 4 * 7]), SAMPLES);
    assert!(bytes[3840 + 4 * 7..BLOCK].iter().all(|byte| *byte == 0));
    let len = u32::from_le_bytes(*bytes[BLOCK + 4..].first_chunk().unwrap()) as usize;
    let content = BLOCK + 32;
    assert_eq!(hex(&bytes[BLOCK + 4..content]), CHUNK_HEADER);
    assert_eq!(hex(&bytes[content..content + len]), SECTIONS);
    assert!(bytes[content + len..].iter().all(|byte| *byte == 0));
}

/// Lines of 16 bytes.
fn hex(bytes: &[u8]) -> String {
    bytes.chunks(16).fold(String::new(), |mut text, line| {
        for byte in line {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        text
    })
}

const HEADER_AND_NOTE: &str = "\
01000000000000000100000000000000
01000000240000000700000000000000
07000000000000000030000000000000
050000000000000002000000
";
/// The last record, the number of samples, and one sample of each record.
const SAMPLES: &str = "\
07000000000000000700000000000000
19c66f1754e83378943a093e9c9529f6
42e3105c98cf20369c34608f
";
const CHUNK_HEADER: &str = "\
b7000000000000000000000001000000
000000000100000000000000
";
const SECTIONS: &str = "\
01000000020000000000100000000000
02000000000000007810000000000000
000000000500000065736b6572010000
000000000048100000000000000d0000
00050000007269646765020000000100
00000000200000000000070000000000
00004820000000000000050000000000
00000000000002000000000030000000
00000600000000000000001100000000
00000400000000000000050000000000
0000d810000000000000040000000500
00006e616d6564
";

#[test]
#[ignore = "writes the fixture"]
fn regenerate() {
    let sim_env = SimEnv::new();
    let store = build(&sim_env);
    let expected = lines(&store);
    store.close().unwrap();
    let dir = fixture();
    std::fs::create_dir_all(&dir).unwrap();
    let checkpoint = (CHECKPOINT.to_owned(), sim_env.disk.contents(&file(CHECKPOINT)).unwrap());
    // Opening makes the others again.
    let is_stored = |name: &str| name != "reserve" && !name.ends_with(".next");
    let files = log_files(&sim_env.disk).into_iter().filter(|(name, _)| is_stored(name));
    for (name, bytes) in files.chain([checkpoint]) {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
    std::fs::write(dir.join(EXPECTED), expected).unwrap();
}
