//! Reading single records, and the log's metadata.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::base::error::{Error, Result, refuse_if_forked};
use crate::base::position::{Place, Position, Seq};
use crate::commit::core::Core;
use crate::commit::write_half::ChangingSegments;
use crate::log::Log;
use crate::log::stats::LogStats;
use crate::read::batch::{Batch, Payload, View};
use crate::read::cursor::{self, Start};
use crate::read::feed::LocalFeed;
use crate::read::metadata::{Metadata, SegmentInfo};
use crate::read::placed;
use crate::read::placed_many;
use crate::read::source::Source;
use crate::read::stream::{LogStream, read_one};
use crate::runtime::backoff::Backoff;
use crate::runtime::counters::Counts;
use crate::runtime::waiters::{For, Registered};
use crate::staging::staged::Staged;
use crate::store::directory;

/// Whether all appenders of a unit have copied their payloads. No record gets a place in it while
/// the core is locked.
fn is_filled(core: &Core, staged: &Staged) -> bool {
    let bytes = staged.records.end - staged.records.start;
    core.written().unit >= staged.unit || core.fill_tracker(staged.unit).complete(bytes).is_some()
}

impl Log {
    /// Streams records from a start point on. Does no I/O until the first batch, except for
    /// [`Start::At`] and [`Start::Position`], and uses almost no memory.
    ///
    /// # Errors
    /// [`Error::Trimmed`] when the start point was dropped, [`Error::InvalidPosition`],
    /// [`Error::Closed`].
    ///
    /// # Examples
    /// ```
    /// # use esker_log::{Append, Log, Start};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// log.write(Append::records(&["a", "b"]))?.blocking_wait()?;
    /// let mut stream = log.stream(Start::Oldest)?;
    /// while let Some(batch) = stream.try_next()? {
    ///     for record in &batch {
    ///         println!("{} {:?}", record.seq, record.payload);
    ///     }
    /// }
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn stream(&self, start: Start) -> Result<LogStream> {
        Ok(LogStream::new(Box::new(LocalFeed::new(&self.read, start)?.registered())))
    }

