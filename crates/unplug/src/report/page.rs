//! The answer as one page of HTML, for a browser without a network.

use std::path::Path;

use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::answer::{Answer, ComparedCase, FailingState};
use super::rows::{HiddenEvents, Mark, Row, printable, rows, shortened};
use super::verdict::Verdict;
use crate::record::recording::Recording;
use crate::search::candidates::Candidate;

/// The most losable requests that a page lists.
const LOSABLE_MAX: usize = 500;

/// The run that a page is about.
pub struct ReportedRun<'a> {
    pub recording: &'a Recording,
    pub answer: &'a Answer,
    /// The program and its arguments, or the file of the recording.
    pub subject: &'a str,
    /// The file of the recording, if it was kept.
    pub file: Option<&'a Path>,
    pub check: Option<&'a str>,
}

impl ReportedRun<'_> {
    /// Writes the page.
    pub fn write(&self, path: &Path) -> Result<()> {
        let page = self.page().into_string();
        std::fs::write(path, page).with_context(|| format!("failed to write {}", path.display()))
    }

    fn page(&self) -> Markup {
        let answer = self.answer;
        let verdict = answer.verdict.name();
        let subject = shortened(self.subject);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "unplug: " (verdict) ": " (subject) }
                    style { (PreEscaped(include_str!("page.css"))) }
                }
                body {
                    h1 class=(verdict_class(answer.verdict)) { (verdict) }
                    p { code { (subject) } }
                    p {
                        (answer.requests) " requests, " (answer.cuts) " cuts, "
                        (answer.states) " states"
                    }
                    @for note in &answer.notes { p class="note" { (printable(note)) } }
                    @if let Some(compared) = &answer.baseline { (baseline(compared)) }
                    @if let Some(failing) = &answer.failing { (self.failing(failing)) }
                    @if !answer.losable.is_empty() { (losable(&answer.losable)) }
                    (self.timeline())
                }
            }
        }
    }

    fn failing(&self, failing: &FailingState) -> Markup {
        html! {
            h2 { "The failing state" }
            p { (printable(&failing.sentence)) }
            @if failing.timed_out { p { "The check did not end in time." } }
            p { "Its directory, the output before the cut and the log of the check are in "
                code { (printable(&failing.folder.to_string_lossy())) } "." }
            h2 { "Again" }
            @match self.file {
                Some(file) => pre { (self.replay(file, failing)) },
                None => p {
                    "The recording was not kept. Run again with " code { "--record FILE" }
                    ", then: " code { "unplug replay FILE --state ID --check CMD" }
                },
            }
        }
    }

    fn replay(&self, file: &Path, failing: &FailingState) -> String {
        let file = quoted(&file.to_string_lossy());
        let check = self.check.map(|check| format!(" --check {}", quoted(check)));
        let state = quoted(&failing.id);
        format!("unplug replay {file} --state {state}{}", check.unwrap_or_default())
    }

    fn timeline(&self) -> Markup {
        let failing = self.answer.failing.as_ref();
        let state = failing.and_then(|failing| failing.id.parse::<Candidate>().ok());
        html! {
            h2 { "The operations" }
            table {
                thead { tr { th { "event" } th { "number" } th { "operation" } th {} } }
                tbody { @for row in rows(self.recording, state.as_ref()) { (row_of(&row)) } }
            }
        }
    }
}

fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "verdict-kept",
        Verdict::Lost => "verdict-lost",
        Verdict::NotMeasured | Verdict::CheckBroken => "note",
    }
}

fn baseline(compared: &ComparedCase) -> Markup {
    html! {
        p { "Baseline: " (compared.result) ": " code { (shortened(&compared.case)) } }
        ul { @for difference in &compared.differences { li { (printable(difference)) } } }
    }
}

fn losable(lines: &[String]) -> Markup {
    let more = lines.len().saturating_sub(LOSABLE_MAX);
    html! {
        h2 { "Acknowledged, and not durable" }
        ul {
            @for line in lines.iter().take(LOSABLE_MAX) { li { code { (shortened(line)) } } }
            @if more > 0 { li class="note" { "and " (more) " more" } }
        }
    }
}

fn row_of(row: &Row) -> Markup {
    let line = |class: &str, text: &str| {
        html! { tr class=(class) { td {} td {} td { (text) } td {} } }
    };
    match row {
        Row::Setup => line("setup", "the setup ends; all before is durable"),
        Row::Success => line("success", "the program ended with success"),
        Row::Note(text) => line("note", text),
        Row::Cut => line("cut", "power cut"),
        Row::Hidden(HiddenEvents { requests, syncs, outputs }) => {
            let events = format!("{requests} requests, {syncs} syncs, {outputs} outputs");
            line("hidden", &format!("not shown: {events}"))
        }
        Row::Output { event, text } => html! {
            tr class="output" { td { (event) } td {} td { (text) } td { "output" } }
        },
        Row::Request { event, number, text, is_sync, mark } => {
            let (class, words) = mark_words(mark.as_ref(), *is_sync);
            html! {
                tr class=(class) {
                    td { (event) }
                    td { (number) }
                    td { @if *mark == Some(Mark::Lost) { del { (text) } } @else { (text) } }
                    td { (words) }
                }
            }
        }
    }
}

