//! Random programs for the comparison with the naive model.

use std::collections::BTreeMap;

use super::naive_model::{DIRECTORIES, Reference};
use crate::record::operation::{Ino, NameCall, NameChange, Operation, SyncCall};
use crate::record::payload::Payload;
use crate::record::recording::{Event, Recording};
use crate::rng::Rng;

/// The most undecided effects at a cut: the states double with each.
pub const UNDECIDED_MAX: usize = 8;
const FILES_MAX: u64 = 3;

/// A random program, with at most [`UNDECIDED_MAX`] undecided effects at every cut.
pub struct RandomProgram {
    rng: Rng,
    recording: Recording,
    reference: Reference,
    /// The names that the program sees.
    names: BTreeMap<(Ino, String), Ino>,
    files: u64,
}

impl RandomProgram {
    pub fn recording(seed: u64, steps: usize) -> Recording {
        let (rng, names, files) = (Rng::new(seed), BTreeMap::new(), 0);
        let (recording, reference) = Default::default();
        let mut program = Self { rng, recording, reference, names, files };
        for dir in &DIRECTORIES[1..] {
            let change = program.change((Ino::ROOT, format!("d{}", dir.0)), Some(*dir));
            program.add(Operation::Rename { call: NameCall::Mkdir, changes: vec![change] });
        }
        if program.rng.chance(50) {
            program.recording.events.push(Event::SetupEnd);
            program.reference.apply(&Event::SetupEnd);
        }
        for _ in 0..steps {
            let before = program.names.clone();
            let operations = program.draw();
            let mut trial = program.reference.clone();
            let numbers = program.recording.requests() + 1..;
            let is_small = operations.iter().zip(numbers).all(|(operation, number)| {
                trial.operate(number, operation);
                trial.undecided().len() <= UNDECIDED_MAX
            });
            if is_small {
                operations.into_iter().for_each(|operation| program.add(operation));
            } else {
                program.names = before;
            }
        }
        program.recording
    }

    fn add(&mut self, operation: Operation) {
        self.recording.add(String::new(), operation).unwrap();
        if let Some(event) = self.recording.events.last() {
            self.reference.apply(event);
        }
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        let index = self.rng.below(items.len().max(1) as u64);
        items.get(index as usize).cloned()
    }

    fn change(&mut self, (dir, name): (Ino, String), after: Option<Ino>) -> NameChange {
        let at = (dir, name.clone());
        let before = match after {
            Some(ino) => self.names.insert(at, ino),
            None => self.names.remove(&at),
        };
        NameChange { dir, name: name.into(), before, after }
    }

    /// A name in a directory that is there.
    fn place(&mut self) -> (Ino, String) {
        let named: Vec<Ino> = self.names.values().copied().collect();
        let dirs = DIRECTORIES.iter().filter(|dir| **dir == Ino::ROOT || named.contains(dir));
        let dirs: Vec<Ino> = dirs.copied().collect();
        let dir = self.pick(&dirs).unwrap_or(Ino::ROOT);
        (dir, self.pick(&["x", "y"]).unwrap_or("x").to_owned())
    }

    fn draw(&mut self) -> Vec<Operation> {
        let file = Ino(4 + self.rng.below(self.files.max(1)));
        if self.files == 0 {
            return self.draw_names();
        }
        let offset = self.pick(&[0, 100, 512, 700, 1024]).unwrap_or(0);
        let bytes = self.pick(&[1, 300, 512, 600]).unwrap_or(1);
        let data = Payload::from(vec![self.rng.below(255) as u8 + 1; bytes].as_slice());
        let live = self.reference.live.get(&file).map_or(0, Vec::len) as u64;
        match self.rng.below(12) {
            0..=2 => vec![Operation::Write { file, offset, data }],
            3 => {
                let returned = Operation::WriteReturned { file, offset, bytes: bytes as u64 };
                vec![Operation::Write { file, offset, data }, returned]
            }
            4 => {
                let size = self.pick(&[0, 100, 512, 900, 1500, 3000]).unwrap_or(0);
                vec![Operation::Resize { file, size }]
            }
            5 if offset + (bytes as u64) < live => {
                vec![Operation::Zero { file, offset, bytes: bytes as u64 }]
            }
            6 => {
                let call = SyncCall::Fsync;
                vec![Operation::SyncFailed { inode: file, call, offset: 0, bytes: u64::MAX }]
            }
            7 => vec![Operation::Sync { inode: file, call: SyncCall::Fdatasync }],
            8 => {
                let inode = self.place().0;
                vec![Operation::Sync { inode, call: SyncCall::FsyncDir }]
            }
            _ => self.draw_names(),
        }
    }

    fn draw_names(&mut self) -> Vec<Operation> {
        let to = self.place();
        let existing = self.names.get(&to).copied();
        let names: Vec<_> = self.names.keys().cloned().collect();
        let Some(from) = self.pick(&names) else { return Vec::new() };
        let Some(ino) = self.names.get(&from).copied() else { return Vec::new() };
        let is_directory = |ino: &Ino| DIRECTORIES.contains(ino);
        let (call, changes) = match (self.rng.below(6), existing) {
            (0 | 1, None) if self.files < FILES_MAX => {
                self.files += 1;
                let ino = Ino(3 + self.files);
                (NameCall::Create, vec![self.change(to, Some(ino))])
            }
            (2, None) if !is_directory(&ino) => (NameCall::Link, vec![self.change(to, Some(ino))]),
            (3, Some(existing)) if !is_directory(&existing) => {
                (NameCall::Unlink, vec![self.change(to, None)])
            }
            (4, Some(existing)) if !is_directory(&ino) && !is_directory(&existing) => {
                let changes = vec![self.change(from, Some(existing)), self.change(to, Some(ino))];
                (NameCall::Exchange, changes)
            }
            (_, existing) if existing != Some(ino) && from != to => {
                let is_inside = is_directory(&ino) && self.is_inside(to.0, ino);
                let fits = existing.is_none_or(|it| !is_directory(&it)) && !is_inside;
                if !fits || is_directory(&ino) && existing.is_some() {
                    return Vec::new();
                }
                (NameCall::Rename, vec![self.change(from, None), self.change(to, Some(ino))])
            }
            _ => return Vec::new(),
        };
        vec![Operation::Rename { call, changes }]
    }

    fn is_inside(&self, mut dir: Ino, ancestor: Ino) -> bool {
        while dir != ancestor {
            let parent = self.names.iter().find(|(_, ino)| **ino == dir);
            match parent {
                Some(((parent, _), _)) => dir = *parent,
                None => return false,
            }
        }
        true
    }
}
