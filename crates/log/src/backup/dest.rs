//! The directory that a log is copied to.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use esker_disk::{Dir, Lock};

use super::copy_segment::{self, Copied};
use super::lineage::Earlier;
use crate::base::component::UNFINISHED_BACKUP;
use crate::base::error::{Error, Result};
use crate::base::log_end::Mark;
use crate::base::log_error::LogError;
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::consumers;
use crate::format::{LogId, SegmentHeader};
use crate::read::snapshot_reader::SnapshotReader;
use crate::store::app_metadata;
use crate::store::chunked_file;
use crate::store::directory;
use crate::store::incoming_file::IncomingFile;
use crate::store::manifest::{End, Lineage, Manifest};
use crate::store::paths::{self, Name};
use crate::store::sealed_file;
use crate::store::segment_scan::Density;
use crate::store::segment_table::Segment;
use crate::store::snapshot_files;
use crate::store::watermark_page::WatermarkPage;

/// The directory, locked. Its file `lock` stays absent: a writer would make it.
pub(super) struct Dest {
    dir: Arc<dyn Dir>,
    /// The manifest of the backup before, or a new one.
    manifest: Manifest,
    /// The backup before, if there is one.
    earlier: Option<Earlier>,
    /// Whether nothing else opens it yet.
    unfinished: bool,
    /// Segments that were copied and have no name yet.
    unnamed: BTreeSet<u64>,
    /// Snapshots that were copied and have no name yet.
    unnamed_snapshots: BTreeSet<u64>,
    _lock: Box<dyn Lock>,
}

/// The contents of a complete copy.
pub(super) struct CopiedLog {
    /// The session of its last unit, or a later one.
    pub(super) session: u64,
    /// Its manifest, for what does not depend on the position of its end.
    pub(super) manifest: Manifest,
    /// The number of the last record that was trimmed.
    pub(super) low: u64,
    pub(super) end: End,
    /// The position of the end.
    pub(super) position: u64,
    /// The numbers of its segments: at least one.
    pub(super) segments: BTreeSet<u64>,
    /// The numbers of its snapshots.
    pub(super) snapshots: BTreeSet<u64>,
}

