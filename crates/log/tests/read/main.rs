//! Reading: lookups and streams.

#[path = "../kit/fixture.rs"]
mod fixture;

mod async_calls;
mod lookup;
mod placed;
mod resumed_streams;
mod streams;
mod ten_thousand_readers;
mod times;
