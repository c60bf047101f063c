//! Any bytes at all, and sound segments with pieces changed, moved, doubled and mixed.
//!
//! Guards: a decoder that panics, spins or reads out of bounds over bytes that nobody thought of; a
//! record that is handed out and was never written there; records that a repair loses in silence.
//!
//! The decoders themselves are run by `decode_segment`, which the fuzz target `segment` calls too.

mod damage_kit;

use std::path::Path;

use damage_kit::format::{BLOCK, Salt, set_segment_version};
use damage_kit::harm::{put, replace};
use damage_kit::healing::without;
use damage_kit::map::{in_dir, segment_path};
use damage_kit::reading::{self, Item, Read};
use damage_kit::sample::{self, Building, Sample, options, payload};
use damage_kit::{DIR, answers};
use esker_disk::sim::SimDisk;
use esker_log::fuzzing::decode_segment;
use esker_log::{Engine, Error, Log, Numbered, OnDamage, Reader, Seq, Start, repair, verify};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

type Checked<T = ()> = Result<T, String>;

/// Samples are made once.
fn samples() -> &'static [Sample] {
    static SAMPLES: std::sync::OnceLock<Vec<Sample>> = std::sync::OnceLock::new();
    SAMPLES.get_or_init(|| {
        vec![sample::closed(), sample::killed(), sample::torn(), sample::quarantined()]
    })
}

/// Opens in every way. What is read has to be the beginning of what was written.
fn ask_all(disk: &SimDisk, items: &[Item]) -> Checked {
    let engine = Engine::manual();
    let acceptable = |error: &Error| matches!(error, Error::Damaged(_) | Error::NotALog { .. });
    let told = |error: Error| if acceptable(&error) { Ok(()) } else { Err(format!("{error:?}")) };
    match Reader::open(DIR, options(disk, &engine)) {
        Ok(reader) => check_read(&reading::of_reader(&reader, 0)?, items)?,
        Err(error) => told(error)?,
    }
    if let Err(error) = verify(DIR, &options(disk, &engine)) {
        told(error)?;
    }
    match Log::open(DIR, options(&disk.fork(1), &engine)) {
        Ok(log) => {
            check_read(&reading::of_log(&log, Start::Oldest)?, items)?;
            for item in items {
                if let Ok(view) = log.read(item.last())
                    && !matches!(item, Item::Record { payload, .. } if *payload == *view)
                {
                    return Err(format!("{} is another record", item.last()));
                }
            }
        }
        Err(error) => told(error)?,
    }
    Ok(())
}

fn check_read(read: &Read, items: &[Item]) -> Checked {
    answers::begins(items, read)?;
    match &read.error {
        None | Some(Error::Damaged(_) | Error::Trimmed { .. }) => Ok(()),
        Some(other) => Err(format!("{other:?}")),
    }
}

/// After a repair all is there that is not in a gap that readers are told of.
fn heal(disk: &SimDisk, items: &[Item], claim: u64) -> Checked {
    let engine = Engine::manual();
    let disk = disk.fork(2);
    match repair(DIR, &options(&disk, &engine)) {
        Ok(_) => {}
        Err(Error::NotALog { .. }) => return Ok(()),
        Err(error) => return Err(format!("repair: {error:?}")),
    }
    let log = damage_kit::healing::open(&disk, OnDamage::Fail)?;
    let read = reading::of_log(&log, Start::Oldest)?;
    if let Some(error) = read.error {
        return Err(format!("after repair: {error:?}"));
    }
    let gaps: Vec<(u64, u64)> = read
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Gap(from, to) => Some((*from, *to)),
            Item::Record { .. } => None,
        })
        .collect();
    for item in &items[..] {
        let hidden = gaps.iter().any(|(from, to)| *from < item.last() && item.last() <= *to);
        if !hidden && item.last() <= claim && !read.items.contains(item) {
            return Err(format!("SILENT LOSS: {} is neither there nor in a gap", item.last()));
        }
    }
    let known = |item: &&Item| matches!(item, Item::Gap(..)) || items.contains(*item);
    match read.items.iter().find(|item| !known(item)) {
        Some(item) => Err(format!("{} was never written there", item.last())),
        None => Ok(()),
    }
}

