//! The naive model: every subset of the effects that are not durable, without those subsets that a
//! sentence of the book forbids.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::loss::TornSector;
use crate::record::operation::{Ino, NameChange, Operation, RequestNumber, SyncCall};
use crate::record::recording::Event;

const SECTOR_BYTES: usize = 512;

/// The directories of the random programs; all other inodes are files.
pub const DIRECTORIES: [Ino; 3] = [Ino::ROOT, Ino(2), Ino(3)];

/// A directory as the user finds it: `None` is a directory, a file has its inode and bytes.
pub type Image = BTreeMap<String, Option<(Ino, Vec<u8>)>>;

#[derive(Clone, Debug)]
pub enum Effect {
    Data {
        file: Ino,
        sector: usize,
        bytes: Vec<u8>,
    },
    /// A size. A shorter one has the bytes of the sector in which the file ends, and zeros follow.
    Size {
        file: Ino,
        bytes: usize,
        shorter: Option<Vec<u8>>,
    },
    Names {
        changes: Vec<NameChange>,
    },
}

#[derive(Clone, Debug)]
pub struct NumberedEffect {
    pub request: RequestNumber,
    pub effect: Effect,
    pub durable: bool,
    sync_failed: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// The bytes that the program sees.
    pub live: BTreeMap<Ino, Vec<u8>>,
    pub effects: Vec<NumberedEffect>,
}

