//! Planning of corruption: one to three mutations of a directory, of bytes and files anywhere, or
//! of the files of a sequence.

use std::sync::Arc;

use crate::changes::BLOCK_BYTES;
use crate::files::Files;
use crate::mutation::Mutation;
use crate::rng::Rng;

/// A directory, and the material for planning mutations of it.
#[derive(Debug)]
pub struct Source {
    /// The directory.
    pub files: Files,
    /// The earlier states of the directory, which a restored backup or a lost write may bring back.
    pub older: Vec<Files>,
    /// Another directory of the same kind.
    pub other: Files,
    /// Names that a file of such a directory may have.
    pub names: Vec<String>,
}

/// Plans one to three mutations, most often one.
pub fn plan(source: &Source, rng: &mut Rng) -> Vec<Mutation> {
    let count = [1, 1, 1, 2, 2, 3][rng.index(6)];
    (0..count).filter_map(|_| Planner { source, rng }.one()).collect()
}

/// The end of the name of a file that is one of a sequence.
const OF_A_SEQUENCE: &str = ".seg";

/// Plans mutations of files that are one of a sequence: they hold a copy of another one, in place
/// of their own content or after it, and the next file may be missing. One case of three has one of
/// the mutations of [`plan`], too.
pub fn plan_of_sequence(source: &Source, rng: &mut Rng) -> Vec<Mutation> {
    let mut planner = Planner { source, rng };
    let mut planned = planner.of_sequence().unwrap_or_default();
    if planner.rng.percent(33) {
        planned.extend(planner.one());
    }
    planned
}

struct Planner<'a, 'b> {
    source: &'a Source,
    rng: &'b mut Rng,
}

impl Planner<'_, '_> {
    fn one(&mut self) -> Option<Mutation> {
        match self.rng.below(100) {
            0..26 => self.flip(),
            26..44 => self.blocks(),
            44..50 => self.swap(),
            50..57 => self.cut(),
            57..60 => self.extend(),
            60..70 => Some(Mutation::Delete { file: self.file()? }),
            70..74 => self.exchange(),
            74..79 => self.other_name(),
            79..89 => self.stale_file(),
            89..94 => self.of_another(),
            _ => self.foreign(),
        }
    }

    fn of_sequence(&mut self) -> Option<Vec<Mutation>> {
        let names = self.source.files.keys().filter(|name| name.ends_with(OF_A_SEQUENCE));
        let names: Vec<String> = names.cloned().collect();
        let first = self.rng.index(names.len().max(1));
        let held = self.rng.pick(&names)?.clone();
        let held = self.bytes(&held);
        Some(match self.rng.below(6) {
            0..2 => self.hold_another(&names[first..], &names),
            2 => vec![Mutation::Extend { file: names[first].clone(), bytes: held.to_vec() }],
            3..5 => {
                let mut bytes = without_end(&self.bytes(&names[first]));
                if self.rng.percent(60) {
                    bytes.extend_from_slice(&held);
                }
                let file = names[first].clone();
                let what = "its content without the end, and that of another after it".into();
                let put = Mutation::Put { file, bytes: Arc::new(bytes), what };
                let next = names.get(first + 1).map(|file| Mutation::Delete { file: file.clone() });
                std::iter::once(put).chain(next).collect()
            }
            _ => {
                let missing = names[first..].iter().take(1 + self.rng.index(3));
                missing.map(|file| Mutation::Delete { file: file.clone() }).collect()
            }
        })
    }

    /// Up to three consecutive files each hold other ones, once or several times.
    fn hold_another(&mut self, files: &[String], names: &[String]) -> Vec<Mutation> {
        let (count, times) = (1 + self.rng.index(3), 1 + self.rng.index(3));
        let mut planned = Vec::new();
        for file in files.iter().take(count) {
            let Some(other) = self.rng.pick(names).cloned() else { continue };
            let bytes = Arc::new(self.bytes(&other).repeat(times));
            let what = format!("{times} times the content of {other}");
            planned.push(Mutation::Put { file: file.clone(), bytes, what });
        }
        planned
    }

    /// Picks a file; in one case of five the smaller of two, because small files have few blocks.
    fn file(&mut self) -> Option<String> {
        let names: Vec<_> = self.source.files.keys().collect();
        let (one, other) = (*self.rng.pick(&names)?, *self.rng.pick(&names)?);
        let len = |name: &String| self.source.files.get(name).map_or(0, |bytes| bytes.len());
        let smaller = if len(one) <= len(other) { one } else { other };
        Some(if self.rng.percent(20) { smaller } else { one }.clone())
    }

    fn bytes(&self, file: &str) -> Arc<Vec<u8>> {
        self.source.files.get(file).cloned().unwrap_or_default()
    }

