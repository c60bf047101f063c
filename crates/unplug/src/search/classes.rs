//! The losses that are tried at every cut, class by class: from "nothing is lost" to one request
//! that stops in the middle. What they leave to chance is in `random`.

use std::collections::BTreeSet;

use crate::model::disk::{Disk, UndecidedRequest};
use crate::model::loss::{Loss, LostParts, LostSectors};
use crate::record::operation::{Ino, RequestNumber};

/// The classes, in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    NothingLost,
    AllLost,
    DataLost,
    NamesLost,
    FileLost,
    FileKept,
    RequestLost,
    RequestKept,
    RequestCut,
}

/// The losses of all classes at a cut.
pub fn losses(disk: &Disk, undecided: &[UndecidedRequest]) -> Vec<(Class, Loss)> {
    let lose = |parts: &dyn Fn(&UndecidedRequest) -> LostParts| loss(undecided, parts);
    let all = |_: &UndecidedRequest| LostParts::all();
    let data = |_: &UndecidedRequest| LostParts { names: false, ..LostParts::all() };
    let names = |_: &UndecidedRequest| LostParts { names: true, ..LostParts::default() };
    let mut losses = vec![
        (Class::NothingLost, Loss::default()),
        (Class::AllLost, lose(&all)),
        (Class::DataLost, lose(&data)),
        (Class::NamesLost, lose(&names)),
    ];
    let inodes: BTreeSet<Ino> =
        undecided.iter().flat_map(|request| &request.inodes).copied().collect();
    for ino in &inodes {
        let is_of = |request: &UndecidedRequest| request.inodes.contains(ino);
        losses.push((Class::FileLost, lose(&|request| lost_if(is_of(request)))));
        losses.push((Class::FileKept, lose(&|request| lost_if(!is_of(request)))));
    }
    for request in undecided {
        let number = request.request;
        losses.push((Class::RequestLost, lose(&|other| lost_if(other.request == number))));
        let kept = with_predecessors(disk, request);
        losses.push((Class::RequestKept, lose(&|other| lost_if(!kept.contains(&other.request)))));
        for first_lost in borders(&request.sectors) {
            let sectors = LostSectors::From(first_lost);
            let parts = LostParts { sectors, ..LostParts::default() };
            let requests = [(number, parts)].into();
            losses.push((Class::RequestCut, Loss { requests }));
        }
    }
    losses.sort_by_key(|(class, _)| *class);
    losses
}

/// A request, and the changes of names without which it cannot survive.
fn with_predecessors(disk: &Disk, request: &UndecidedRequest) -> BTreeSet<RequestNumber> {
    let alone = BTreeSet::from([request.request]);
    let needed = disk.names.with_predecessors(&alone);
    needed.into_iter().chain(alone).collect()
}

fn lost_if(lost: bool) -> LostParts {
    if lost { LostParts::all() } else { LostParts::default() }
}

fn loss(undecided: &[UndecidedRequest], parts: &dyn Fn(&UndecidedRequest) -> LostParts) -> Loss {
    let lost = undecided.iter().map(|request| (request.request, parts(request)));
    Loss { requests: lost.filter(|(_, parts)| !parts.is_empty()).collect() }
}

/// The first, middle and last border between sectors of a request.
fn borders(sectors: &[u64]) -> BTreeSet<u64> {
    match sectors {
        [] | [_] => BTreeSet::new(),
        [_, second, ..] => {
            let last = sectors[sectors.len() - 1];
            BTreeSet::from([*second, sectors[sectors.len() / 2], last])
        }
    }
}
