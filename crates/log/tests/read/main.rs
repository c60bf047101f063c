//! Reading: lookups and streams.

#[path = "../kit/fixture.rs"]
mod fixture;

mod lookup;
mod placed;
mod streams;
mod ten_thousand_readers;
mod times;
