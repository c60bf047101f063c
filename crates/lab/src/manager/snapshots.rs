//! The steps of a program that are about snapshots.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use esker_consensus::{ConsensusLog, CreateSnapshotError, Slot, SnapshotError, logs_on};

use super::stored::Content;
use super::{DIR, Life, SimEnv, of_log, pipe};
use crate::plan::{LifeResult, broken, ensure};

/// Bytes of a snapshot's file before the content of its first chunk.
const BEFORE_CONTENT: u64 = 4096 + 32;

impl SimEnv {
    pub(super) fn snapshot(
        &mut self,
        life: &Life,
        number: u64,
        back: u64,
        len: usize,
        part: usize,
    ) -> LifeResult {
        let guard = self.get(life, number)?;
        let content = Content { tag: self.fresh(), len, corrupt: false };
        let known = self.known(number);
        let model = &known.log.model;
        let Some(last) = model.decided.checked_sub(1) else { return Ok(()) };
        let at = last.saturating_sub(back);
        if at + 1 < model.start() {
            return Ok(());
        }
        known.snapshots.publishing(at, content);
        match write(&guard, at, content, part) {
            Err(error) => self.stop(&error, "a snapshot"),
            Ok(()) => {
                known.snapshots.published(at);
                Ok(())
            }
        }
    }

    pub(super) fn keep(&mut self, life: &Life, number: u64, count: usize) -> LifeResult {
        let guard = self.get(life, number)?;
        let known = self.known(number);
        let superfluous = known.snapshots.superfluous(count);
        known.snapshots.removing(&superfluous);
        match guard.snapshots().keep(count) {
            Err(error) => self.stop(&error, "snapshots().keep"),
            Ok(removed) => {
                let removed: Vec<_> = removed.iter().map(|slot| slot.0).collect();
                ensure!(
                    removed == superfluous,
                    "snapshots().keep({count}) removed {removed:?}, expected {superfluous:?}"
                );
                known.snapshots.removed(&removed);
                self.covered(&guard)
            }
        }
    }

    pub(super) fn truncate_through(&mut self, life: &Life, number: u64, back: u64) -> LifeResult {
        let guard = self.get(life, number)?;
        let known = self.known(number);
        let Some(last) = known.log.model.decided.checked_sub(1) else { return Ok(()) };
        let through = last.saturating_sub(back);
        let covering = known.snapshots.newest(|at| at >= through);
        let next = through + 1;
        let moves = covering.is_some() && known.log.model.raising(next, next, None);
        match (guard.snapshots().truncate_through(Slot(through)), covering) {
            (Ok(by), Some((at, _))) => {
                ensure!(by.0 == at, "slots through {through} are covered by {at}, not {by}");
                known.log.raised(moves);
                self.covered(&guard)
            }
            (Ok(by), None) => {
                broken!("slots through {through} were truncated, which {by} does not cover")
            }
            (Err(SnapshotError::NoSnapshot | SnapshotError::CorruptedSnapshot { .. }), None) => {
                Ok(())
            }
            (Err(error), _) => self.stop(&error, "truncate_through"),
        }
    }

    /// A state machine that starts again gets the newest whole snapshot and what follows it.
    pub(super) fn restore(&mut self, life: &Life, number: u64) -> LifeResult {
        let guard = self.get(life, number)?;
        let known = self.known(number);
        let newest = known.snapshots.newest(|_| true);
        let next = guard.frontier().map_or(0, |frontier| frontier.0 + 1);
        let reaches = newest.map(|(at, _)| at + 1).filter(|reaches| *reaches > next);
        let moves = reaches.map(|reaches| known.log.model.raising(reaches, reaches, None));
        let (mut state, mut entries, mut failed) = (Vec::new(), Vec::new(), None);
        let restored = guard.snapshots().restore::<SnapshotError>(
            |snapshot| {
                failed = snapshot.read_to_end(&mut state).err();
                Ok(())
            },
            |entry| {
                entries.push((entry.slot().0, entry.value().to_vec()));
                Ok(())
            },
        );
        let restored = match restored {
            Ok(restored) => restored,
            Err(error) => return self.stop(&error, "restore"),
        };
        if let Some(failed) = failed {
            ensure!(!self.disk.is_on(), "a snapshot that was whole cannot be read: {failed}");
            return Err(crate::plan::Stop::Ended);
        }
        if let Some(moves) = moves {
            known.log.raised(moves);
            known.log.look(&of_log(&guard))?;
        }
        let at = restored.snapshot.map(|slot| slot.0);
        ensure!(
            at == newest.map(|(at, _)| at),
            "restore used the snapshot of slot {at:?}, and should use {newest:?}"
        );
        let expected = newest.map_or(Vec::new(), |(_, content)| content.bytes());
        ensure!(state == expected, "restore handed over another state than that of slot {at:?}");
        let known = self.known(number);
        let first = at.map_or(0, |at| at + 1);
        // Slots above a snapshot that was received may be committed already.
        let next = guard.frontier().map_or(0, |frontier| frontier.0 + 1).max(first);
        let committed = |n: u64| known.log.model.slots.get(&n).and_then(|s| s.committed.clone());
        let expected: Vec<_> = (first..next).map(|n| (n, committed(n))).collect();
        let entries: Vec<_> = entries.into_iter().map(|(n, value)| (n, Some(value))).collect();
        ensure!(
            entries == expected && restored.next.0 == next,
            "restore handed over other entries than those from {first} on, before {next}"
        );
        Ok(())
    }

