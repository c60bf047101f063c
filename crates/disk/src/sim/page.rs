//! Pages of 4096 bytes, shared where they are equal, and the choice of what a crash leaves of one.
//!
//! A stored page is immutable: a write creates a new one. A version therefore costs one copy of the
//! bytes when it is written, and later only a reference count. Forking a whole disk copies no
//! bytes. Pages of zeros are `None`, so reserved space costs nothing.

use std::sync::Arc;

use super::options::Sector;
use super::rng::Rng;
use crate::file::BLOCK_BYTES;

/// The bytes of a page, or `None` for zeros.
pub(super) type Page = Option<Arc<[u8]>>;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Wraps the bytes of a whole page for sharing.
pub(super) fn share(bytes: &[u8]) -> Page {
    if bytes == ZEROS { None } else { Some(Arc::from(bytes)) }
}

/// Returns the bytes of a page.
pub(super) fn bytes(page: Option<&Page>) -> &[u8] {
    match page {
        Some(Some(bytes)) => bytes,
        _ => &ZEROS,
    }
}

/// Returns the page with `patch` written at byte `at`.
pub(super) fn patched(page: Option<&Page>, at: usize, patch: &[u8]) -> Page {
    if patch.len() == BLOCK_BYTES {
        return share(patch);
    }
    let mut new: Arc<[u8]> = Arc::from(bytes(page));
    Arc::make_mut(&mut new)[at..at + patch.len()].copy_from_slice(patch);
    Some(new)
}

/// Returns the page with everything from byte `at` on zeroed.
pub(super) fn zeroed_from(page: Option<&Page>, at: usize) -> Page {
    let mut new = bytes(page).to_vec();
    new[at..].fill(0);
    share(&new)
}

/// The sectors of one page that a crash replaced, one bit each.
pub(super) type ReplacedSectors = u8;

/// Draws a version for each sector at random: the old one or, with probability `bias` in four, a
/// newer one. In one case of four all sectors get the same version.
pub(super) fn shuffle(
    old: Page,
    newer: &[Page],
    bias: u64,
    sector: Sector,
    rng: &mut Rng,
) -> (Page, ReplacedSectors) {
    let Some(newest) = newer.len().checked_sub(1) else {
        return (old, 0);
    };
    let whole = rng.percent(25);
    let mut pick = || {
        if rng.below(4) >= bias {
            None
        } else if newest == 0 || rng.percent(50) {
            Some(newest)
        } else {
            Some(rng.index(newest + 1))
        }
    };
    let count = BLOCK_BYTES / sector.bytes();
    let first = pick();
    let picks: Vec<Option<usize>> =
        (0..count).map(|i| if whole || i == 0 { first } else { pick() }).collect();
    let replaced =
        picks.iter().enumerate().fold(0, |bits, (i, p)| bits | (u8::from(p.is_some()) << i));
    if picks.iter().all(|pick| *pick == picks[0]) {
        return (picks[0].map_or(old, |index| newer[index].clone()), replaced);
    }
    let mut mixed = bytes(Some(&old)).to_vec();
    for (i, pick) in picks.iter().enumerate() {
        let range = i * sector.bytes()..(i + 1) * sector.bytes();
        if let Some(index) = pick {
            mixed[range.clone()].copy_from_slice(&bytes(Some(&newer[*index]))[range]);
        }
    }
    (share(&mixed), replaced)
}

/// The result of tearing a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tear {
    /// The sector is readable, with corrupt bytes.
    Garbled,
    /// Reading the sector fails until it is written again.
    Unreadable,
}

/// Tears sector number `index` of `page`, which was being overwritten with `newer`.
pub(super) fn tear(
    page: &mut Page,
    newer: &Page,
    index: usize,
    sector: Sector,
    rng: &mut Rng,
) -> Tear {
    let size = sector.bytes();
    let range = index * size..(index + 1) * size;
    let mut torn = bytes(Some(page)).to_vec();
    let new = &bytes(Some(newer))[range.clone()];
    let split = 1 + rng.index(size - 1);
    let outcome = rng.below(4);
    let part = &mut torn[range];
    match outcome {
        0 => part[..split].copy_from_slice(&new[..split]),
        1 => part[split..].copy_from_slice(&new[split..]),
        _ => rng.fill(part),
    }
    *page = share(&torn);
    if outcome == 3 { Tear::Unreadable } else { Tear::Garbled }
}