/// A change to a segment.
#[derive(Debug, Clone)]
enum Change {
    Flip(Index, u8),
    Overwrite(Index, Vec<u8>),
    /// Bytes more or less, so that all behind them moves.
    Insert(Index, Vec<u8>),
    Delete(Index, usize),
    Cut(Index),
    /// Blocks of this segment, or another one, over others.
    Copy {
        from: Index,
        to: Index,
        blocks: usize,
        segment: Index,
    },
    Swap(Index, Index),
    Zero(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let bytes = || vec(any::<u8>(), 1..40);
    prop_oneof![
        4 => (at(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Change::Overwrite(at, bytes)),
        2 => (at(), bytes()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        2 => (at(), 1..5000usize).prop_map(|(at, len)| Change::Delete(at, len)),
        1 => at().prop_map(Change::Cut),
        4 => (at(), at(), 1..4usize, at()).prop_map(|(from, to, blocks, segment)| {
            Change::Copy { from, to, blocks, segment }
        }),
        2 => (at(), at()).prop_map(|(a, b)| Change::Swap(a, b)),
        2 => at().prop_map(Change::Zero),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change, segments: &[Vec<u8>]) {
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    let block = |at: &Index| at.index(len.div_ceil(BLOCK)) * BLOCK;
    match change {
        Change::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
        Change::Overwrite(at, new) => {
            for (n, byte) in new.iter().enumerate() {
                bytes[(at.index(len) + n) % len] = *byte;
            }
        }
        Change::Insert(at, new) => {
            let at = at.index(len);
            bytes.splice(at..at, new.iter().copied());
        }
        Change::Delete(at, count) => {
            let at = at.index(len);
            bytes.drain(at..len.min(at + count));
        }
        Change::Cut(at) => bytes.truncate(at.index(len)),
        Change::Copy { from, to, blocks, segment } => {
            let source = &segments[segment.index(segments.len())];
            let from = from.index(source.len() / BLOCK) * BLOCK;
            let piece = &source[from..source.len().min(from + blocks * BLOCK)];
            let to = block(to);
            bytes.resize(len.max(to + piece.len()), 0);
            bytes[to..to + piece.len()].copy_from_slice(piece);
        }
        Change::Swap(a, b) => {
            let (a, b) = (block(a).min(block(b)), block(a).max(block(b)));
            if a < b && b + BLOCK <= len {
                let (left, right) = bytes.split_at_mut(b);
                left[a..a + BLOCK].swap_with_slice(&mut right[..BLOCK]);
            }
        }
        Change::Zero(at) => {
            let at = block(at);
            bytes[at..len.min(at + BLOCK)].fill(0);
        }
    }
}

/// The segment without the zeros behind it.
fn content(sample: &Sample, number: u64) -> Vec<u8> {
    let mut bytes = sample.disk.contents(&segment_path(number)).unwrap();
    let said = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(said.next_multiple_of(BLOCK));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_decoded_without_harm(bytes in vec(any::<u8>(), 0..3 * BLOCK)) {
        decode_segment(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_sound_start(
        sample in any::<Index>(),
        keep in any::<Index>(),
        mut bytes in vec(any::<u8>(), 0..3 * BLOCK),
        with_header in any::<bool>(),
    ) {
        // As the newest segment of a log.
        let sample = sample.get(samples());
        let sound = content(sample, sample.map.newest().number);
        let units = sound.len() / BLOCK;
        let keep = if with_header { (1 + keep.index(units)) * BLOCK } else { 0 };
        let mut newest = sound[..keep.min(sound.len())].to_vec();
        newest.append(&mut bytes);
        decode_segment(&newest);
        let (disk, harm) = replace(sample, &sample.newest_path(), &newest);
        let claim = sample.map.claim_without(&harm.file, &harm.at);
        prop_assert_eq!(ask_all(&disk, &sample.items), Ok(()));
        prop_assert_eq!(heal(&disk, &sample.items, claim), Ok(()));
    }

    #[test]
    fn changed_segments_give_no_wrong_answer(
        sample in any::<Index>(),
        which in any::<Index>(),
        newest in any::<bool>(),
        changes in vec(change(), 1..4),
    ) {
        let sample = sample.get(samples());
        let segments: Vec<Vec<u8>> =
            sample.map.segments.iter().map(|segment| content(sample, segment.number)).collect();
        let n = if newest { segments.len() - 1 } else { which.index(segments.len()) };
        let mut bytes = segments[n].clone();
        for change in &changes {
            apply(&mut bytes, change, &segments);
        }
        let mut as_first = bytes.clone();
        if as_first.len() >= BLOCK {
            // The decoders of the fuzz target read a segment 1.
            as_first[32..40].copy_from_slice(&1u64.to_le_bytes());
            set_segment_version(&mut as_first, 1);
        }
        decode_segment(&as_first);
        let file = segment_path(sample.map.segments[n].number);
        let (disk, harm) = replace(sample, &file, &bytes);
        let claim = sample.map.claim_without(&harm.file, &harm.at);
        prop_assert_eq!(ask_all(&disk, &sample.items), Ok(()));
        prop_assert_eq!(heal(&disk, &sample.items, claim), Ok(()));
    }

    #[test]
    fn changed_small_files_give_no_wrong_answer(
        sample in any::<Index>(),
        name in prop_oneof![Just("manifest"), Just("mark")],
        changes in vec(change(), 1..4),
    ) {
        let sample = sample.get(samples());
        let mut bytes = sample.disk.contents(&in_dir(name)).unwrap();
        let other = vec![content(sample, sample.map.newest().number)];
        for change in &changes {
            apply(&mut bytes, change, &other);
        }
        let (disk, harm) = replace(sample, &in_dir(name), &bytes);
        let claim = sample.map.claim_without(&harm.file, &harm.at);
        prop_assert_eq!(ask_all(&disk, &sample.items), Ok(()));
        prop_assert_eq!(heal(&disk, &sample.items, claim), Ok(()));
    }
}

/// One append.
#[derive(Debug, Clone)]
struct Step {
    lens: Vec<usize>,
    gap: u64,
    atomic: bool,
    wait: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0..200usize, 1 => 4000..4100usize, 1 => 0..12_000usize];
    let gap = prop_oneof![3 => Just(0u64), 1 => 1..1000u64];
    (vec(len, 1..5), gap, any::<bool>(), any::<bool>()).prop_map(|(lens, gap, atomic, wait)| Step {
        lens,
        gap,
        atomic,
        wait,
    })
}

/// Appends what the steps say, and gives what must come back.
fn append_all(log: &Log, steps: &[Step]) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for step in steps {
        let mut prev = items.last().map_or(0, Item::last);
        let mut records = Vec::new();
        for (n, len) in step.lens.iter().enumerate() {
            let seq = prev + 1 + if n == 0 { step.gap } else { 0 };
            let payload = payload("steps", seq, *len);
            items.push(Item::Record { seq, prev, payload: payload.clone() });
            records.push((seq, prev, payload));
            prev = seq;
        }
        let numbered: Vec<_> = records
            .iter()
            .map(|(seq, prev, payload)| Numbered { seq: Seq(*seq), prev: Seq(*prev), payload })
            .collect();
        let ticket =
            if step.atomic { log.append_atomic(&numbered) } else { log.append_batch(&numbered) };
        if step.wait {
            ticket.unwrap().wait().unwrap();
        }
    }
    items
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn records_come_back_as_they_were_appended(
        steps in vec(step(), 1..12),
        clean in any::<bool>(),
        segment_records in 1..30u64,
    ) {
        let disk = SimDisk::new(1);
        let engine = Engine::manual();
        let mut options = options(&disk.process(), &engine);
        options.segment_records = Some(segment_records);
        let log = Log::open(DIR, options).unwrap();
        let items = append_all(&log, &steps);
        log.flush().unwrap().wait().unwrap();
        // From memory, then from the files.
        prop_assert_eq!(&reading::of_log(&log, Start::Oldest).unwrap().items, &items);
        if clean {
            log.close().unwrap();
        } else {
            disk.kill();
            disk.power_on();
        }
        drop(log);
        for segment in damage_kit::map::Map::of(&disk).segments {
            for record in segment.units.iter().flat_map(|unit| &unit.records) {
                let stored = (16 + record.payload.len()).next_multiple_of(8);
                prop_assert_eq!(record.at.len(), stored, "what a record takes");
            }
        }
        let log = damage_kit::healing::open(&disk, OnDamage::Fail).unwrap();
        prop_assert_eq!(damage_kit::healing::check_log(&log, &items), Ok(()));
    }
}

#[test]
fn borrowed_and_owned_records_are_stored_alike() {
    let stored = |append: &dyn Fn(&Log)| {
        let mut log = Building::new("alike");
        esker_disk::Disk::create_dir(&log.disk, Path::new(DIR)).unwrap();
        put(&log.disk, &in_dir("manifest"), &damage_kit::format::manifest([9; 16], 0, 0, 0));
        log.open(100);
        append(log.log.as_ref().unwrap());
        log.close();
        log.disk.contents(&segment_path(1)).unwrap()
    };
    let wait = |ticket: Result<esker_log::Ticket, Error>| drop(ticket.unwrap().wait().unwrap());
    let text = "under the ice";
    let slice = stored(&|log| wait(log.append(text.as_bytes())));
    assert_eq!(stored(&|log| wait(log.append(text))), slice);
    assert_eq!(stored(&|log| wait(log.append(&text.to_owned()))), slice);
    assert_eq!(stored(&|log| wait(log.append(&text.as_bytes().to_vec()))), slice);
    assert_eq!(stored(&|log| wait(log.append_atomic(&[text]))), slice);
    let numbered = Numbered { seq: Seq(1), prev: Seq(0), payload: text.as_bytes() };
    assert_eq!(stored(&|log| wait(log.append(numbered))), slice);
    // And the checksum is the one that the book tells.
    let salt = Salt::new(&[9; 16], 1);
    assert!(
        damage_kit::format::unit(&slice, salt, BLOCK, damage_kit::format::word(&slice, 12))
            .is_some()
    );
    assert!(without(&[], &[]).is_empty());
}
