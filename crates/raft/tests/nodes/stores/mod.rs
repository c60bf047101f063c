//! The stores of openraft's log and state machine.

mod crashes;
mod refusals;
mod strings;
mod suite;
