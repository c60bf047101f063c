//! The directory that a log is copied to.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use esker_disk::{Dir, Lock};

use super::lineage::Earlier;
use super::segment::{self, Copied};
use crate::base::component::UNFINISHED_BACKUP;
use crate::base::error::{Error, Result};
use crate::base::log_end::Mark;
use crate::base::options::Retention;
use crate::base::position::Seq;
use crate::base::read_options::ReadOptions;
use crate::consumers;
use crate::format::{LogId, SegmentHeader};
use crate::read::snapshot::SnapshotReader;
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
    /// The lineage of the backup before, if there is one.
    lineage: Option<Lineage>,
    /// Whether nothing else opens it yet.
    unfinished: bool,
    /// Segments that were copied and have no name yet.
    unnamed: BTreeSet<u64>,
    _lock: Box<dyn Lock>,
}

/// What a complete copy has.
pub(super) struct CopiedLog {
    /// The session of its last unit, or a later one.
    pub(super) session: u64,
    pub(super) lineage: Lineage,
    /// What its last writer kept of it.
    pub(super) retention: Retention,
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
        if names.iter().any(|name| name == paths::LOCK) {
            return refuse("it was opened for writing, so that it is a log of its own".into());
        }
        match &manifest {
            Some(found) if found.log != log => {
                return refuse(format!("it is of the log {}, and this is {log}", found.log));
            }
            Some(found) if found.session > session => {
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
        for name in names.iter().filter(|name| paths::classify(name) == Name::Temporary) {
            dir.unlink(name)?;
        }
        let unfinished = manifest.is_none() || component.is_some();
        if unfinished {
            // The process that created the directory may have died before its name was durable.
            options.disk.create_dir(path)?;
        }
        if unfinished && component.is_none() {
            app_metadata::write(&*dir, UNFINISHED_BACKUP, &[])?;
        }
        let lineage = manifest.map(|manifest| manifest.lineage);
        let manifest = manifest.unwrap_or_else(|| Manifest::new(log));
        Ok(Self { dir, manifest, lineage, unfinished, unnamed: BTreeSet::new(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The backup before; `None` if there is none, not even one that an interrupted backup left
    /// with a gap.
    pub(super) fn earlier(&self) -> Option<Earlier> {
        self.lineage.map(|lineage| Earlier { lineage, last: self.last() })
    }

    /// The last record of the backup before; `None` if there is no complete one, or it is empty.
    pub(super) fn last(&self) -> Option<Seq> {
        let last = Seq(self.manifest.durable_bound());
        (!self.unfinished && last > Seq::ZERO).then_some(last)
    }

    /// Whether all of a segment is there that `next` follows.
    pub(super) fn has(&self, segment: &Segment, next: &SegmentHeader) -> bool {
        segment::is_there(&*self.dir, &self.manifest, segment, next)
    }

    /// Copies a segment up to an offset. It gets its name at once where nothing else opens the
    /// directory, so that the next backup continues here, and with [`Dest::name_segments`]
    /// otherwise.
    pub(super) fn copy(
        &mut self,
        segment: &Segment,
        end: u32,
        next: Option<&SegmentHeader>,
        density: Density,
    ) -> Result<Copied> {
        let copied = segment::copy(&*self.dir, &self.manifest, segment, end, next, density)?;
        if matches!(copied, Copied::Valid(..)) {
            self.unnamed.insert(segment.number());
            if self.unfinished {
                self.publish()?;
            }
        }
        Ok(copied)
    }

    /// Forgets what an attempt copied and did not name.
    pub(super) fn begin_again(&mut self) {
        self.unnamed.clear();
    }

    /// Gives the copied segments their names, in ascending order. `first` is the header of the
    /// first segment of the log.
    pub(super) fn name_segments(&mut self, first: &SegmentHeader) -> Result<()> {
        if !self.unfinished && !self.unnamed.is_empty() {
            if self.is_continued_by(first)? {
                self.remove_clean_end()?;
            } else {
                // Until the copy is complete, it has a gap, and nothing opens it.
                app_metadata::write(&*self.dir, UNFINISHED_BACKUP, &[])?;
                self.unfinished = true;
            }
        }
        self.publish()
    }

    /// Whether the segments that are there reach up to the first one of the log.
    fn is_continued_by(&self, first: &SegmentHeader) -> Result<bool> {
        let names = self.dir.list()?;
        let mut segments = names.iter().filter_map(|name| match paths::classify(name) {
            Name::Segment(number) => Some(number),
            _ => None,
        });
        Ok(segments.any(|number| number == first.segment || number == first.prev_segment))
    }

    fn remove_clean_end(&mut self) -> Result<()> {
        let manifest = &mut self.manifest;
        if manifest.clean.is_some() {
            manifest.durable = manifest.durable_bound();
            manifest.clean = None;
            manifest.write(&*self.dir)?;
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        while let Some(number) = self.unnamed.pop_first() {
            let name = paths::segment(number);
            sealed_file::publish(&*self.dir, &paths::temporary(&name), &name)?;
        }
        Ok(())
    }

    /// Copies a snapshot, unless it is there. Another one of that number is replaced.
    pub(super) fn copy_snapshot(&self, from: &dyn Dir, at: u64) -> Result<()> {
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
        copy.publish()
    }

    /// Makes the copy a log that ends there, with the offsets of its consumers, and removes what is
    /// not of it.
    pub(super) fn finish(&mut self, from: &dyn Dir, copied: &CopiedLog) -> Result<()> {
        let CopiedLog { session, lineage, retention, .. } = copied;
        let CopiedLog { low, end, position, segments, snapshots, .. } = copied;
        let dir = &*self.dir;
        let first = segments.first().copied().unwrap_or_default();
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
            lineage: *lineage,
            retention: *retention,
            is_copy: true,
            ..self.manifest
        };
        manifest.write(dir)?;
        self.manifest = manifest;
        let mut page = WatermarkPage::open(dir, manifest.log, manifest.session, *low)?;
        let (seq, segment) = (end.seq, end.segment);
        page.store_durably(Mark { unit: 0, position: *position, seq, segment })?;
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
