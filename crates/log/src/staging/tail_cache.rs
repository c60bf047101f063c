//! The newest staging buffers of the log, in order: those being filled, those being written, and
//! the last durable ones, kept for readers at the tip.
//!
//! Small commits share a buffer, so the cache holds as many bytes as its option says.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_disk::{AlignedBuf, HugePages};
use parking_lot::RwLock;

use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::staging::buffer::{BufferSpan, StagingBuffer};

#[derive(Debug)]
pub(crate) struct TailCache {
    buffers: RwLock<VecDeque<CachedBuffer>>,
    /// The size of the cache in bytes. Above it the oldest finished buffers are evicted.
    cache: u64,
    /// The bytes of evicted buffers that readers may hold. Above it they get no more buffers.
    lent: u64,
    /// The bytes of the buffers in the cache.
    kept: AtomicU64,
    /// The bytes of all existing buffers: those in the cache, and those that only readers still
    /// hold.
    held: Arc<AtomicU64>,
    /// The memory of buffers of the usual size, if not ordinary memory.
    huge: Option<HugePages>,
}

#[derive(Debug)]
struct CachedBuffer {
    buffer: Arc<StagingBuffer>,
    /// The position after the last unit in the buffer, once the next buffer is open.
    end: u64,
    /// Whether its memory may serve another buffer.
    reusable: bool,
}

impl TailCache {
    /// An empty cache. Reserves the memory of its buffers now where the options use huge pages.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let (size, cache) = (options.buffer_size, options.tail_cache);
        let huge = options.huge_pages.then(|| {
            let kept = cache.div_ceil(u64::from(size)).max(u64::from(options.buffers)) + 1;
            HugePages::reserve(size as usize, kept as usize)
        });
        let huge = huge.transpose().map_err(Error::HugePages)?;
        let buffers = RwLock::new(VecDeque::with_capacity(32));
        let lent = options.reader_memory;
        Ok(Self { buffers, cache, lent, kept: AtomicU64::new(0), held: Arc::default(), huge })
    }

    pub(crate) fn newest(&self) -> Option<Arc<StagingBuffer>> {
        self.buffers.read().back().map(|kept| Arc::clone(&kept.buffer))
    }

    /// The number of buffers that hold bytes after this position.
    pub(crate) fn staged(&self, released: u64) -> usize {
        let buffers = self.buffers.read();
        buffers.iter().rev().take_while(|kept| kept.end > released).count()
    }

    /// Whether readers hold so many bytes of evicted buffers that they get no more.
    fn is_lent_out(&self) -> bool {
        // `held` changes before `kept`, both when a buffer is added and when an evicted one is
        // freed. So `kept` may be larger for a moment.
        self.bytes().saturating_sub(self.kept.load(Ordering::Relaxed)) > self.lent
    }

    /// The buffer over this offset, and the offset after the last unit that it will ever hold.
    /// `None` also while readers hold too much: they read from the files.
    pub(crate) fn at(&self, segment: u64, offset: u32) -> Option<(Arc<StagingBuffer>, u32)> {
        if self.is_lent_out() {
            return None;
        }
        let buffers = self.buffers.read();
        let found = buffers
            .iter()
            .rev()
            .find(|kept| kept.buffer.segment == segment && kept.buffer.start <= offset)?;
        let end = found.end.saturating_sub(found.buffer.base);
        let end = end.min(u64::from(found.buffer.limit)) as u32;
        (offset < end).then(|| (Arc::clone(&found.buffer), end))
    }

    /// Opens a buffer for a new part of a segment, in the memory of an old one if no reader uses
    /// that any more. `previous_end` is the position where the previous buffer ends.
    pub(crate) fn open(
        &self,
        span: BufferSpan,
        previous_end: u64,
        usual: u32,
        released: u64,
    ) -> Arc<StagingBuffer> {
        let mut buffers = self.buffers.write();
        if let Some(newest) = buffers.back_mut() {
            newest.end = previous_end;
        }
        let mut bytes: u64 = buffers.iter().map(CachedBuffer::bytes).sum();
        let mut reused = None;
        while reused.is_none()
            && bytes > self.cache
            && buffers.front().is_some_and(|oldest| oldest.end <= released)
        {
            let Some(mut oldest) = buffers.pop_front() else { break };
            bytes -= oldest.bytes();
            if let Some(buffer) = Arc::get_mut(&mut oldest.buffer)
                && oldest.reusable
                && buffer.capacity() == usual
                && span.limit - span.start <= usual
            {
                buffer.turn_to(span);
                reused = Some(oldest.buffer);
            }
        }
        // A log of few records fills a part of one buffer, whose small pages take as much memory as
        // it uses. Later buffers are filled, and huge pages of them are written faster.
        let first = self.kept.load(Ordering::Relaxed) == 0;
        let buffer = reused.unwrap_or_else(|| {
            let capacity = usual.max(span.limit - span.start);
            let huge = self.huge.as_ref().filter(|huge| huge.buffer_len() == capacity as usize);
            let memory = huge.and_then(HugePages::lend);
            let lazy = if first { AlignedBuf::lazy } else { AlignedBuf::lazy_huge };
            let memory = memory.unwrap_or_else(|| lazy(capacity as usize));
            Arc::new(StagingBuffer::new(span, memory, Arc::clone(&self.held)))
        });
        buffers.push_back(CachedBuffer {
            buffer: Arc::clone(&buffer),
            end: u64::MAX,
            reusable: !first || self.huge.is_some(),
        });
        self.kept.store(buffers.iter().map(CachedBuffer::bytes).sum(), Ordering::Relaxed);
        buffer
    }

    /// The bytes of memory in buffers, those that only a reader holds included.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

impl CachedBuffer {
    fn bytes(&self) -> u64 {
        u64::from(self.buffer.capacity())
    }
}
