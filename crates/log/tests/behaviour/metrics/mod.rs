//! `Log::metrics`: each number against what the test did to the log.

mod counts;
mod published;
mod reserve;
mod stream_lag;
mod waiting_callers;
