//! `esker log append`: framing, limits, signals, pauses and disks.

mod cat_ranges;
mod clock_ahead;
mod highest_number;
mod idle_commit;
mod io_uring;
mod length_prefixed_records;
mod lines;
mod record_limit;
mod retention;
mod salvage;
mod several_processes;
mod signals;
mod stat;
mod transfer;