    /// Returns the record with this number. Unless the record is in memory, reads at most the bytes
    /// between two sparse index entries plus the record, and blocks for that. Bytes that come from
    /// a file are checked.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no durable record has this number, [`Error::Trimmed`],
    /// [`Error::Quarantined`], [`Error::Corrupted`], [`Error::Io`], [`Error::Closed`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = esker_log::Log::open(dir.path().join("log"))?;
    /// let appended = log.append("a record")?.blocking_wait()?;
    /// assert_eq!(&*log.read(appended.seq)?, b"a record");
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read(&self, seq: impl Into<Seq>) -> Result<View> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read(source, seq.into()).map_err(|error| cursor::exactly(source, error))
    }

    /// As [`Log::read`], without blocking: unless the record is in memory, a thread of the engine
    /// reads up to a megabyte, which all streams share.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// As [`Log::read`].
    ///
    /// # Examples
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// # let dir = tempfile::tempdir().unwrap();
    /// let log = esker_log::Log::open_async(dir.path().join("log")).await?;
    /// let appended = log.append_async("a record").await?.await?;
    /// assert_eq!(&*log.read_async(appended.seq).await?, b"a record");
    /// log.close_async().await?;
    /// # Ok::<(), esker_log::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn read_async(&self, seq: impl Into<Seq>) -> Result<View> {
        let seq = seq.into();
        self.refuse_if_closed()?;
        if seq == Seq::ZERO {
            return Err(Error::NotFound { seq });
        }
        read_one(LocalFeed::new(&self.read, Start::From(seq))?, seq).await
    }

    /// Returns the record at a position taken from a ticket or a record. Blocks as [`Log::read`].
    ///
    /// # Errors
    /// [`Error::InvalidPosition`] when no durable record starts there, and as [`Log::read`].
    pub fn read_at(&self, position: Position) -> Result<View> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        cursor::read_at(source, position).map_err(|error| cursor::exactly(source, error))
    }

    /// Returns the payload of a record whose place is known, accepted or durable. For components
    /// that keep an index of places.
    ///
    /// Unless the record is in memory, it reads exactly the blocks of the record, with one read
    /// that is never throttled, and checks the record's checksum. If the place holds another
    /// record, because recovery moved this one, it finds the record by its number.
    ///
    /// # Errors
    /// As [`Log::read`]. [`Error::NotFound`] also if the log never accepted this record there.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Append, Log, Place};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let ticket = log.append("a record")?;
    /// let place = Place { seq: ticket.seq(), position: ticket.position(), len: 8 };
    /// assert_eq!(&*log.read_placed(place)?, b"a record"); // accepted
    /// ticket.blocking_wait()?;
    /// assert_eq!(&*log.read_placed(place)?, b"a record"); // durable
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read_placed(&self, place: Place) -> Result<Payload> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        let mut written = source.limit().0;
        if place.position.0 >= written {
            match self.read_staged(place) {
                Ok(payload) => return Ok(payload),
                Err(end) => written = end,
            }
        }
        placed::find(source, place, written).map_err(|error| cursor::exactly(source, error))
    }

    /// Returns the payloads of several records whose places are known, where that needs few reads:
    /// records that are near each other are read together, and up to 8 threads read at a time.
    /// `None` for a record that [`Log::read_placed`] has to read: it is in memory only, or at
    /// another place, or its read failed.
    ///
    /// Payloads that were read together keep the memory of one read, up to 256 KiB.
    ///
    /// # Errors
    /// [`Error::Closed`].
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Append, Log, Place};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let log = Log::open(dir.path().join("log"))?;
    /// let tickets = [log.append("first")?, log.append("other")?];
    /// log.barrier()?.blocking_wait()?;
    /// let places = tickets.map(|t| Place { seq: t.seq(), position: t.position(), len: 5 });
    /// let found = log.read_placed_many(&places)?;
    /// assert_eq!(found[1].as_deref(), Some(&b"other"[..]));
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn read_placed_many(&self, places: &[Place]) -> Result<Vec<Option<Payload>>> {
        self.refuse_if_closed()?;
        let source = &*self.read;
        let parallel = !self.write.engine.is_manual();
        Ok(placed_many::find(source, places, source.limit().0, parallel))
    }

    /// The record at this place, if it is staged. Otherwise the position up to which everything is
    /// written to the files.
    fn read_staged(&self, place: Place) -> std::result::Result<Payload, u64> {
        self.once_filled(|core| {
            let found = core.staged().find(|staged| {
                let offset = place.position.0.checked_sub(staged.buffer.base);
                offset.is_some_and(|offset| {
                    let records = u64::from(staged.records.start)..u64::from(staged.records.end);
                    records.contains(&offset)
                })
            });
            let Some(staged) = found else { return Some(Err(core.released().position)) };
            let filled = is_filled(core, &staged);
            let payload = || placed::of_staged(&staged, place).ok_or(core.released().position);
            filled.then(payload)
        })
    }

    /// Waits until `check` finds the units that it needs filled. It holds the lock for the time of
    /// a copy. An appender that updates a large index takes longer, and then the lock is free.
    fn once_filled<T>(&self, mut check: impl FnMut(&Core) -> Option<T>) -> T {
        let mut backoff = Backoff::default();
        loop {
            let state = self.write.lock();
            loop {
                if let Some(found) = check(&state.core) {
                    return found;
                }
                if !backoff.spin() {
                    break;
                }
            }
            drop(state);
            backoff.sleep();
        }
    }

    /// Returns the records that are accepted but not yet durable, in order. No other read returns
    /// them, and a crash may lose them. Under [`Policy::OsBuffered`](crate::Policy::OsBuffered)
    /// these are the records not yet written to the operating system.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn accepted_tail(&self) -> Result<Vec<Batch>> {
        self.refuse_if_closed()?;
        let staged = self.once_filled(|core| {
            let staged: Vec<_> = core.staged().collect();
            staged.iter().all(|staged| is_filled(core, staged)).then_some(staged)
        });
        Ok(staged.into_iter().map(Batch::of_staged).collect())
    }

    /// Returns the number of the last durable record, without I/O; `None` when there never was one.
    pub fn last(&self) -> Option<Seq> {
        let seq = self.durable();
        (seq > Seq::ZERO).then_some(seq)
    }

    /// Returns the number of the oldest stored record, or of the next record in an empty log.
    pub fn oldest(&self) -> Seq {
        cursor::oldest(&*self.read)
    }

    /// Returns the durable watermark: every record up to it survives power loss. 0 when there is
    /// none.
    #[inline]
    pub fn durable(&self) -> Seq {
        Seq(self.read.watermark.seq())
    }

    /// Returns the number of the last accepted record; 0 when there is none.
    pub fn accepted(&self) -> Seq {
        Seq(self.write.lock().core.last_seq())
    }

    /// Returns the number of the last accepted record of each of these logs, all at one moment: a
    /// record that was accepted in one of them before another one of these was, in any of them, has
    /// one of these numbers or a lower one. Appends to all of them wait meanwhile: less than a
    /// microsecond for each log.
    ///
    /// # Examples
    /// ```
    /// use esker_log::{Append, Log, Seq};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    /// let (a, b) = (Log::open(&a)?, Log::open(&b)?);
    /// a.append("a record")?.blocking_wait()?;
    /// assert_eq!(Log::accepted_at_once(&[&a, &b, &a]), [Seq(1), Seq(0), Seq(1)]);
    /// # Ok::<(), esker_log::Error>(())
    /// ```
    pub fn accepted_at_once(logs: &[&Log]) -> Vec<Seq> {
        // Every caller locks in the same order, and each log once.
        let address = |log: &&Log| Arc::as_ptr(&log.write) as usize;
        let mut ordered: Vec<&Log> = logs.to_vec();
        ordered.sort_unstable_by_key(address);
        ordered.dedup_by_key(|log| address(log));
        let locked: Vec<_> = ordered.iter().map(|log| log.write.lock()).collect();
        let accepted: Vec<_> = locked.iter().map(|state| Seq(state.core.last_seq())).collect();
        drop(locked);
        let of = |log: &&Log| ordered.binary_search_by_key(&address(log), address).ok();
        logs.iter().filter_map(|log| Some(*accepted.get(of(log)?)?)).collect()
    }

    /// Waits until the durable watermark reaches a number. Requests no commit.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// The reason why the log accepts no more records, when that happens first.
    pub async fn wait_durable(&self, seq: impl Into<Seq>) -> Result<()> {
        let seq = seq.into().0;
        let mut place = Registered::new(&self.read.waiters);
        poll_fn(|cx| {
            refuse_if_forked()?;
            self.read.waiters.register(&mut place.key, For::Durable(seq), cx.waker());
            match self.write.outcome(seq) {
                Some(outcome) => Poll::Ready(outcome),
                None if self.read.is_closed() => Poll::Ready(Err(Error::Closed)),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Returns the segments that hold durable records, oldest first. No I/O.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        SegmentInfo::of(&self.read.segments, self.durable().0)
    }

    /// Returns whether `repair`, or an open with repair enabled, ever quarantined corrupt units of
    /// this log.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn was_repaired(&self) -> Result<bool> {
        directory::was_repaired(&*self.write.dir)
    }

    /// Returns what the log stores. No I/O.
    pub fn metadata(&self) -> Metadata {
        let (id, session) = (self.write.id, self.recovery().session);
        Metadata::new(&*self.read, id, session, self.read.cache.bytes())
    }

    /// Returns what this process did with the log since it opened it, and what is pending. No I/O.
    pub fn stats(&self) -> LogStats {
        let write = &*self.write;
        let waiting = write.waiters.callers();
        let state = write.lock();
        let (core, committing) = (&state.core, state.committing_callers);
        let (appended, payload_bytes) = core.appended();
        let (records, pending) = (core.written_records(), core.pending_records());
        let (accepted, in_flight) = (core.last_seq(), core.in_flight());
        drop(state);
        let Counts { commits, syncs, bytes } = write.counters.read();
        LogStats {
            commits,
            syncs,
            bytes,
            records,
            appended,
            payload_bytes,
            accepted: Seq(accepted),
            pending,
            in_flight,
            waiting: write.waiters.len(),
            waiting_for_durability: waiting.for_durability
                + committing.for_durability
                + write.callbacks.len(),
            waiting_for_room: waiting.for_room + committing.for_room,
            memory_bytes: write.tail.bytes(),
            disk: self.owner.disk_name,
            direct: write.mode.direct,
            dsync: write.mode.dsync,
        }
    }

    pub(crate) fn refuse_if_closed(&self) -> Result<()> {
        self.read.refuse_if_closed()
    }

    /// Takes the lock of the set of segments, unless the log is closed.
    pub(crate) fn change_segments(&self) -> Result<ChangingSegments<'_>> {
        refuse_if_forked()?;
        let changing = self.write.change_segments();
        self.refuse_if_closed()?;
        Ok(changing)
    }
}