impl Reference {
    pub fn new(events: &[Event]) -> Self {
        let mut reference = Self::default();
        events.iter().for_each(|event| reference.apply(event));
        reference
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::SetupEnd => self.effects.iter_mut().for_each(|effect| effect.durable = true),
            Event::Request(request) => self.operate(request.number, &request.operation),
            _ => {}
        }
    }

    pub fn operate(&mut self, request: RequestNumber, operation: &Operation) {
        match operation {
            Operation::Write { file, offset, data }
            | Operation::MappedWrite { file, offset, data } => {
                self.write(request, *file, *offset as usize, &data.bytes());
            }
            Operation::Zero { file, offset, bytes } => {
                self.write(request, *file, *offset as usize, &vec![0; *bytes as usize]);
            }
            Operation::Resize { file, size } => {
                let (file, bytes) = (*file, *size as usize);
                let live = self.live.entry(file).or_default();
                let is_shorter = bytes < live.len();
                live.resize(bytes, 0);
                let shorter = is_shorter.then(|| sector_of(live, bytes / SECTOR_BYTES));
                self.add(request, Effect::Size { file, bytes, shorter });
            }
            Operation::Rename { changes, .. } => {
                self.add(request, Effect::Names { changes: changes.clone() });
            }
            Operation::WriteReturned { file, offset, bytes } => {
                let sectors = sectors_of(*offset as usize, *bytes as usize);
                self.sync_file(*file, |sector| sectors.contains(&sector));
            }
            Operation::Sync { inode, call: SyncCall::FsyncDir } => self.sync_directory(*inode),
            Operation::Sync { inode, .. } => self.sync_file(*inode, |_| true),
            Operation::SyncFailed { inode, offset, bytes, .. } => {
                let end = offset.saturating_add(*bytes);
                for effect in &mut self.effects {
                    if let Effect::Data { file, sector, .. } = effect.effect {
                        let start = (sector * SECTOR_BYTES) as u64;
                        let covered = start < end && start + SECTOR_BYTES as u64 > *offset;
                        effect.sync_failed |= file == *inode && covered;
                    }
                }
            }
        }
    }

    fn add(&mut self, request: RequestNumber, effect: Effect) {
        let (durable, sync_failed) = (false, false);
        self.effects.push(NumberedEffect { request, effect, durable, sync_failed });
    }

    fn write(&mut self, request: RequestNumber, file: Ino, offset: usize, data: &[u8]) {
        let live = self.live.entry(file).or_default();
        let end = offset + data.len();
        let grows = end > live.len();
        live.resize(live.len().max(end), 0);
        live[offset..end].copy_from_slice(data);
        let live = live.clone();
        for sector in sectors_of(offset, data.len()) {
            self.add(request, Effect::Data { file, sector, bytes: sector_of(&live, sector) });
        }
        if grows {
            self.add(request, Effect::Size { file, bytes: end, shorter: None });
        }
    }

    /// "fsync and fdatasync of a file make its data and size durable", but for data "that a failed
    /// one covered". "A write with O_DSYNC makes its own bytes and the size durable."
    fn sync_file(&mut self, inode: Ino, is_synced: impl Fn(usize) -> bool) {
        for NumberedEffect { effect, durable, sync_failed, .. } in &mut self.effects {
            *durable |= match effect {
                Effect::Data { file, sector, .. } => {
                    *file == inode && is_synced(*sector) && !*sync_failed
                }
                Effect::Size { file, .. } => *file == inode,
                Effect::Names { .. } => false,
            };
        }
    }

    /// "fsync of a directory makes the changes of the names in it durable, and of no others." What
    /// is durable of a rename becomes an effect of its own.
    fn sync_directory(&mut self, dir: Ino) {
        let mut effects = Vec::new();
        for mut effect in std::mem::take(&mut self.effects) {
            if let Effect::Names { changes } = &mut effect.effect
                && !effect.durable
            {
                let (synced, others) = changes.drain(..).partition(|change| change.dir == dir);
                *changes = others;
                let synced = Effect::Names { changes: synced };
                effects.push(NumberedEffect { effect: synced, durable: true, ..effect });
            }
            effects.push(effect);
        }
        effects.retain(|effect| match &effect.effect {
            Effect::Names { changes } => !changes.is_empty(),
            _ => true,
        });
        self.effects = effects;
    }

    pub fn undecided(&self) -> Vec<usize> {
        (0..self.effects.len()).filter(|index| !self.effects[*index].durable).collect()
    }

    /// All directories that a power cut may leave, with sectors torn as `torn` says for a request.
    pub fn images(&self, torn: &dyn Fn(RequestNumber) -> Vec<TornSector>) -> BTreeSet<Image> {
        let undecided = self.undecided();
        let requests: BTreeSet<_> = undecided.iter().map(|i| self.effects[*i].request).collect();
        let options = requests.iter().map(|request| {
            let torn = torn(*request).into_iter().map(Some);
            torn.chain([None]).map(|torn| (*request, torn)).collect::<Vec<_>>()
        });
        let torn = product(&options.collect::<Vec<_>>());
        let mut images = BTreeSet::new();
        for subset in 0..1_u32 << undecided.len() {
            let lost: BTreeSet<usize> = (0..undecided.len())
                .filter(|bit| subset >> bit & 1 == 1)
                .map(|bit| undecided[bit])
                .collect();
            if self.has_name_without_an_earlier_one(&lost) {
                continue;
            }
            images.extend(torn.iter().map(|torn| self.image(&lost, torn)));
        }
        images
    }

    /// "A later change of a name needs the undecided earlier ones of that name and that file."
    fn has_name_without_an_earlier_one(&self, lost: &BTreeSet<usize>) -> bool {
        let names = |index: usize| match &self.effects[index] {
            NumberedEffect { effect: Effect::Names { changes }, durable: false, .. } => {
                &changes[..]
            }
            _ => &[],
        };
        lost.iter().any(|lost_one| {
            let later = (*lost_one..self.effects.len()).filter(|index| !lost.contains(index));
            later.into_iter().any(|kept| {
                names(*lost_one).iter().any(|a| names(kept).iter().any(|b| is_chained(a, b)))
            })
        })
    }

    fn image(&self, lost: &BTreeSet<usize>, torn: &[(RequestNumber, Option<TornSector>)]) -> Image {
        let kept = (0..self.effects.len()).filter(|index| !lost.contains(index));
        let kept: Vec<&NumberedEffect> = kept.map(|index| &self.effects[index]).collect();
        let mut names = BTreeMap::new();
        for NumberedEffect { request, effect, .. } in &kept {
            let Effect::Names { changes } = effect else { continue };
            for NameChange { dir, name, after, .. } in changes {
                let at = (*dir, name.to_string_lossy().into_owned());
                match after {
                    Some(ino) => names.insert(at, (*ino, *request)),
                    None => names.remove(&at),
                };
            }
        }
        keep_one_name_of_each_directory(&mut names);
        let mut image = Image::new();
        let inodes = names.into_iter().map(|(at, (ino, _))| (at, ino)).collect();
        add_paths(&inodes, Ino::ROOT, "", &mut image, &|file| content(&kept, file, torn));
        image
    }
}