    /// Picks an offset in a file, usually of a unit that is not all zeros.
    fn offset_with_data(&mut self, bytes: &[u8], unit: usize) -> usize {
        let mut offset_with_data = 0;
        for _ in 0..40 {
            offset_with_data = self.rng.index(bytes.len().div_ceil(unit)) * unit;
            let end = bytes.len().min(offset_with_data + unit);
            let blank = bytes
                .get(offset_with_data..end)
                .is_none_or(|part| part.iter().all(|byte| *byte == 0));
            if !blank || self.rng.percent(4) {
                break;
            }
        }
        offset_with_data
    }

    fn unit(&mut self) -> usize {
        [512, BLOCK_BYTES, BLOCK_BYTES, 2 * BLOCK_BYTES][self.rng.index(4)]
    }

    fn flip(&mut self) -> Option<Mutation> {
        let file = self.file()?;
        let bytes = self.bytes(&file);
        let block = self.offset_with_data(&bytes, 512);
        // The first bytes of a block are often headers. Individual zero bytes are not examined:
        // checksums and identities differ from run to run, but the case must not.
        let width = [512, 512, 128, 24][self.rng.index(4)];
        let at = block + self.rng.index(width);
        let bit = at as u64 * 8 + self.rng.below(8);
        (at < bytes.len()).then_some(Mutation::Flip { file, bit })
    }

    /// Replaces a sector, a block or two blocks.
    fn blocks(&mut self) -> Option<Mutation> {
        let file = self.file()?;
        let content = self.bytes(&file);
        let unit = self.unit();
        let offset = self.offset_with_data(&content, unit);
        let (bytes, what) = match self.rng.below(8) {
            0..3 => (vec![0; unit], "zeros"),
            3 => (vec![0xFF; unit], "ones"),
            4 => (self.rng.bytes(unit), "random"),
            5 => {
                let from = self.offset_with_data(&content, unit);
                (part(&content, from, unit), "what is at another place of the file")
            }
            6 => {
                let other = self.file()?;
                let other = self.bytes(&other);
                let from = self.offset_with_data(&other, unit);
                (part(&other, from, unit), "what is in another file")
            }
            _ => {
                let older = self.rng.pick(&self.source.older)?.get(&file)?.clone();
                let older = part(&older, offset, unit);
                (older, "what was there before")
            }
        };
        Some(Mutation::Overwrite { file, offset, bytes, what: what.into() })
    }

    fn swap(&mut self) -> Option<Mutation> {
        let file = self.file()?;
        let bytes = self.bytes(&file);
        let len = self.unit();
        let starts = (self.offset_with_data(&bytes, len), self.offset_with_data(&bytes, len));
        let apart = starts.0.abs_diff(starts.1) >= len;
        (apart && starts.0.max(starts.1) + len <= bytes.len()).then_some(Mutation::Swap {
            file,
            starts,
            len,
        })
    }

    fn cut(&mut self) -> Option<Mutation> {
        let file = self.file()?;
        let bytes = self.bytes(&file);
        let unit = self.unit();
        let len = match self.rng.below(6) {
            0 => 0,
            1 | 2 => self.offset_with_data(&bytes, unit),
            _ => self.offset_with_data(&bytes, unit) + self.rng.index(unit),
        };
        Some(Mutation::Cut { len: len.min(bytes.len().saturating_sub(1)), file })
    }

    fn extend(&mut self) -> Option<Mutation> {
        let file = self.file()?;
        let len = [1, 512, BLOCK_BYTES, 3 * BLOCK_BYTES][self.rng.index(4)];
        let bytes = match self.rng.below(3) {
            0 => vec![0; len],
            1 => self.rng.bytes(len),
            _ => {
                let other = self.file()?;
                let other = self.bytes(&other);
                let from = self.offset_with_data(&other, BLOCK_BYTES);
                part(&other, from, len)
            }
        };
        Some(Mutation::Extend { file, bytes })
    }

    fn exchange(&mut self) -> Option<Mutation> {
        let (one, other) = (self.file()?, self.file()?);
        (one != other).then_some(Mutation::Exchange { one, other })
    }

    fn name(&mut self) -> Option<String> {
        if self.rng.percent(70) {
            return self.rng.pick(&self.source.names).cloned();
        }
        Some(["core", "backup.tar", "manifest.old", "x.new", ".hidden"][self.rng.index(5)].into())
    }

    fn other_name(&mut self) -> Option<Mutation> {
        let from = self.file()?;
        let to = if self.rng.percent(50) { self.name()? } else { self.file()? };
        (from != to).then_some(Mutation::Rename { from, to })
    }

