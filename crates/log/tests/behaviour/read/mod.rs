//! Reading: lookups and streams.

mod async_calls;
mod lookup;
mod placed;
mod resumed_streams;
mod streams;
mod ten_thousand_readers;
mod times;
