//! The options of a log and their validation.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::{Disk, HugePages, StdDisk};

use crate::base::component::Component;
use crate::base::error::Result;
use crate::base::invalid_option::InvalidOption;
use crate::base::lender::SharedReserve;
use crate::format::{BLOCK_BYTES, RECORD_LIMIT_MAX, SEGMENT_MAX};
use crate::runtime::engine::Engine;

/// The part of the reserve that is meant for a checkpoint.
const CHECKPOINT_RESERVE_BYTES: u64 = 1 << 20;
/// The largest reserve, in bytes. It becomes a segment, so it is no larger than one.
pub const RESERVE_MAX: u64 = (SEGMENT_MAX / 4) as u64;
/// The least `segment_size`.
const SEGMENT_MIN: u32 = 64 << 10;
/// The most bytes of a reserve that are kept for opening after a crash; of a smaller reserve it is
/// half. The rest is for records that free space.
pub const RESERVE_KEPT_MOST: u64 = 16 << 20;

/// The rule for commits without a request, and so for what a crash may lose.
///
/// Awaiting a [`Ticket`](crate::Ticket) or calling [`Log::barrier`](crate::Log::barrier) requests a
/// commit under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Group commit: every record is committed as soon as the device is free, together with all
    /// others that wait. A crash loses nothing whose ticket resolved.
    #[default]
    Always,
    /// A commit for every `n` appends, as in `Policy::Batch(NonZeroU64::new(100).unwrap())`. An
    /// append is a record, or an atomic batch as a whole. A crash loses at most `n` - 1 appends
    /// with no commit in flight and 2`n` - 1 with one; an append that would exceed that waits.
    /// Each record of a batch that is not atomic is an append, because a crash may keep a part of
    /// such a batch.
    Batch(NonZeroU64),
    /// A commit this long after the first uncommitted record, by a timer of the engine. A crash
    /// loses what was accepted within this time plus the duration of one commit.
    Periodic(Duration),
    /// Records are handed to the operating system. They are synced on request, at `close`, and when
    /// two segments before the current one hold records that were never synced. A killed process
    /// loses what it had not handed over yet; a power cut may lose everything since the last sync.
    OsBuffered,
}

/// How much the log keeps. Every limit that is set applies. Except by age, whole segments are
/// dropped, oldest first, and never the active segment. Without a limit everything is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Retention {
    /// The most bytes in segments, the active one included.
    pub bytes: Option<u64>,
    /// The most segments, the active one included. At least 2.
    pub segments: Option<u64>,
    /// The most records. At least 1. Only whole segments are dropped, so up to one segment's
    /// records more may stay.
    pub records: Option<u64>,
    /// The longest time since the commit of a record. Older records cannot be read any more,
    /// whether other records come or not; their space is freed with the last record of their
    /// segment. Checked when the log is opened and closed, and in between every eighth of this
    /// time, but at least a second and at most a minute apart; some records stay for a 256th of
    /// this time longer. More than 0.
    ///
    /// While the log is open, ages are counted on a monotonic clock, so a step of the wall clock
    /// neither drops records nor keeps them. A record from before the opening has the age that its
    /// [time](crate::Record::time) has by the wall clock at the opening. If its time is ahead of
    /// that clock, it counts as committed at the opening: a log that is never open for this long
    /// keeps such records until everything is truncated.
    pub age: Option<Duration>,
}

impl Retention {
    /// No limit.
    pub const NONE: Retention = Retention { bytes: None, segments: None, records: None, age: None };

    pub(crate) fn is_set(&self) -> bool {
        *self != Self::NONE
    }

    /// Checks the limits, for segments of this size.
    pub(crate) fn validate(&self, segment_size: u32) -> Result<()> {
        let Retention { bytes, segments, records, age } = *self;
        rule(
            segments.is_none_or(|n| n >= 2),
            "retention.segments",
            "at least 2: a ring of one would drop everything at each turn",
        )?;
        rule(records != Some(0), "retention.records", "at least 1")?;
        rule(age != Some(Duration::ZERO), "retention.age", "more than 0, such as 10ms")?;
        let Some(bytes) = bytes else { return Ok(()) };
        let ring = 2 * u64::from(segment_size);
        let least = 2 * u64::from(SEGMENT_MIN);
        let smaller = match bytes.checked_ilog2() {
            // The largest power of two of which two fit.
            Some(bits) if bytes >= least => {
                format!("a segment_size of {} allows {bytes}", in_units(1 << (bits - 1)))
            }
            _ => format!("at least {} with the smallest segments", in_units(least)),
        };
        let ring_rule = format!("at least {}, two segments; {smaller}", in_units(ring));
        rule(bytes >= ring, "retention.bytes", &ring_rule)
    }
}

