//! A client of Esker's timestamp service that follows the leader.
//!
//! A [`Client`] asks a cluster for [`Timestamp`]s, which are unique and ordered for the life of the
//! cluster. It finds the leader, follows it through elections within the deadline of each call, and
//! lets concurrent callers share requests.
//!
//! ```no_run
//! # async fn example() -> Result<(), esker_client::Error> {
//! use esker_client::Client;
//!
//! let client = Client::builder()
//!     .endpoint("http://10.0.0.1:8080")
//!     .endpoint("http://10.0.0.2:8080")
//!     .build()?;
//! let begin = client.timestamp().await?;
//! let commit = client.timestamp().await?;
//! assert!(begin < commit);
//! let range = client.timestamps(100).await?;
//! assert_eq!(range.timestamps().count(), 100);
//! # Ok(())
//! # }
//! ```
//!
//! What a client of the service has to do, in any language, is in the book, in "Writing a client".
//!
//! # Source
//!
//! For readers of the source: `answer`, `members` and `route` decide, without I/O; `link` is a
//! connection, and `leader` the one to the leader. `queue` has the callers that wait, in batches;
//! `requests` sends one request for each.

mod address;
mod answer;
mod call;
mod client;
mod connect;
mod counters;
mod error;
mod leader;
mod link;
mod members;
mod queue;
mod requests;
mod route;

/// The examples of the book, compiled as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/client.md")]
struct Guide;

pub use client::{Client, ClientBuilder};
pub use counters::ClientStats;
pub use error::{Cause, CauseKind, Error};
pub use esker_oracle::{Range, Timestamp};