    /// Sends the newest whole snapshot of a log to another one, which keeps what it received where
    /// the connection breaks.
    pub(super) fn ship(
        &mut self,
        life: &Life,
        from: u64,
        to: u64,
        interrupted: &[u64],
    ) -> LifeResult {
        let source = self.get(life, from)?;
        let dest = self.get(life, to)?;
        let Some((at, content)) = self.known(from).snapshots.newest(|_| true) else {
            return Ok(());
        };
        let attempts = interrupted.iter().copied().chain([u64::MAX]);
        for breaks_after in attempts {
            let snapshot = match source.snapshots().latest() {
                Ok(snapshot) => snapshot,
                Err(error) => return self.stop(&error, "latest"),
            };
            ensure!(snapshot.slot().0 == at, "the latest is {}, not {at}", snapshot.slot());
            let disk = self.disk.clone();
            let known = self.known(to);
            known.snapshots.publishing(at, content);
            let (sent, received) = pipe::transfer(snapshot, &dest, breaks_after);
            match (sent, received) {
                (Ok(()), Ok(info)) => {
                    ensure!(info.slot.0 == at, "the snapshot of slot {} was received", info.slot);
                    known.snapshots.published(at);
                }
                _ if !disk.is_on() => return Err(crate::plan::Stop::Ended),
                (_, Ok(_)) => known.snapshots.published(at),
                (Err(_), Err(_)) if breaks_after < u64::MAX => {}
                (sent, received) => broken!("sending: {sent:?}, receiving: {received:?}"),
            }
            known.snapshots.look(&dest, || disk.is_on())?;
        }
        Ok(())
    }

    /// Flips a bit of the newest whole snapshot, if an older one still covers what is truncated.
    pub(super) fn corrupt(&mut self, life: &Life, number: u64, bit: u64) -> LifeResult {
        let guard = self.get(life, number)?;
        let known = self.known(number);
        let start = known.log.model.start();
        let Some((at, content)) = known.snapshots.newest(|_| true) else { return Ok(()) };
        let older = known.snapshots.newest(|older| older < at && older + 1 >= start);
        if older.is_none() || content.len == 0 {
            return Ok(());
        }
        let disk = self.disk.clone();
        let logs = match logs_on(Arc::new(disk.process()), DIR) {
            Ok(logs) => logs.unwrap_or_default(),
            Err(error) => return self.stop(&error, "listing the logs"),
        };
        let Some(log) = logs.into_iter().find(|log| log.key == guard.key()) else {
            return Ok(());
        };
        let file = Path::new(&log.dir).join(format!("snapshot-{at:020}"));
        let first_chunk = content.len.min(1 << 20) as u64;
        let bit = BEFORE_CONTENT * 8 + bit % (first_chunk * 8);
        let flipped = disk.flip_bit(&file, bit);
        ensure!(flipped.is_ok(), "{}: {flipped:?}", file.display());
        self.known(number).snapshots.corrupted(at);
        Ok(())
    }
}

/// Writes a snapshot, as a stream or in parts.
fn write(
    log: &ConsensusLog,
    at: u64,
    content: Content,
    part: usize,
) -> Result<(), CreateSnapshotError> {
    let (mut writer, bytes) = (log.snapshots().writer(Slot(at))?, content.bytes());
    let written = match part {
        0 => writer.copy_from(&*bytes).map(drop),
        part => bytes.chunks(part).try_for_each(|part| writer.write_all(part)),
    };
    match written {
        Ok(()) => writer.finish(&content.note()).map(drop),
        Err(cause) => Err(CreateSnapshotError::Stream(Arc::new(cause))),
    }
}
