//! The requests and the output of a recording, in their order.

use std::io::{self, Write};

use crate::record::recording::{Event, Recording};

/// Prints a line for each event: its number as a cut, and the number of a request.
pub fn print(recording: &Recording, out: &mut impl Write) -> io::Result<()> {
    for (index, event) in recording.events.iter().enumerate() {
        let cut = index + 1;
        match event {
            Event::SetupEnd => writeln!(out, "{cut:>6}  the setup ends; all before is durable")?,
            Event::Request(request) => writeln!(out, "{cut:>6}  {:>6} {request}", request.number)?,
            Event::Output(bytes) => {
                for line in String::from_utf8_lossy(bytes).lines() {
                    writeln!(out, "{cut:>6}         output: {}", line.escape_debug())?;
                }
            }
            Event::Fault(fault) => writeln!(out, "{cut:>6}         fault: {fault}")?,
            Event::Mark(name) => {
                writeln!(out, "{cut:>6}         cut here: {}", name.escape_debug())?;
            }
            Event::AllDurable => writeln!(out, "{cut:>6}         all before is durable")?,
            Event::Success => writeln!(out, "{cut:>6}  the end with success")?,
        }
    }
    Ok(())
}
