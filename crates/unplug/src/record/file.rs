//! The file of a recording: a line that names the format, then the recording as postcard encodes
//! it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::recording::Recording;
use super::validation::validate;

/// The first bytes of a file. The number is that of the format.
const MAGIC: &[u8] = b"unplug recording 3\n";

/// Writes a recording to a file, in place of what was there.
pub fn save(recording: &Recording, path: &Path) -> Result<()> {
    let bytes = postcard::to_extend(recording, MAGIC.to_vec()).context("the recording")?;
    fs::write(path, bytes).with_context(|| format!("failed to write {}", path.display()))
}

/// Reads a recording.
///
/// # Errors
/// When the file cannot be read, is no recording, one of another version, or one that no run makes.
pub fn load(path: &Path) -> Result<Recording> {
    let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let Some(encoded) = bytes.strip_prefix(MAGIC) else {
        bail!("{} is no recording of this version of unplug", path.display());
    };
    let recording: Recording = postcard::from_bytes(encoded)
        .with_context(|| format!("{} is not a whole recording", path.display()))?;
    validate(&recording).with_context(|| format!("{} is no recording of a run", path.display()))?;
    Ok(recording)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::operation::{Ino, NameCall, NameChange, Operation};
    use crate::record::recording::{Event, Node, NodeType};

    #[test]
    fn recording_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let mut recording = Recording::default();
        recording.events.push(Event::SetupEnd);
        let name =
            NameChange { dir: Ino::ROOT, name: "a".into(), before: None, after: Some(Ino(2)) };
        let create = Operation::Rename { call: NameCall::Create, changes: vec![name] };
        recording.add("a".to_owned(), create);
        for (ino, node_type) in [(Ino::ROOT, NodeType::Directory), (Ino(2), NodeType::File)] {
            recording.nodes.insert(ino, Node { node_type, mode: 0o755 });
        }
        let data = [1, 2, 3].as_slice().into();
        let write = Operation::Write { file: Ino(2), offset: 7, data };
        recording.add("a".to_owned(), write);
        recording.events.push(Event::Output(b"done\n".to_vec()));
        save(&recording, &path).unwrap();
        assert_eq!(load(&path).unwrap(), recording);
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
}
