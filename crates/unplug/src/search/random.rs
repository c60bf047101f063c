//! Losses from a seed: any subset of the undecided parts.

use std::collections::BTreeSet;

use crate::model::disk::UndecidedRequest;
use crate::model::loss::{Loss, LostParts, LostSectors, TornSector};
use crate::model::sector::SECTOR_BYTES;

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A loss in which each part is lost with a chance that is drawn once: few, half or most.
pub fn loss(rng: &mut Rng, undecided: &[UndecidedRequest]) -> Loss {
    let percent = [5, 20, 50, 80, 95][rng.below(5) as usize];
    let mut loss = Loss::default();
    for request in undecided {
        let parts = LostParts {
            sectors: sectors(rng, request, percent),
            size: request.size && rng.chance(percent),
            names: request.names && rng.chance(percent),
            torn: torn(rng, request),
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