/// A number of bytes, and the same in K or M where that is whole, as the command takes it.
fn in_units(bytes: u64) -> String {
    let units = [(20, 'M'), (10, 'K')];
    let found = units.into_iter().find(|(bits, _)| bytes.is_multiple_of(1 << bits));
    found.map_or(bytes.to_string(), |(bits, unit)| format!("{bytes} ({}{unit})", bytes >> bits))
}

/// Whether commits bypass the page cache (O_DIRECT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Direct {
    /// Where the file system supports it and the policy benefits: every policy but
    /// [`OsBuffered`](Policy::OsBuffered).
    #[default]
    Auto,
    /// Always; opening fails where the file system does not support it.
    On,
    /// Never.
    Off,
}

/// The action of opening when durable bytes are corrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnCorruption {
    /// Opening fails with [`Error::Corrupted`](crate::Error::Corrupted) and changes nothing.
    #[default]
    Fail,
    /// The corrupt commit units are quarantined under `quarantine/`, and the rest stays. Reading
    /// them returns [`Error::Quarantined`](crate::Error::Quarantined).
    Quarantine,
    /// Everything from the corrupt unit on is quarantined under `quarantine/` and cut off.
    Truncate,
}

/// How much is checked at opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OpenCheck {
    /// Every segment's header and footer, and every byte that no footer covers. After a clean close
    /// that is the end of the newest segment: the units of its last four times
    /// [`Options::index_bytes`], 256 KiB by default. A corrupt record before them is found when it
    /// is read.
    #[default]
    Quick,
    /// Every byte of every segment.
    Full,
}

