//! Without faults and cuts the simulated disk answers as the real one, and after a cut each sector
//! is one of those it had: any sequence of calls, against the real disk and against a plain model.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{Persist, Sector, SimDisk, SimOptions};
use esker_disk::{BLOCK_BYTES, Disk, File, OpenMode, Result, StdDisk, read_full_at, write_all_at};
use proptest::prelude::*;

use crate::by_path::ByPath;

#[derive(Debug, Clone)]
enum Step {
    Open(u8, bool),
    Write(u8, u64, usize, u8),
    SetLen(u8, u64),
    Preallocate(u8, u64, u64),
    Sync(u8),
    Rename(u8, u8),
    Unlink(u8),
    SyncDir,
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..3_u8;
    let at = prop_oneof![0..20_000_u64, (0..5_u64).prop_map(|block| block * BLOCK_BYTES as u64)];
    let len = prop_oneof![1..9_000_usize, (1..3_usize).prop_map(|blocks| blocks * BLOCK_BYTES)];
    prop_oneof![
        2 => (file.clone(), any::<bool>()).prop_map(|(f, new)| Step::Open(f, new)),
        8 => (file.clone(), at.clone(), len, 1..255_u8)
            .prop_map(|(f, at, len, byte)| Step::Write(f, at, len, byte)),
        2 => (file.clone(), at.clone()).prop_map(|(f, at)| Step::SetLen(f, at)),
        1 => (file.clone(), at.clone(), at).prop_map(|(f, at, len)| Step::Preallocate(f, at, len)),
        2 => file.clone().prop_map(Step::Sync),
        1 => (file.clone(), file.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => file.prop_map(Step::Unlink),
        1 => Just(Step::SyncDir),
    ]
}

/// A disk, and the file last opened under each of three names.
struct Side<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    open: [Option<Arc<dyn File>>; 3],
}

impl Side<'_> {
    fn run(&mut self, step: &Step) -> std::result::Result<u64, std::io::ErrorKind> {
        self.try_run(step).map_err(|error| error.kind())
    }

    fn try_run(&mut self, step: &Step) -> Result<u64> {
        let path = |name: u8| self.dir.join(name.to_string());
        let on = |name: u8| self.open[usize::from(name)].clone();
        match *step {
            Step::Open(name, new) => {
                let how = if new { OpenMode::create_new() } else { OpenMode::create() };
                let file = self.disk.open(&path(name), how)?;
                self.open[usize::from(name)] = Some(file);
            }
            Step::Write(name, at, len, byte) => {
                if let Some(file) = on(name) {
                    write_all_at(&*file, &vec![byte; len], at)?;
                }
            }
            Step::SetLen(name, len) => on(name).map_or(Ok(()), |file| file.set_len(len))?,
            Step::Preallocate(name, at, len) => {
                on(name).map_or(Ok(()), |file| file.preallocate(at, len))?;
            }
            Step::Sync(name) => on(name).map_or(Ok(()), |file| file.sync_data())?,
            Step::Rename(from, to) => self.disk.rename(&path(from), &path(to))?,
            Step::Unlink(name) => self.disk.unlink(&path(name))?,
            Step::SyncDir => self.disk.sync_dir(self.dir)?,
        }
        self.open.iter().flatten().map(|file| file.len()).sum()
    }

    fn everything(&self) -> Vec<(String, Vec<u8>)> {
        let read = |file: Arc<dyn File>| {
            let mut buf = vec![0; file.len().unwrap() as usize + 10];
            let len = read_full_at(&*file, &mut buf, 0).unwrap();
            buf.truncate(len);
            buf
        };
        let mut all = Vec::new();
        for name in self.disk.list(self.dir).unwrap() {
            let file = self.disk.open(&self.dir.join(&name), OpenMode::read()).unwrap();
            all.push((name, read(file)));
        }
        all.extend(self.open.iter().flatten().map(|f| ("open".to_owned(), read(f.clone()))));
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_calls_get_the_same_answers(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let sim = SimDisk::new(1);
        let real = StdDisk::new();
        let mut real = Side { disk: &real, dir: dir.path(), open: Default::default() };
        let mut simulated = Side { disk: &sim, dir: Path::new("/"), open: Default::default() };
        for step in &steps {
            prop_assert_eq!(real.run(step), simulated.run(step), "{:?}", step);
        }
        prop_assert_eq!(real.everything(), simulated.everything());
    }

    #[test]
    fn after_a_cut_each_sector_is_one_it_had(
        synced in proptest::collection::vec(step(), 0..10),
        steps in proptest::collection::vec(step(), 0..20),
        seed: u64,
        small: bool,
    ) {
        let sector = if small { Sector::B512 } else { Sector::B4096 };
        let disk = SimDisk::with(SimOptions::new(seed).sector(sector).torn_percent(0));
        let mut side = Side { disk: &disk, dir: Path::new("/"), open: Default::default() };
        // One file: names are tested elsewhere.
        let of_file = |step: &&Step| {
            matches!(step, Step::Write(0, ..) | Step::SetLen(0, _) | Step::Preallocate(0, ..)
                | Step::Sync(0))
        };
        side.run(&Step::Open(0, true)).unwrap();
        for step in synced.iter().filter(of_file) {
            side.run(step).unwrap();
        }
        side.run(&Step::Sync(0)).unwrap();
        side.run(&Step::SyncDir).unwrap();

        let now = || disk.contents(Path::new("/0")).unwrap();
        let mut had = vec![now()];
        for step in steps.iter().filter(of_file) {
            side.run(step).unwrap();
            if matches!(step, Step::Sync(_)) {
                had.clear();
            }
            had.push(now());
        }
        disk.power_cut(Persist::Random);
        let found = now();
        prop_assert!(had.iter().any(|content| content.len() == found.len()));
        let size = sector.bytes();
        for (i, bytes) in found.chunks(size).enumerate() {
            let had_it = |content: &Vec<u8>| {
                (0..bytes.len()).all(|at| content.get(i * size + at).unwrap_or(&0) == &bytes[at])
            };
            prop_assert!(had.iter().any(had_it), "sector {}", i);
        }
    }
}
