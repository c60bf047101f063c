//! The loss of a power cut: a choice among the undecided parts of the requests before it.

use std::collections::{BTreeMap, BTreeSet};

use super::sector::SectorBytes;
use crate::record::operation::RequestNumber;

/// The parts that are lost, by request. A part that is not named survives, unless a lost change of
/// names is one that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    pub requests: BTreeMap<RequestNumber, LostParts>,
}

/// The lost parts of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostParts {
    pub sectors: LostSectors,
    pub size: bool,
    pub names: bool,
    /// A sector of which only a part was written.
    pub torn: Option<TornSector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostSectors {
    #[default]
    None,
    All,
    /// The sectors from this one on.
    From(u64),
    Some(BTreeSet<u64>),
}

/// A sector with old bytes up to a position and new ones after it, or the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TornSector {
    pub sector: u64,
    /// The position in the sector, in bytes.
    pub position: u16,
    pub new_first: bool,
}

impl TornSector {
    /// The bytes of the sector between the version before and the new one.
    pub fn mix(self, old: &SectorBytes, new: &SectorBytes) -> SectorBytes {
        let (first, second) = if self.new_first { (new, old) } else { (old, new) };
        let mut mixed = *first;
        let position = usize::from(self.position).min(mixed.len());
        mixed[position..].copy_from_slice(&second[position..]);
        mixed
    }
}

impl Loss {
    pub fn lost_parts(&self, request: RequestNumber) -> Option<&LostParts> {
        self.requests.get(&request)
    }

    pub fn loses_sector(&self, request: RequestNumber, sector: u64) -> bool {
        self.lost_parts(request).is_some_and(|parts| parts.sectors.contains(sector))
    }

    pub fn loses_size(&self, request: RequestNumber) -> bool {
        self.lost_parts(request).is_some_and(|parts| parts.size)
    }

    pub fn loses_names(&self, request: RequestNumber) -> bool {
        self.lost_parts(request).is_some_and(|parts| parts.names)
    }

    pub fn torn(&self, request: RequestNumber, sector: u64) -> Option<TornSector> {
        self.lost_parts(request).and_then(|parts| parts.torn).filter(|torn| torn.sector == sector)
    }
}

impl LostSectors {
    pub fn contains(&self, sector: u64) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::From(first) => sector >= *first,
            Self::Some(sectors) => sectors.contains(&sector),
        }
    }
}

impl LostParts {
    pub fn all() -> Self {
        Self { sectors: LostSectors::All, size: true, names: true, torn: None }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