/// Options of a log that is opened for writing. [`Options::default`] suits a write-ahead log on an
/// SSD.
///
/// [`Log::builder`](crate::Log::builder) has a method for each of them, and
/// [`Log::options`](crate::Log::options) returns them. The struct is non-exhaustive: start from
/// [`Options::default`] and set fields. No option must stay the same from one
/// opening to the next: a log written with one set of options opens with any other.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The rule for commits without a request. Default [`Policy::Always`].
    pub policy: Policy,
    /// How much is kept. Default: everything.
    pub retention: Retention,
    /// The largest payload in bytes, inclusive. Default 1 MiB, at most
    /// [`RECORD_LIMIT_MAX`], 64 MiB and 4 KiB.
    pub record_limit: u32,
    /// The size at which a segment is full, in bytes: a multiple of 4096, from 64 KiB to 512 MiB.
    /// Default 64 MiB. The file grows on demand. A larger record or atomic batch gets a segment of
    /// its own. Each segment of an open log takes one file descriptor.
    pub segment_size: u32,
    /// The bytes that stay reserved on the disk, in a file of their own, for operations that must
    /// succeed on a full disk. These are opening after a crash, and the internal appends by which a
    /// component frees space ([`Purpose::Internal`](crate::component::Purpose::Internal)), which
    /// leave half of it, at most 16 MiB, to openings. Ordinary appends get
    /// [`Error::NoSpace`](crate::Error::NoSpace) while the reserve is missing and cannot be made.
    ///
    /// The reserve is filled when the log is opened and when space was freed. It leaves as much
    /// free space as it has, and has at least 64 KiB. In a log with a retention it does not grow by
    /// itself. A size given here makes one that is there larger or smaller, and holds until the
    /// next opening.
    ///
    /// Default `None`: a segment's header, `buffers` times `buffer_size`, and 1 MiB for one
    /// checkpoint. At most 512 MiB. `Some(0)` keeps none: then a log on a full disk may not open
    /// before there is room.
    pub reserve: Option<u64>,
    /// The number of records at which a segment is full as well. Default: no such limit.
    pub segment_records: Option<u64>,
    /// The size of one staging buffer in bytes, a multiple of 4096 from 8 KiB to 64 MiB. Default
    /// 4 MiB. A larger record gets a buffer of its own. A buffer uses memory only as it is filled.
    /// One write carries a whole one at most. A commit unit, which is checked as a whole, has a
    /// quarter of it, and 1 MiB at most.
    pub buffer_size: u32,
    /// The most buffers that hold records not yet durable, from 2 to 1024. Default 8. When they are
    /// full, appending waits, or fails with [`Error::Full`](crate::Error::Full).
    pub buffers: u32,
    /// The most commits in flight at a time where each is one write that is durable by itself (see
    /// `dsync`); otherwise there is one. From 1 to 8, default 2. With more, the device can process
    /// several writes at once, and a crash may leave more of them that were never durable.
    pub commits_in_flight: u32,
    /// Whether the staging buffers are on huge pages of the kernel's pool. Default `false`: the
    /// kernel is asked for transparent huge pages, for all buffers but the first of the log. With
    /// this, all of them are reserved at opening, which fails with
    /// [`Error::HugePages`](crate::Error::HugePages) when the kernel has too few in its pool.
    /// `buffer_size` must be a multiple of the size of a huge page, usually 2 MiB.
    ///
    /// The number of buffers reserved, each of `buffer_size`, is one more than the larger of
    /// `buffers` and what `tail_cache` has room for. Buffers of larger records, and those made
    /// while readers hold all of these, are ordinary memory.
    pub huge_pages: bool,
    /// The bytes of durable records kept in memory for readers at the tip. Default 8 MiB.
    pub tail_cache: u64,
    /// The bytes of memory that batches of readers may hold beyond the tail cache. Default 64 MiB.
    /// A batch from the tail holds a staging buffer until it is dropped. When batches that are
    /// still held exceed this limit, all readers read from the files until they hold less. What was
    /// handed out by then, at most the tail cache, may come on top.
    pub reader_memory: u64,
    /// The bytes of records read from files that are cached for other readers of the same range.
    /// Default 16 MiB. Readers that lag share what one of them read. The memory is usually 4/3
    /// of this, and at most 8 times this.
    pub read_cache: u64,
    /// The most bytes between two entries of the sparse index. Default 64 KiB, from 4 KiB to
    /// 512 KiB. A denser index takes more memory (24 bytes per entry); with a sparser one a
    /// lookup reads more.
    pub index_bytes: u32,
    /// The most records between two entries of the sparse index. Default 1024, at least 1.
    pub index_records: u32,
    /// Whether commits bypass the page cache (O_DIRECT). Default [`Direct::Auto`].
    pub direct: Direct,
    /// Whether the file is opened with O_DSYNC, so that every write is durable by itself, where the
    /// policy wants every commit durable. Default `true`: one system call less per commit. With
    /// `false` a commit is a write and an fdatasync. Even with `true`, full buffers that no caller
    /// waits for share an fdatasync under [`Policy::Always`], at most half of `buffers`, if these
    /// are 4 or more.
    pub dsync: bool,
    /// The action on corruption. Default: fail.
    pub on_corruption: OnCorruption,
    /// How much is checked at opening. Default: quick.
    pub check: OpenCheck,
    /// Opening fails where there is no log. Default `false`: a log is created.
    pub must_exist: bool,
    /// The component that the log belongs to, for components that keep records of their own format
    /// in it. A log that is created gets it permanently. Opening the log of another component, or a
    /// plain log where a component is expected, fails before anything is changed. Readers,
    /// [`verify`](crate::verify) and [`repair`](crate::repair) work on the logs of all components.
    /// Default: none, a plain log.
    pub component: Option<Component>,
    /// The disk that holds the log. Default: the real disk.
    pub disk: Arc<dyn Disk>,
    /// The engine whose threads commit. Default: the one that all logs of the process share.
    pub engine: Option<Engine>,
    /// The reserve of another log on the same file system, which this one uses beside its own: for
    /// many logs that keep one together. Ordinary appends get
    /// [`Error::NoSpace`](crate::Error::NoSpace) while either is missing. Openings and internal
    /// appends take from it what they need, in parts. Give such a log a `reserve` of 0 bytes. Once
    /// the other log is closed, this one has its own alone. Default none.
    pub shared_reserve: Option<SharedReserve>,
    /// The processor that the commit threads are pinned to. The log then has an engine of its own,
    /// and `engine` must not be set; see [`Engine::pinned`] for a pinned engine that several logs
    /// share. A caller that waits on its own thread may commit there, on any processor.
    ///
    /// Default and recommendation: none, unless you measured a gain on a processor that handles the
    /// interrupts of the disk. See `docs/decisions` for figures.
    pub pin: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::Always,
            retention: Retention::NONE,
            record_limit: 1 << 20,
            segment_size: 64 << 20,
            reserve: None,
            segment_records: None,
            buffer_size: 4 << 20,
            buffers: 8,
            commits_in_flight: 2,
            huge_pages: false,
            tail_cache: 8 << 20,
            reader_memory: 64 << 20,
            read_cache: 16 << 20,
            index_bytes: 64 << 10,
            index_records: 1024,
            direct: Direct::Auto,
            dsync: true,
            on_corruption: OnCorruption::Fail,
            check: OpenCheck::Quick,
            must_exist: false,
            component: None,
            disk: Arc::new(StdDisk::new()),
            engine: None,
            shared_reserve: None,
            pin: None,
        }
    }
}

