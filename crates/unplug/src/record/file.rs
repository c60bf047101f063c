//! The file of a recording: a line that names the format, then items as postcard encodes them, each
//! after the length of its encoding in 4 bytes, little endian.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::operation::Ino;
use super::recording::{Event, Node, Recording};
use super::validation::validate;

/// The first bytes of a file. The number is that of the format.
const MAGIC: &[u8] = b"unplug recording 4\n";
/// The longest encoding of an item: a mount gets writes and output in smaller pieces.
const ITEM_BYTES_MAX: usize = 16 << 20;

/// An item of a file: the events in their order, then the inodes.
#[derive(Serialize, Deserialize)]
enum Item<'a> {
    Event(Cow<'a, Event>),
    Node(Ino, Cow<'a, Node>),
    End,
}

/// Writes a recording to a file, in place of what was there.
///
/// # Errors
/// When the file cannot be written, or written bytes of the recording cannot be read.
pub fn save(recording: &Recording, path: &Path) -> Result<()> {
    write_items(recording, path).with_context(|| format!("failed to write {}", path.display()))
}

fn write_items(recording: &Recording, path: &Path) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(MAGIC)?;
    let mut encoded = Vec::new();
    let events = recording.events.iter().map(|event| Item::Event(Cow::Borrowed(event)));
    let nodes = recording.nodes.iter().map(|(ino, node)| Item::Node(*ino, Cow::Borrowed(node)));
    for item in events.chain(nodes).chain([Item::End]) {
        encoded.clear();
        encoded = postcard::to_extend(&item, encoded)?;
        ensure!(encoded.len() <= ITEM_BYTES_MAX, "an event is too long");
        file.write_all(&(encoded.len() as u32).to_le_bytes())?;
        file.write_all(&encoded)?;
    }
    Ok(file.flush()?)
}

/// Reads a recording.
///
/// # Errors
/// When the file cannot be read, is no recording, one of another version, or one that no run makes.
pub fn load(path: &Path) -> Result<Recording> {
    load_into(Recording::default(), path)
}

/// Reads a recording into an empty one, which has its limits.
pub fn load_into(mut recording: Recording, path: &Path) -> Result<Recording> {
    let file = File::open(path).with_context(|| format!("failed to read {}", path.display()))?;
    let mut file = BufReader::new(file);
    let mut magic = [0; MAGIC.len()];
    if file.read_exact(&mut magic).is_err() || magic != MAGIC {
        bail!("{} is no recording of this version of unplug", path.display());
    }
    read_items(&mut recording, &mut file)
        .with_context(|| format!("failed to load {}", path.display()))?;
    validate(&recording).with_context(|| format!("{} is no recording of a run", path.display()))?;
    Ok(recording)
}

fn read_items(recording: &mut Recording, file: &mut impl Read) -> Result<()> {
    let mut encoded = Vec::new();
    loop {
        let mut length = [0; 4];
        file.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        ensure!(length <= ITEM_BYTES_MAX, "an event is too long");
        encoded.clear();
        file.by_ref().take(length as u64).read_to_end(&mut encoded)?;
        ensure!(encoded.len() == length, "the file ends in an event");
        match postcard::from_bytes(&encoded)? {
            Item::Event(event) => recording.add_loaded(event.into_owned())?,
            Item::Node(ino, node) => drop(recording.nodes.insert(ino, node.into_owned())),
            Item::End => return Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::record::operation::{NameCall, NameChange, Operation};
    use crate::record::payload::PayloadStore;
    use crate::record::recording::{NodeType, RecordingError};

    /// A recording of all kinds of items.
    fn recording() -> Recording {
        let mut recording = Recording::default();
        recording.events.push(Event::SetupEnd);
        let name =
            NameChange { dir: Ino::ROOT, name: "a".into(), before: None, after: Some(Ino(2)) };
        let create = Operation::Rename { call: NameCall::Create, changes: vec![name] };
        recording.add("a".to_owned(), create).unwrap();
        for (ino, node_type) in [(Ino::ROOT, NodeType::Directory), (Ino(2), NodeType::File)] {
            recording.nodes.insert(ino, Node { node_type, mode: 0o755 });
        }
        let data = [1, 2, 3].as_slice().into();
        let write = Operation::Write { file: Ino(2), offset: 7, data };
        recording.add("a".to_owned(), write).unwrap();
        recording.events.push(Event::Output(b"done\n".to_vec()));
        recording
    }

    #[test]
    fn recording_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let recording = recording();
        save(&recording, &path).unwrap();
        let loaded = load(&path).unwrap();
        assert_eq!((loaded.requests(), &loaded.events), (2, &recording.events));
        assert_eq!(loaded.nodes, recording.nodes);
        // A file that is cut anywhere is an error.
        let bytes = fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(load(&path).is_err(), "{length}");
        }
        // A byte that is changed is an error or another recording.
        for (index, byte) in bytes.iter().enumerate() {
            for other in [0, byte ^ 1, byte ^ 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[index] = other;
                fs::write(&path, &changed).unwrap();
                let _ = load(&path);
            }
        }
    }

    #[test]
    fn recording_that_is_too_large_is_refused_with_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        save(&recording(), &path).unwrap();
        let refusal = |recording| {
            let error = load_into(recording, &path).unwrap_err();
            error.downcast::<RecordingError>().unwrap()
        };
        let refused = refusal(Recording::with_requests_max(1));
        assert!(matches!(refused, RecordingError::TooManyRequests(1)), "{refused}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let refused = refusal(Recording::with_payloads(PayloadStore::spilling_to(full)));
        assert!(matches!(refused, RecordingError::Spill(_)), "{refused}");
        assert!(load_into(Recording::with_requests_max(2), &path).is_ok());
    }
}
