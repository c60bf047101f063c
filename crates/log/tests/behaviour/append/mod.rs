//! Appending: batches, sequence numbers, limits, sinks, tickets, back-pressure and cancellation.

mod backpressure;
mod batches;
mod callbacks;
mod cancellation;
mod locked;
mod payloads_are_asked_once;
mod record_limits;
mod sequence_numbers;
mod sinks;
mod sparse_sequence_numbers;
mod tickets;
mod writes;