impl Options {
    /// The default options on another disk.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk, ..Self::default() }
    }

    /// The bytes of the reserve, in whole blocks: [`Options::reserve`], or the default.
    pub fn reserve_bytes(&self) -> u64 {
        let staged = u64::from(self.buffers) * u64::from(self.buffer_size);
        let bytes =
            self.reserve.unwrap_or(u64::from(BLOCK_BYTES) + staged + CHECKPOINT_RESERVE_BYTES);
        bytes.min(RESERVE_MAX).next_multiple_of(u64::from(BLOCK_BYTES))
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let blocks = |n: u32| n.is_multiple_of(BLOCK_BYTES);
        rule(self.record_limit <= RECORD_LIMIT_MAX, "record_limit", "at most 64 MiB and 4 KiB")?;
        rule(
            blocks(self.segment_size)
                && (SEGMENT_MIN..=SEGMENT_MAX / 4).contains(&self.segment_size),
            "segment_size",
            "a multiple of 4096 from 64 KiB to 512 MiB",
        )?;
        rule(self.reserve.is_none_or(|bytes| bytes <= RESERVE_MAX), "reserve", "at most 512 MiB")?;
        rule(self.segment_records != Some(0), "segment_records", "at least 1")?;
        rule(
            blocks(self.buffer_size) && (8 << 10..=64 << 20).contains(&self.buffer_size),
            "buffer_size",
            "a multiple of 4096 from 8 KiB to 64 MiB",
        )?;
        if let Some(page) = self.huge_pages.then(HugePages::page_size).flatten() {
            rule(
                (self.buffer_size as usize).is_multiple_of(page),
                "buffer_size",
                &format!("a multiple of {page}, the size of a huge page, with huge_pages"),
            )?;
        }
        rule(
            self.pin.is_none() || self.engine.is_none(),
            "pin",
            "of a log without an engine given",
        )?;
        rule((2..=1024).contains(&self.buffers), "buffers", "from 2 to 1024")?;
        rule((1..=8).contains(&self.commits_in_flight), "commits_in_flight", "from 1 to 8")?;
        index_rules(self.index_bytes, self.index_records)?;
        let sane = match self.policy {
            Policy::Periodic(period) => {
                !period.is_zero() && period <= Duration::from_secs(24 * 60 * 60)
            }
            Policy::Batch(n) => n.get() <= 1 << 32,
            Policy::Always | Policy::OsBuffered => true,
        };
        rule(
            sane,
            "policy",
            "Batch of at most 2^32, or Periodic of more than 0 and at most a day",
        )?;
        rule(
            self.policy != Policy::OsBuffered || self.direct != Direct::On,
            "direct",
            "off under OsBuffered, which is about the page cache",
        )?;
        self.retention.validate(self.segment_size)
    }
}

/// Generates the methods of a builder: one for each option, and one for all of them.
macro_rules! option_setters {
    ($options:ident {
        $($name:ident: $type:ty,)*
        ; $($optional:ident: $inner:ty,)*
    }) => {
        /// Replaces all options.
        pub fn options(mut self, options: impl Into<$options>) -> Self {
            let options: $options = options.into();
            // Does not compile if an option has no method here.
            let $options { $($name: _,)* $($optional: _,)* } = &options;
            self.options = options;
            self
        }

        $(
            #[doc = concat!("Sets [`", stringify!($options), "::", stringify!($name), "`].")]
            pub fn $name(mut self, $name: $type) -> Self {
                self.options.$name = $name;
                self
            }
        )*

        $(
            #[doc = concat!("Sets [`", stringify!($options), "::", stringify!($optional), "`].")]
            pub fn $optional(mut self, $optional: $inner) -> Self {
                self.options.$optional = Some($optional);
                self
            }
        )*
    };
}
pub(crate) use option_setters;

pub(super) fn index_rules(bytes: u32, records: u32) -> Result<()> {
    rule((4 << 10..=512 << 10).contains(&bytes), "index_bytes", "from 4 KiB to 512 KiB")?;
    rule(records > 0, "index_records", "at least 1")
}

fn rule(holds: bool, option: &'static str, rule: &str) -> Result<()> {
    Ok(InvalidOption::unless(holds, option, rule)?)
}