/// The class of a request's row, and its mark in words.
fn mark_words(mark: Option<&Mark>, is_sync: bool) -> (&'static str, &str) {
    match mark {
        Some(Mark::Lost) => ("lost", "lost"),
        Some(Mark::PartLost(words)) => ("lost", words),
        Some(Mark::Survived) => ("survived", "survived, though not durable"),
        Some(Mark::Losable) => ("losable", "not durable when acknowledged"),
        Some(Mark::AfterCut) => ("after", ""),
        None if is_sync => ("sync", ""),
        None => ("durable", ""),
    }
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:,@%+=-".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::record::operation::{Ino, NameCall, NameChange, Operation, SyncCall};
    use crate::record::recording::Event;

    const HOSTILE: &str = "</td><script>alert(1)</script>&\"'\u{1b}[2J";

    fn write(recording: &mut Recording, path: &str, offset: u64) {
        let data = [1_u8; 512].as_slice().into();
        recording.add(path.to_owned(), Operation::Write { file: Ino(2), offset, data }).unwrap();
    }

    fn sync(recording: &mut Recording, inode: Ino) {
        let call = if inode == Ino::ROOT { SyncCall::FsyncDir } else { SyncCall::Fsync };
        recording.add("file".to_owned(), Operation::Sync { inode, call }).unwrap();
    }

    /// A file with a durable name and `writes` writes of a sector, then an output.
    fn recording(path: &str, writes: u64) -> Recording {
        let mut recording = Recording::default();
        let (name, after) = (path.into(), Some(Ino(2)));
        let change = NameChange { dir: Ino::ROOT, name, before: None, after };
        let (call, changes) = (NameCall::Create, vec![change]);
        recording.add(path.to_owned(), Operation::Rename { call, changes }).unwrap();
        sync(&mut recording, Ino::ROOT);
        (0..writes).for_each(|number| write(&mut recording, path, number * 512));
        recording.events.push(Event::Output(format!("{path}\n").into_bytes()));
        recording
    }

    fn page(recording: &Recording, failing: Option<&str>, check: &str) -> String {
        let mut answer = Answer::new(recording);
        answer.verdict = Verdict::Lost;
        answer.failing = failing.map(|id| FailingState {
            id: id.to_owned(),
            sentence: format!("lost {HOSTILE}"),
            timed_out: false,
            folder: "/tmp/failing".into(),
        });
        let (file, check) = (Some(Path::new("a b")), Some(check));
        let run = ReportedRun { recording, answer: &answer, subject: HOSTILE, file, check };
        run.page().into_string()
    }

    /// Panics unless each tag is closed in its order and each `<` and `&` is of the page's own.
    fn assert_well_formed(page: &str) {
        let mut open = Vec::new();
        let body = page.strip_prefix("<!DOCTYPE html>").unwrap();
        for part in body.split('<').skip(1) {
            let (tag, text) = part.split_once('>').unwrap();
            let name = tag.split(' ').next().unwrap();
            match name.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed)),
                None if name == "meta" => {}
                None => open.push(name),
            }
            let entities = ["amp;", "lt;", "gt;", "quot;"];
            for entity in text.split('&').skip(1) {
                assert!(entities.iter().any(|name| entity.starts_with(name)), "&{entity}");
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    fn row<'a>(page: &'a str, part: &str) -> &'a str {
        let mut rows = page.split("<tr ").filter(|row| row.contains(part));
        let row = rows.next().unwrap();
        row.split("</tr>").next().unwrap()
    }

    #[test]
    fn failing_state_is_marked_and_hostile_text_escaped() {
        let page = page(&recording(HOSTILE, 2), Some("4:3"), "[ -e 'a' ] && <b>");
        assert_well_formed(&page);
        assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
        let lost = row(&page, "bytes at 0)");
        assert!(lost.starts_with("class=\"lost\"") && lost.contains("<del>write("), "{lost}");
        let survived = row(&page, "bytes at 512)");
        assert!(survived.starts_with("class=\"survived\"") && !survived.contains("<del>"));
        assert!(row(&page, "fsync(").starts_with("class=\"sync\""));
        assert!(page.find("power cut").unwrap() > page.find("bytes at 512)").unwrap());
        assert!(page.find("power cut").unwrap() < page.find("class=\"output\"").unwrap());
        let replay =
            r"unplug replay 'a b' --state 4:3 --check '[ -e '\''a'\'' ] &amp;&amp; &lt;b&gt;'";
        assert!(page.contains(replay), "{page}");
    }

    #[test]
    fn partly_lost_and_losable_requests_are_marked() {
        let recording = recording("file", 2);
        let torn = page(&recording, Some("4:4t1@100<"), "true");
        assert!(row(&torn, "bytes at 512)").contains("sector 1 torn at 100"));
        let listed = page(&recording, None, "true");
        assert!(row(&listed, "bytes at 512)").starts_with("class=\"losable\""));
        assert!(row(&listed, "create(").starts_with("class=\"durable\""), "{listed}");
    }

    #[test]
    fn page_of_a_long_recording_shows_the_events_around_the_cut() {
        let mut recording = recording("file", 60_000);
        sync(&mut recording, Ino(2));
        (0..40_000).for_each(|number| write(&mut recording, "file", number * 512));
        let path = "long/".repeat(800);
        recording.events.push(Event::Output(format!("{path}\n").repeat(5_000).into_bytes()));
        let failing = page(&recording, Some("70000:60004"), "true");
        let listed = page(&recording, None, "true");
        for page in [&failing, &listed] {
            assert_well_formed(page);
            assert!(page.len() < 1_000_000, "{} bytes", page.len());
            assert!(page.contains("not shown: "));
        }
        assert!(row(&failing, "<td>60004</td>").starts_with("class=\"lost\""));
        assert!(failing.contains("power cut"));
    }
}
