//! A profile in the format of pprof: the messages of `profile.proto` that a profile of the CPU has.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use pprof::{Report, Symbol};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    /// The first is empty. Other messages have the index of a string here.
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    /// Nanoseconds between two samples.
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The functions, from the innermost one on.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The innermost functions of a stack that are the profiler's own.
const PROFILER: [&str; 3] = ["trace", "trace_unsynchronized", "perf_signal_handler"];

#[derive(Default)]
struct Tables {
    strings: HashMap<String, i64>,
    string_table: Vec<String>,
    functions: HashMap<(i64, i64), u64>,
    function: Vec<Function>,
    locations: HashMap<(u64, i64), u64>,
    location: Vec<Location>,
}

impl Tables {
    fn string(&mut self, text: String) -> i64 {
        let next = self.string_table.len() as i64;
        *self.strings.entry(text).or_insert_with_key(|text| {
            self.string_table.push(text.clone());
            next
        })
    }

    /// The location of a function and a line in it.
    fn location(&mut self, symbol: &Symbol) -> u64 {
        let name = self.string(symbol.name());
        let system_name = self.string(symbol.sys_name().into_owned());
        let filename = self.string(symbol.filename().into_owned());
        let next = self.function.len() as u64 + 1;
        let function_id = *self.functions.entry((system_name, filename)).or_insert_with(|| {
            self.function.push(Function { id: next, name, system_name, filename });
            next
        });
        let line = i64::from(symbol.lineno.unwrap_or_default());
        let next = self.location.len() as u64 + 1;
        *self.locations.entry((function_id, line)).or_insert_with(|| {
            self.location.push(Location { id: next, line: vec![Line { function_id, line }] });
            next
        })
    }
}

/// Samples, and the time that they stand for.
pub(super) fn encode(report: &Report, hertz: i32) -> Vec<u8> {
    let mut tables = Tables::default();
    let mut word = |word: &str| tables.string(word.to_owned());
    let (_, samples, count, cpu, nanoseconds) =
        (word(""), word("samples"), word("count"), word("cpu"), word("nanoseconds"));
    let time = ValueType { kind: cpu, unit: nanoseconds };
    let period = 1_000_000_000 / i64::from(hertz.max(1));
    let sample = report.data.iter().map(|(stack, count)| {
        let symbols = stack.frames.iter().flatten();
        let symbols = symbols.skip_while(|symbol| PROFILER.contains(&&*symbol.name()));
        let location_id = symbols.map(|symbol| tables.location(symbol)).collect();
        let count = *count as i64;
        Sample { location_id, value: vec![count, count.saturating_mul(period)] }
    });
    let sample = sample.collect();
    let nanos = |nanos: u128| i64::try_from(nanos).unwrap_or(i64::MAX);
    let since = report.timing.start_time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let Tables { string_table, function, location, .. } = tables;
    let profile = Profile {
        sample_type: vec![ValueType { kind: samples, unit: count }, time],
        sample,
        location,
        function,
        string_table,
        time_nanos: nanos(since.as_nanos()),
        duration_nanos: nanos(report.timing.duration.as_nanos()),
        period_type: Some(time),
        period,
    };
    profile.encode_to_vec()
}