impl Dest {
    pub(super) fn open(
        options: &ReadOptions,
        path: &Path,
        log: LogId,
        session: u64,
        lineage: Lineage,
    ) -> Result<Self> {
        let dir = match options.disk.open_dir(path) {
            Err(cause) if cause.kind() == ErrorKind::NotFound => options.disk.create_dir(path)?,
            opened => opened?,
        };
        dir.readable_as(paths::MANIFEST)?;
        let lock = directory::hold(&*dir)?;
        let names = dir.list()?;
        let refuse = |found: String| Err(Error::NotThisBackup { dir: path.into(), found });
        let component = app_metadata::read(&*dir)?.map(|(component, _)| component);
        let manifest = Manifest::read(&*dir)?;
        if let Some(component) = component.filter(|component| *component != UNFINISHED_BACKUP) {
            return refuse(format!("it is of the component {component}"));
        }
        if names.iter().any(|name| name == paths::LOCK)
            || manifest.is_some_and(|manifest| !manifest.is_copy)
        {
            return refuse("it was opened for writing, so that it is a log of its own".into());
        }
        match &manifest {
            Some(found) if found.log != log => {
                return refuse(format!("it is of the log {}, and this is {log}", found.log));
            }
            // Of another lineage, its sessions say nothing.
            Some(found) if found.session > session && found.lineage == lineage => {
                return refuse(format!(
                    "it is newer than the log: session {}, and this is {session}",
                    found.session
                ));
            }
            None if component.is_none()
                && (paths::is_a_log(&names)
                    || names.iter().any(|name| paths::classify(name) == Name::Unknown)) =>
            {
                return refuse("it holds other files".into());
            }
            _ => {}
        }
        directory::unlink_temporary(&*dir)?;
        let unfinished = manifest.is_none() || component.is_some();
        if unfinished {
            // The process that created the directory may have died before its name was durable.
            options.disk.create_dir(path)?;
        }
        if unfinished && component.is_none() {
            app_metadata::write(&*dir, UNFINISHED_BACKUP, &[])?;
        }
        let earlier = match &manifest {
            Some(manifest) => Some(earlier(&*dir, manifest, unfinished)?),
            None => None,
        };
        let manifest = manifest.unwrap_or_else(|| Manifest::new(log));
        let (unnamed, unnamed_snapshots) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { dir, manifest, earlier, unfinished, unnamed, unnamed_snapshots, _lock: lock })
    }

    /// The backup before; `None` if none was complete.
    pub(super) fn earlier(&self) -> Option<Earlier> {
        self.earlier
    }

    /// Whether all of the segment is there that `next` follows.
    pub(super) fn leads_to(&self, next: &SegmentHeader) -> bool {
        copy_segment::leads_to(&*self.dir, &self.manifest, next)
    }

    /// Copies a segment up to an offset. It gets its name at once where nothing else opens the
    /// directory, so that the next backup continues here, and with [`Dest::name_files`]
    /// otherwise.
    pub(super) fn copy(
        &mut self,
        segment: &Segment,
        end: u32,
        next: Option<&SegmentHeader>,
        density: Density,
    ) -> Result<Copied> {
        let copied = copy_segment::copy(&*self.dir, &self.manifest, segment, end, next, density)?;
        if matches!(copied, Copied::Valid(..)) {
            self.unnamed.insert(segment.number());
            if self.unfinished {
                self.publish()?;
            }
        }
        Ok(copied)
    }

    /// Frees the space of what was copied and not named. The disk may be full.
    pub(super) fn give_up(self) {
        // The next backup does it, too. An unfinished one continues its snapshot.
        if !self.unfinished {
            let _ = chunked_file::remove(&*self.dir, paths::INCOMING);
        }
        let _ = directory::unlink_temporary(&*self.dir);
    }

    /// Forgets what an attempt copied and did not name.
    pub(super) fn begin_again(&mut self) {
        self.unnamed.clear();
        self.unnamed_snapshots.clear();
    }

    /// Gives the copied segments their names, in ascending order, and then the snapshots. `first`
    /// is the header of the first segment of the log, and `log` its manifest. From here on the copy
    /// may have a gap until it is finished, so everything was copied before.
    pub(super) fn name_files(&mut self, first: &SegmentHeader, log: &Manifest) -> Result<()> {
        if !self.unfinished && !self.unnamed.is_empty() {
            let is_continued = self.is_continued_by(first)?;
            // The records there are of this lineage, too, and those that come must be.
            let manifest = &mut self.manifest;
            (manifest.lineage, manifest.ancestors) = (log.lineage, log.ancestors);
            if is_continued {
                manifest.durable = manifest.durable_bound();
                manifest.clean = None;
            }
            manifest.write(&*self.dir)?;
            if !is_continued {
                // Until the copy is complete, it has a gap, and nothing opens it.
                app_metadata::write(&*self.dir, UNFINISHED_BACKUP, &[])?;
                self.unfinished = true;
            }
        }
        self.publish()?;
        while let Some(at) = self.unnamed_snapshots.pop_first() {
            sealed_file::publish(&*self.dir, &staged(at), &paths::snapshot(at))?;
        }
        Ok(())
    }

    /// Whether the first segment of the log has or follows what is there, so that the copy has no
    /// gap while the segments get their names.
    fn is_continued_by(&self, first: &SegmentHeader) -> Result<bool> {
        let is_there = self.dir.list()?.contains(&paths::segment(first.segment));
        let begins_there = first.prev_seq <= self.manifest.trim_seq;
        // The segment where the copy ends may have grown before the log dropped it.
        let follows_the_end = self.manifest.clean.is_some_and(|end| {
            (end.segment, end.seq, end.chain) == (first.prev_segment, first.prev_seq, first.chain)
        });
        Ok(is_there || begins_there || follows_the_end || self.leads_to(first))
    }

    fn publish(&mut self) -> Result<()> {
        while let Some(number) = self.unnamed.pop_first() {
            let name = paths::segment(number);
            sealed_file::publish(&*self.dir, &paths::temporary(&name), &name)?;
        }
        Ok(())
    }

    /// Copies a snapshot, unless it is there. Another one of that number is replaced.
    /// It gets its name as a segment does.
    pub(super) fn copy_snapshot(&mut self, from: &dyn Dir, at: u64) -> Result<()> {
        // It may have been removed meanwhile.
        let Some(mut source) = SnapshotReader::open(from, at)? else { return Ok(()) };
        let header = source.sealed_header();
        // The header has random numbers that are of this snapshot alone.
        if let Ok(Some(there)) = SnapshotReader::open(&*self.dir, at)
            && there.sealed_header() == header
        {
            return Ok(());
        }
        let copy = IncomingFile::find(Arc::clone(&self.dir), false, &header, |_, _| true)?;
        let mut copy = copy.begin(&header)?;
        while copy.next() < source.chunks() {
            copy.write(source.sealed_chunk(copy.next())?)?;
        }
        copy.seal()?;
        if self.unfinished {
            return copy.publish();
        }
        if copy.stage(&staged(at))? {
            self.unnamed_snapshots.insert(at);
        }
        Ok(())
    }

    /// Makes the copy a log that ends there, with the offsets of its consumers, and removes what is
    /// not of it.
    pub(super) fn finish(&mut self, from: &dyn Dir, copied: &CopiedLog) -> Result<()> {
        let CopiedLog { session, manifest: log, low, end, position, .. } = copied;
        let CopiedLog { segments, snapshots, .. } = copied;
        let dir = &*self.dir;
        let Some(first) = segments.first().copied() else {
            return Err(LogError::broken("a backup has a segment").into());
        };
        for name in dir.list()? {
            match paths::classify(&name) {
                // Recovery of the original replaced it.
                Name::Segment(number) if number > first && !segments.contains(&number) => {
                    dir.unlink(&name)?;
                }
                Name::Temporary => dir.unlink(&name)?,
                _ => {}
            }
        }
        let manifest = Manifest {
            session: self.manifest.session.max(*session),
            trim_segment: first,
            trim_seq: *low,
            durable: end.seq,
            clean: Some(*end),
            lineage: log.lineage,
            ancestors: log.ancestors,
            retention: log.retention,
            is_copy: true,
            ..self.manifest
        };
        manifest.write(dir)?;
        self.manifest = manifest;
        let mut page = WatermarkPage::open(dir, manifest.log, manifest.session, *low)?;
        let (seq, segment) = (end.seq, end.segment);
        // In both slots: the other one may have a later trim point of the same session.
        page.store_in_both_slots(Mark { unit: 0, position: *position, seq, segment })?;
        consumers::copy(from, dir, manifest.log, Seq(end.seq))?;
        if self.unfinished {
            dir.unlink(paths::APP_METADATA)?;
        }
        for name in dir.list()? {
            if let Name::Segment(number) = paths::classify(&name)
                && number < first
            {
                dir.unlink(&name)?;
            }
        }
        for at in snapshot_files::list(dir)? {
            if !snapshots.contains(&at) {
                chunked_file::remove(dir, &paths::snapshot(at))?;
            }
        }
        chunked_file::remove(dir, paths::INCOMING)?;
        dir.sync()?;
        self.unfinished = false;
        Ok(())
    }
}

fn earlier(dir: &dyn Dir, manifest: &Manifest, unfinished: bool) -> Result<Earlier> {
    let is_interrupted = unfinished || manifest.clean.is_none();
    let last = manifest.durable_bound();
    let mut last_there = last;
    if is_interrupted {
        // The manifest is of the backup before, and only this copy may have what came since.
        last_there = last.max(copy_segment::last_record(dir, manifest)?);
    }
    let (last, last_there) = (Seq(last), Seq(last_there));
    Ok(Earlier { lineage: manifest.lineage, last, is_interrupted, last_there })
}

/// The temporary name of a snapshot. The directory is locked: no other snapshot is written.
fn staged(at: u64) -> String {
    paths::snapshot_aside(at, 0)
}