    /// Restores a file from an earlier state, deleted since or not; or copies a file to another
    /// name.
    fn stale_file(&mut self) -> Option<Mutation> {
        if self.rng.percent(15) {
            let from = self.file()?;
            let file = self.name()?;
            let what = format!("a copy of {from}");
            return Some(Mutation::Put { file, bytes: self.bytes(&from), what });
        }
        let older = self.rng.pick(&self.source.older)?;
        let names: Vec<_> = older.keys().collect();
        let file = (*self.rng.pick(&names)?).clone();
        let bytes = Arc::clone(older.get(&file)?);
        Some(Mutation::Put { file, bytes, what: "what it was before".into() })
    }

    fn of_another(&mut self) -> Option<Mutation> {
        let names: Vec<_> = self.source.other.keys().collect();
        let from = (*self.rng.pick(&names)?).clone();
        let bytes = Arc::clone(self.source.other.get(&from)?);
        let what = "the same file of another directory".into();
        let file = if self.rng.percent(70) { from } else { self.name()? };
        Some(Mutation::Put { file, bytes, what })
    }

    fn foreign(&mut self) -> Option<Mutation> {
        let len = [0, 1, 100, BLOCK_BYTES, 3 * BLOCK_BYTES][self.rng.index(5)];
        let bytes = if self.rng.percent(30) { vec![0; len] } else { self.rng.bytes(len) };
        let what = "a stranger's file".into();
        Some(Mutation::Put { file: self.name()?, bytes: Arc::new(bytes), what })
    }
}

/// Returns the bytes before the last block that is not all zeros.
fn without_end(bytes: &[u8]) -> Vec<u8> {
    let last = bytes.chunks(BLOCK_BYTES).rposition(|block| block.iter().any(|byte| *byte != 0));
    bytes[..last.unwrap_or(0) * BLOCK_BYTES].to_vec()
}

/// Returns `len` bytes from `from` on, or as many as there are.
fn part(bytes: &[u8], from: usize, len: usize) -> Vec<u8> {
    bytes[from.min(bytes.len())..bytes.len().min(from + len)].to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plans_are_fixed_by_the_seed_and_of_every_kind() {
        let mut state = Rng::new(1, 1);
        let mut random = |len| Arc::new(state.bytes(len));
        let files = Files::from([("a".into(), random(9 * BLOCK_BYTES)), ("b".into(), random(100))]);
        let older =
            vec![Files::from([("a".into(), random(3 * BLOCK_BYTES)), ("c".into(), random(10))])];
        let other = Files::from([("b".into(), random(100))]);
        let names = vec!["a".to_owned(), "d".to_owned()];
        let source = Source { files, older, other, names };
        let mut kinds = BTreeSet::new();
        for seed in 0..500 {
            let planned = plan(&source, &mut Rng::new(seed, 2));
            assert_eq!(planned, plan(&source, &mut Rng::new(seed, 2)));
            assert!(planned.len() <= 3);
            let mut damaged = source.files.clone();
            for mutation in planned {
                mutation.apply(&mut damaged);
                let reported = format!("{mutation:?}");
                kinds.insert(reported.split(' ').next().unwrap_or_default().to_owned());
            }
        }
        assert_eq!(kinds.len(), 9, "{kinds:?}");
    }

    #[test]
    fn a_file_of_a_sequence_holds_another_one_whole() {
        let content = |n: u8| Arc::new([vec![n; 3 * BLOCK_BYTES], vec![9; BLOCK_BYTES]].concat());
        let names: Vec<String> = (1..6).map(|n| format!("{n}.seg")).collect();
        let files: Files = names.iter().cloned().zip((1..6).map(content)).collect();
        let source = Source { files, older: vec![], other: Files::new(), names: vec![] };
        let (mut replaced, mut longer, mut cut) = (0, 0, 0);
        for seed in 0..500 {
            let planned = plan_of_sequence(&source, &mut Rng::new(seed, 2));
            assert_eq!(planned, plan_of_sequence(&source, &mut Rng::new(seed, 2)));
            let mut damaged = source.files.clone();
            planned.iter().for_each(|mutation| mutation.apply(&mut damaged));
            for (name, bytes) in &damaged {
                let Some(own) = source.files.get(name) else { continue };
                replaced += u32::from(source.files.values().any(|of| of == bytes && of != own));
                longer += u32::from(bytes.len() > own.len() && bytes.starts_with(own));
                let is_cut = bytes.starts_with(&own[..3 * BLOCK_BYTES]) && !bytes.starts_with(own);
                let next = names.iter().skip_while(|of| *of != name).nth(1);
                cut += u32::from(is_cut && next.is_some_and(|next| !damaged.contains_key(next)));
            }
        }
        assert!(replaced.min(longer).min(cut) > 20, "{replaced} {longer} {cut}");
    }
}
