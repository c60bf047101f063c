//! The lines of output at which the user says that all before is durable.

use crate::record::recording::Event;

/// Finds lines that begin with a text.
#[derive(Debug)]
pub struct DurableLines {
    text: Vec<u8>,
    /// The first bytes of the line that is not complete: as many as the text has.
    start: Vec<u8>,
}

impl DurableLines {
    pub fn new(text: Vec<u8>) -> Self {
        Self { text, start: Vec::new() }
    }

    /// The events of more output. What a line says was so before it, so that no cut has the line
    /// without its effect.
    pub fn events(&mut self, output: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut before: Vec<u8> = Vec::new();
        for part in output.split_inclusive(|byte| *byte == b'\n') {
            let missing = self.text.len() - self.start.len();
            self.start.extend_from_slice(&part[..missing.min(part.len())]);
            if part.ends_with(b"\n") {
                if self.start == self.text {
                    if !before.is_empty() {
                        events.push(Event::Output(std::mem::take(&mut before)));
                    }
                    events.push(Event::AllDurable);
                }
                self.start.clear();
            }
            before.extend_from_slice(part);
        }
        if !before.is_empty() {
            events.push(Event::Output(before));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_found_in_pieces_of_output() {
        let mut lines = DurableLines::new(b"synced".to_vec());
        let output = |bytes: &[u8]| Event::Output(bytes.to_vec());
        let mut events = |bytes: &[u8]| lines.events(bytes);
        assert_eq!(events(b"a\nsync"), [output(b"a\nsync")]);
        assert_eq!(events(b"ed 1"), [output(b"ed 1")]);
        assert_eq!(events(b"\nb"), [Event::AllDurable, output(b"\nb")]);
        assert_eq!(events(b"\nnot synced\n"), [output(b"\nnot synced\n")]);
        let found = [output(b"c\n"), Event::AllDurable, output(b"synced\nd\n")];
        assert_eq!(events(b"c\nsynced\nd\n"), found);
        assert_eq!(events(b""), []);
    }
}
