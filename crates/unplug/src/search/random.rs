//! Losses from a seed: any subset of the undecided parts.

use std::collections::BTreeSet;

use crate::model::disk::UndecidedRequest;
use crate::model::loss::{Loss, LostParts, LostSectors, TornSector};
use crate::model::sector::SECTOR_BYTES;
use crate::rng::Rng;

/// The units in which a disk writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorWrites {
    /// A sector may be torn.
    Torn,
    /// A sector is written whole or not at all.
    Whole,
}

/// A loss in which each part is lost with a chance that is drawn once: few, half or most.
pub fn loss(rng: &mut Rng, undecided: &[UndecidedRequest], writes: SectorWrites) -> Loss {
    let percent = [5, 20, 50, 80, 95][rng.below(5) as usize];
    let mut loss = Loss::default();
    for request in undecided {
        let parts = LostParts {
            sectors: sectors(rng, request, percent),
            size: request.size && rng.chance(percent),
            names: request.names && rng.chance(percent),
            // Drawn in either case: the other parts are the same.
            torn: torn(rng, request).filter(|_| writes == SectorWrites::Torn),
        };
        if !parts.is_empty() {
            loss.requests.insert(request.request, parts);
        }
    }
    loss
}

fn sectors(rng: &mut Rng, request: &UndecidedRequest, percent: u64) -> LostSectors {
    if !request.has_data() {
        return LostSectors::None;
    }
    match rng.below(3) {
        0 if rng.chance(percent) => LostSectors::All,
        0 => LostSectors::None,
        1 => {
            let first = rng.below(request.sectors.len() as u64) as usize;
            LostSectors::From(request.sectors[first])
        }
        _ => {
            let mut lost = BTreeSet::new();
            for sector in &request.sectors {
                if rng.chance(percent) {
                    lost.insert(*sector);
                }
            }
            if lost.is_empty() { LostSectors::None } else { LostSectors::Some(lost) }
        }
    }
}

fn torn(rng: &mut Rng, request: &UndecidedRequest) -> Option<TornSector> {
    if !request.has_data() || !rng.chance(10) {
        return None;
    }
    let sector = request.sectors[rng.below(request.sectors.len() as u64) as usize];
    let position = 1 + rng.below(SECTOR_BYTES - 1) as u16;
    Some(TornSector { sector, position, new_first: rng.chance(50) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::operation::Ino;

    #[test]
    fn no_sector_is_torn_where_sectors_are_whole() {
        let sectors = (0..9).collect();
        let write = UndecidedRequest {
            request: 1,
            inodes: vec![Ino(2)],
            sectors,
            size: false,
            names: false,
            sync_failed: false,
        };
        let torn = |writes| {
            let losses = (0..200)
                .map(|seed| loss(&mut Rng::new(seed), std::slice::from_ref(&write), writes));
            losses.filter(|loss| loss.requests.values().any(|parts| parts.torn.is_some())).count()
        };
        assert!(torn(SectorWrites::Torn) > 0);
        assert_eq!(torn(SectorWrites::Whole), 0);
    }
}
