//! A failing state in words: what survives, and what does not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::model::disk::{Disk, UndecidedRequest};
use crate::model::loss::{LostParts, LostSectors};
use crate::record::operation::{Request, RequestNumber};
use crate::record::recording::{Event, Recording};
use crate::search::candidates::Candidate;

/// A request that was undecided at the cut.
pub struct UndecidedOutcome<'a> {
    pub request: &'a Request,
    /// The words for its lost parts, empty when all is lost; `None` when it survives whole.
    pub lost: Option<String>,
}

/// The outcome of each request that was undecided at the cut, in order.
pub fn undecided_outcomes<'a>(
    recording: &'a Recording,
    disk: &Disk,
    state: &Candidate,
) -> Vec<UndecidedOutcome<'a>> {
    let Candidate { cut, loss } = state;
    let requests = requests(recording, *cut);
    let surviving = disk.names.surviving(&|request| loss.loses_names(request));
    let mut outcomes = Vec::new();
    for part in &disk.undecided() {
        let Some(request) = requests.get(&part.request).copied() else { continue };
        let names_lost = part.names && !surviving.contains(&part.request);
        let lost = lost_words(part, loss.lost_parts(part.request), names_lost);
        outcomes.push(UndecidedOutcome { request, lost });
    }
    outcomes
}

/// Describes the loss in one sentence, and the requests that survive it in a second.
pub fn sentence(recording: &Recording, disk: &Disk, state: &Candidate) -> String {
    let mut lost = Vec::new();
    let mut kept = Vec::new();
    for UndecidedOutcome { request, lost: words } in undecided_outcomes(recording, disk, state) {
        match words {
            Some(words) if words.is_empty() => lost.push(numbered(request)),
            Some(words) => lost.push(format!("{} ({words})", numbered(request))),
            None => kept.push(numbered(request)),
        }
    }
    let last = requests(recording, state.cut).keys().last().copied().unwrap_or(0);
    let mut text = format!("power cut after operation {last}: ");
    match lost.is_empty() {
        true => text.push_str("nothing is lost"),
        false => {
            let _ = write!(text, "lost {}", listed(&lost));
        }
    }
    if !kept.is_empty() {
        let _ = write!(text, "; survived, though not durable, {}", listed(&kept));
    }
    text
}

fn requests(recording: &Recording, cut: usize) -> BTreeMap<RequestNumber, &Request> {
    let mut requests = BTreeMap::new();
    for event in &recording.events[..cut] {
        if let Event::Request(request) = event {
            requests.insert(request.number, request);
        }
    }
    requests
}

fn numbered(request: &Request) -> String {
    format!("{} {request}", request.number)
}

/// The words for the lost parts of a request, empty when all is lost; `None` when it survives
/// whole.
fn lost_words(
    part: &UndecidedRequest,
    lost: Option<&LostParts>,
    names_lost: bool,
) -> Option<String> {
    if part.names {
        return names_lost.then(String::new);
    }
    let lost = lost?;
    let number = part.sectors.iter().filter(|sector| lost.sectors.contains(**sector)).count();
    let all = part.sectors.len();
    let size = part.size && lost.size;
    let data = match (&lost.sectors, number) {
        (_, 0) => String::new(),
        (_, number) if number == all => "its data".to_owned(),
        (LostSectors::From(first), _) => format!("its sectors from {first} on"),
        _ => format!("{number} of its {all} sectors"),
    };
    let torn = lost.torn.map(|torn| format!("sector {} torn at {}", torn.sector, torn.position));
    let mut words: Vec<String> = Vec::new();
    words.extend((!data.is_empty()).then_some(data));
    words.extend(size.then(|| "its size".to_owned()));
    words.extend(torn);
    let whole = number == all && (size || !part.size) && lost.torn.is_none();
    match words.is_empty() {
        true => None,
        false if whole => Some(String::new()),
        false => Some(words.join(", ")),
    }
}

/// At most this many requests are named; the others are counted.
const NAMED_MAX: usize = 6;

fn listed(items: &[String]) -> String {
    let named = items.iter().take(NAMED_MAX).map(|item| format!("`{item}`"));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if items.len() > NAMED_MAX {
        let _ = write!(text, " and {} more", items.len() - NAMED_MAX);
    }
    text
}
