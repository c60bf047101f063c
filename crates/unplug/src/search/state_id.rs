//! The name of a state, which a user can give back: the events before the cut, and what is lost.
//!
//! `12` is the state after 12 events in which nothing is lost. `12:3,5d7-` lacks request 3, and the
//! sectors from 7 on of request 5. The parts of a request are `d` data (`d7-` from sector 7 on,
//! `d1.4.` two sectors), `s` size, `n` names and `t7@100<` sector 7 torn at byte 100, new bytes
//! first (`>`: old ones first). A request without letters is lost whole.

use std::fmt;
use std::str::FromStr;

use super::candidates::Candidate;
use crate::model::loss::{Loss, LostParts, LostSectors, TornSector};

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cut)?;
        for (index, (number, parts)) in self.loss.requests.iter().enumerate() {
            f.write_str(if index == 0 { ":" } else { "," })?;
            write!(f, "{number}")?;
            if *parts != LostParts::all() {
                write_parts(f, parts)?;
            }
        }
        Ok(())
    }
}

fn write_parts(f: &mut fmt::Formatter<'_>, parts: &LostParts) -> fmt::Result {
    match &parts.sectors {
        LostSectors::None => {}
        LostSectors::All => f.write_str("d")?,
        LostSectors::From(first) => write!(f, "d{first}-")?,
        LostSectors::Some(sectors) => {
            let sectors: Vec<String> = sectors.iter().map(u64::to_string).collect();
            // A point after a single one, which differs from a whole list of all.
            write!(f, "d{}.", sectors.join("."))?;
        }
    }
    f.write_str(if parts.size { "s" } else { "" })?;
    f.write_str(if parts.names { "n" } else { "" })?;
    match parts.torn {
        Some(TornSector { sector, position, new_first }) => {
            write!(f, "t{sector}@{position}{}", if new_first { '<' } else { '>' })
        }
        None => Ok(()),
    }
}

/// The text is no name of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidStateId;

impl fmt::Display for InvalidStateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a state is named as in the answer of a run, such as 12 or 12:3,5d7-")
    }
}

impl std::error::Error for InvalidStateId {}

impl FromStr for Candidate {
    type Err = InvalidStateId;

    fn from_str(text: &str) -> Result<Self, InvalidStateId> {
        let (cut, items) = text.split_once(':').unwrap_or((text, ""));
        let cut = cut.parse().map_err(|_| InvalidStateId)?;
        let mut loss = Loss::default();
        for item in items.split(',').filter(|item| !item.is_empty()) {
            let mut rest = Rest(item);
            let number = rest.number()?;
            let parts = if rest.0.is_empty() { LostParts::all() } else { rest.parts()? };
            loss.requests.insert(number, parts);
        }
        Ok(Self { cut, loss })
    }
}

/// The text that is not parsed yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn number<N: FromStr>(&mut self) -> Result<N, InvalidStateId> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits.parse().map_err(|_| InvalidStateId)
    }

    fn takes(&mut self, wanted: char) -> bool {
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn parts(&mut self) -> Result<LostParts, InvalidStateId> {
        let sectors = if self.takes('d') { self.sectors()? } else { LostSectors::None };
        let (size, names) = (self.takes('s'), self.takes('n'));
        let torn = if self.takes('t') { Some(self.torn()?) } else { None };
        let parts = LostParts { sectors, size, names, torn };
        if self.0.is_empty() { Ok(parts) } else { Err(InvalidStateId) }
    }

    fn sectors(&mut self) -> Result<LostSectors, InvalidStateId> {
        if !self.0.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(LostSectors::All);
        }
        let first = self.number()?;
        if self.takes('-') {
            return Ok(LostSectors::From(first));
        }
        let mut sectors = std::collections::BTreeSet::from([first]);
        while self.takes('.') && self.0.starts_with(|c: char| c.is_ascii_digit()) {
            sectors.insert(self.number()?);
        }
        Ok(LostSectors::Some(sectors))
    }

    fn torn(&mut self) -> Result<TornSector, InvalidStateId> {
        let sector = self.number()?;
        if !self.takes('@') {
            return Err(InvalidStateId);
        }
        let position = self.number()?;
        let new_first = self.takes('<');
        if !new_first && !self.takes('>') {
            return Err(InvalidStateId);
        }
        Ok(TornSector { sector, position, new_first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::disk::UndecidedRequest;
    use crate::record::operation::Ino;
    use crate::rng::Rng;
    use crate::search::random::{self, SectorWrites};

    #[test]
    fn name_is_parsed_as_it_was_written() {
        let request = |request, sectors, names| UndecidedRequest {
            request,
            inodes: vec![Ino(2)],
            sectors,
            size: true,
            names,
            sync_failed: false,
        };
        let undecided = [
            request(3, vec![0, 1, 2, 7], false),
            request(4, vec![], true),
            request(9, vec![5], false),
        ];
        let mut rng = Rng::new(1);
        for cut in 0..2_000 {
            let state =
                Candidate { cut, loss: random::loss(&mut rng, &undecided, SectorWrites::Torn) };
            assert_eq!(state.to_string().parse(), Ok(state.clone()), "{state}");
        }
        for text in ["", "x", "1:a", "1:3x", "1:3t5", "1:3t5@6", "1:3d1-2", "1:3ds4"] {
            assert!(text.parse::<Candidate>().is_err(), "{text}");
        }
        let state = "12".parse::<Candidate>();
        assert_eq!(state, Ok(Candidate { cut: 12, loss: Loss::default() }));
    }
}