/// The bytes of a file after the effects that were kept.
fn content(
    kept: &[&NumberedEffect],
    wanted: Ino,
    torn: &[(RequestNumber, Option<TornSector>)],
) -> Vec<u8> {
    let mut size = 0;
    let mut sectors = BTreeMap::<usize, Vec<u8>>::new();
    let mut untorn = BTreeMap::<usize, Vec<u8>>::new();
    for NumberedEffect { request, effect, durable, .. } in kept {
        match effect {
            Effect::Data { file, sector, bytes } if *file == wanted => {
                let old = untorn.insert(*sector, bytes.clone()).unwrap_or(vec![0; SECTOR_BYTES]);
                let torn = torn.iter().find(|(of, _)| of == request).and_then(|(_, torn)| *torn);
                let torn = torn.filter(|torn| !durable && torn.sector == *sector as u64);
                sectors.insert(
                    *sector,
                    torn.map_or(bytes.clone(), |torn| torn_bytes(torn, &old, bytes)),
                );
            }
            Effect::Size { file, bytes, shorter } if *file == wanted => {
                size = *bytes;
                if let Some(last) = shorter {
                    sectors.retain(|sector, _| *sector < bytes / SECTOR_BYTES);
                    sectors.insert(bytes / SECTOR_BYTES, last.clone());
                    untorn.clone_from(&sectors);
                }
            }
            _ => {}
        }
    }
    let mut content = vec![0; size.next_multiple_of(SECTOR_BYTES)];
    for (sector, bytes) in sectors {
        if let Some(place) = content.get_mut(sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES) {
            place.copy_from_slice(&bytes);
        }
    }
    content.truncate(size);
    content
}

/// "Old bytes up to a position and new ones after it, or the reverse."
fn torn_bytes(torn: TornSector, old: &[u8], new: &[u8]) -> Vec<u8> {
    let is_new = |at: usize| (at < usize::from(torn.position)) == torn.new_first;
    (0..SECTOR_BYTES).map(|at| if is_new(at) { new[at] } else { old[at] }).collect()
}

fn sectors_of(offset: usize, bytes: usize) -> std::ops::Range<usize> {
    offset / SECTOR_BYTES..(offset + bytes).div_ceil(SECTOR_BYTES)
}

fn sector_of(bytes: &[u8], sector: usize) -> Vec<u8> {
    let start = bytes.len().min(sector * SECTOR_BYTES);
    let end = bytes.len().min((sector + 1) * SECTOR_BYTES);
    let mut sector = bytes[start..end].to_vec();
    sector.resize(SECTOR_BYTES, 0);
    sector
}

fn is_chained(a: &NameChange, b: &NameChange) -> bool {
    let inodes = |change: &NameChange| [change.before, change.after];
    let shares_inode = inodes(a).iter().flatten().any(|ino| inodes(b).contains(&Some(*ino)));
    (a.dir, &a.name) == (b.dir, &b.name) || shares_inode
}

/// "A directory that would have two names has the newest with which it can be reached."
fn keep_one_name_of_each_directory(names: &mut BTreeMap<(Ino, String), (Ino, RequestNumber)>) {
    let of_directories = names.iter().filter(|(_, (ino, _))| DIRECTORIES.contains(ino));
    let mut oldest_first: Vec<_> =
        of_directories.map(|(at, (ino, request))| (*request, at.clone(), *ino)).collect();
    let all = oldest_first.clone();
    oldest_first.retain(|(_, _, ino)| all.iter().filter(|(_, _, other)| other == ino).count() > 1);
    oldest_first.sort();
    for (_, at, _) in oldest_first {
        let mut without = names.clone();
        let Some((ino, _)) = without.remove(&at) else { continue };
        if is_reachable(&without, ino) {
            *names = without;
        }
    }
}

fn is_reachable(names: &BTreeMap<(Ino, String), (Ino, RequestNumber)>, wanted: Ino) -> bool {
    let mut reached = BTreeSet::from([Ino::ROOT]);
    for _ in DIRECTORIES {
        let found = names.iter().filter(|((dir, _), _)| reached.contains(dir));
        let found: Vec<Ino> = found.map(|(_, (ino, _))| *ino).collect();
        reached.extend(found);
    }
    reached.contains(&wanted)
}

pub fn add_paths(
    names: &BTreeMap<(Ino, String), Ino>,
    dir: Ino,
    path: &str,
    image: &mut Image,
    content: &dyn Fn(Ino) -> Vec<u8>,
) {
    assert!(path.len() < 40, "a directory is in itself: {path}");
    for ((in_dir, name), ino) in names {
        if *in_dir == dir {
            let path = format!("{path}/{name}");
            let is_directory = DIRECTORIES.contains(ino);
            image.insert(path.clone(), (!is_directory).then(|| (*ino, content(*ino))));
            if is_directory {
                add_paths(names, *ino, &path, image, content);
            }
        }
    }
}

/// Each choice of one item of every list.
pub fn product<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |choices, list| {
        let longer = |choice: &Vec<T>, item: &T| [choice.clone(), vec![item.clone()]].concat();
        choices
            .iter()
            .flat_map(|choice| list.iter().map(move |item| longer(choice, item)))
            .collect()
    })
}
