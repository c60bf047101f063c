//! A reserve that other logs use, too.
//!
//! It is the reserve of one log: its file, and the size in its manifest. Another log gets space of
//! it in two steps, under the lock of the reserve: the file is made shorter, and the space that
//! this frees is taken. So no other log of this process takes it in between. Another program may;
//! then the taker is refused, and the reserve stays smaller until there is room again.
//!
//! # The crash argument
//!
//! A crash between the two steps leaves the space free, and the reserve is filled by the next
//! opening of its log. The files that the taker makes have a crash argument of their own.

use crate::base::error::{Error, Result};
use crate::base::lender::{Lender, Lent};
use crate::commit::write_half::WriteHalf;
use crate::store::space_reserve::Reserve;

impl WriteHalf {
    /// The lender of the reserve that this log uses beside its own.
    pub(super) fn lender(&self) -> Option<std::sync::Arc<dyn Lender>> {
        self.options.shared_reserve.as_ref()?.lender()
    }

    /// Whether others use the reserve of this log.
    pub(super) fn shares_its_reserve(&self) -> bool {
        self.space.is_shared()
    }

    /// Releases a part of the reserve, and calls `take`, which uses it. Returns `false`, and does
    /// not call it, if there is less.
    pub(super) fn lend_part(
        &self,
        reserve: &mut Reserve,
        lent: Lent,
        take: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let released = match lent {
            Lent::Bytes(bytes) => reserve.release(&*self.dir, bytes)?,
            Lent::All => reserve.release_all(&*self.dir)?,
        };
        if !released {
            return Ok(false);
        }
        let taken = take();
        if taken.is_err() || lent == Lent::All {
            self.refill(reserve);
        }
        taken.map(|()| true)
    }

    /// Keeps the largest size of the reserve in the manifest. A failure is one of this log, and not
    /// of the one that asks.
    fn record_or_fail(&self, reserve: &mut Reserve) {
        if let Err(error) = self.record_size(reserve) {
            self.fail(error);
        }
    }

    fn refill(&self, reserve: &mut Reserve) {
        if let Err(error) = reserve.restore(&*self.dir, &self.options) {
            self.unless_refused(error, "failed to fill the reserve");
        }
    }
}

/// After the log was closed its directory may have another writer: then it lends nothing, and
/// refuses nothing.
impl Lender for WriteHalf {
    fn lends(&self) -> u64 {
        let reserve = self.space.lock_reserve();
        if self.is_closed() { 0 } else { reserve.lends() }
    }

    fn is_low(&self) -> bool {
        let mut reserve = self.space.lock_reserve();
        if self.is_closed() {
            return false;
        }
        self.refill(&mut reserve);
        self.record_or_fail(&mut reserve);
        reserve.is_low(&self.options)
    }

    fn fill(&self, may_grow: bool) {
        let mut reserve = self.space.lock_reserve();
        if self.is_closed() {
            return;
        }
        let filled = match may_grow {
            true => reserve.fill(&*self.dir, &self.options),
            false => reserve.restore(&*self.dir, &self.options),
        };
        if let Err(error) = filled {
            self.unless_refused(error, "failed to fill the reserve");
        }
        self.record_or_fail(&mut reserve);
    }

    fn lend(&self, lent: Lent, take: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        let mut reserve = self.space.lock_reserve();
        if self.is_closed() {
            return Err(Error::Closed);
        }
        self.lend_part(&mut reserve, lent, take)
    }
}
