//! The rows of the timeline on a page: the events around the cut, and each request that is marked.

use std::collections::{BTreeMap, BTreeSet};

use super::losable::losable;
use super::sentence::undecided_outcomes;
use crate::record::operation::{Operation, RequestNumber};
use crate::record::recording::{Event, Recording};
use crate::search::candidates::{self, Candidate};

/// The most events before the cut that a page shows, and the most after it.
const EVENTS_BEFORE_MAX: usize = 700;
const EVENTS_AFTER_MAX: usize = 300;
/// The most marked requests outside these.
const MARKED_MAX: usize = 200;
/// The most lines of one output that a page shows.
const LINES_MAX: usize = 5;
/// The most characters of a row's text.
const TEXT_CHARS_MAX: usize = 240;

/// A row of the timeline.
#[derive(Debug, PartialEq, Eq)]
pub enum Row {
    Setup,
    Request {
        /// The number of the request's event, as in the name of a state.
        event: usize,
        number: RequestNumber,
        text: String,
        is_sync: bool,
        mark: Option<Mark>,
    },
    Output {
        event: usize,
        text: String,
    },
    Success,
    /// A fault, a cut that a test asked for, or a line of output that says what is durable.
    Note(String),
    /// Here the power is cut.
    Cut,
    Hidden(HiddenEvents),
}

/// The fate of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    Lost,
    /// In words.
    PartLost(String),
    /// Survived, though it was not durable.
    Survived,
    /// Not durable when the program acknowledged.
    Losable,
    AfterCut,
}

/// The counts of events that a page does not show.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HiddenEvents {
    pub requests: usize,
    pub syncs: usize,
    pub outputs: usize,
}

/// Lists the rows of a recording, around the cut of the failing state if there is one.
pub fn rows(recording: &Recording, failing: Option<&Candidate>) -> Vec<Row> {
    let events = &recording.events;
    let marks = match failing {
        Some(state) => state_marks(recording, state),
        None => losable(recording)
            .iter()
            .map(|losable| (losable.request.number, Mark::Losable))
            .collect(),
    };
    let is_marked = |event: &Event| match event {
        Event::Request(request) => marks.contains_key(&request.number),
        _ => false,
    };
    let first_marked = events.iter().position(is_marked);
    let center = failing.map(|state| state.cut).or(first_marked).unwrap_or(0);
    let marked = (0..events.len()).filter(|index| is_marked(&events[*index]));
    let around = center.saturating_sub(EVENTS_BEFORE_MAX)..center + EVENTS_AFTER_MAX;
    let mut shown: BTreeSet<usize> = marked.take(MARKED_MAX).collect();
    shown.extend((0..events.len()).filter(|index| around.contains(index)));

    let mut rows = Rows { cut: failing.map(|state| state.cut), marks, ..Rows::default() };
    for (index, event) in events.iter().enumerate() {
        rows.add(index, event, shown.contains(&index));
    }
    rows.end(events.len())
}

/// The marks of the requests that were undecided at the cut.
fn state_marks(recording: &Recording, state: &Candidate) -> BTreeMap<RequestNumber, Mark> {
    let disk = candidates::disk_at(recording, state.cut);
    let outcomes = undecided_outcomes(recording, &disk, state);
    let mark = |lost: Option<String>| match lost {
        None => Mark::Survived,
        Some(words) if words.is_empty() => Mark::Lost,
        Some(words) => Mark::PartLost(words),
    };
    outcomes.into_iter().map(|outcome| (outcome.request.number, mark(outcome.lost))).collect()
}

/// The rows that were made so far.
#[derive(Default)]
struct Rows {
    cut: Option<usize>,
    marks: BTreeMap<RequestNumber, Mark>,
    rows: Vec<Row>,
    hidden: HiddenEvents,
}

impl Rows {
    fn add(&mut self, index: usize, event: &Event, is_shown: bool) {
        self.add_cut(index);
        if !is_shown {
            return self.hidden.count(event);
        }
        self.show_hidden();
        let number = index + 1;
        match event {
            Event::SetupEnd => self.rows.push(Row::Setup),
            Event::Fault(fault) => self.rows.push(Row::Note(shortened(&format!("fault: {fault}")))),
            Event::Mark(name) => self.rows.push(Row::Note(shortened(&format!("cut here: {name}")))),
            Event::AllDurable => self.rows.push(Row::Note("all before is durable".to_owned())),
            Event::Success => self.rows.push(Row::Success),
            Event::Request(request) => {
                let after = self.cut.is_some_and(|cut| index >= cut).then_some(Mark::AfterCut);
                self.rows.push(Row::Request {
                    event: number,
                    number: request.number,
                    text: shortened(&request.to_string()),
                    is_sync: is_sync(&request.operation),
                    mark: self.marks.get(&request.number).cloned().or(after),
                });
            }
            Event::Output(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let row = |text: String| Row::Output { event: number, text };
                self.rows.extend(text.lines().take(LINES_MAX).map(|line| row(shortened(line))));
                let more = text.lines().count().saturating_sub(LINES_MAX);
                self.rows.extend((more > 0).then(|| row(format!("and {more} lines more"))));
            }
        }
    }

    fn end(mut self, events: usize) -> Vec<Row> {
        self.add_cut(events);
        self.show_hidden();
        self.rows
    }

    fn add_cut(&mut self, index: usize) {
        if self.cut == Some(index) {
            self.show_hidden();
            self.rows.push(Row::Cut);
        }
    }

    fn show_hidden(&mut self) {
        let hidden = std::mem::take(&mut self.hidden);
        if hidden != HiddenEvents::default() {
            self.rows.push(Row::Hidden(hidden));
        }
    }
}

impl HiddenEvents {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Request(request) if is_sync(&request.operation) => self.syncs += 1,
            Event::Request(_) => self.requests += 1,
            Event::Output(_) => self.outputs += 1,
            Event::SetupEnd
            | Event::Success
            | Event::Fault(_)
            | Event::Mark(_)
            | Event::AllDurable => {}
        }
    }
}

fn is_sync(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Sync { .. } | Operation::SyncFailed { .. } | Operation::WriteReturned { .. }
    )
}

/// The text without control characters. Quotes stay as they are.
pub fn printable(text: &str) -> String {
    printable_characters(text).collect()
}

/// The text without control characters, and not longer than a row.
pub fn shortened(text: &str) -> String {
    let mut characters = printable_characters(text);
    let mut short: String = characters.by_ref().take(TEXT_CHARS_MAX).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

fn printable_characters(text: &str) -> impl Iterator<Item = char> {
    text.chars().flat_map(|character| {
        let escaped = character.is_control().then(|| character.escape_debug());
        let plain = (!character.is_control()).then_some(character);
        escaped.into_iter().flatten().chain(plain)
    })
}
