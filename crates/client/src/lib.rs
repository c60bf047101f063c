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
//! let number: u64 = client.timestamp_u64().await?; // the same in 64 bits
//! assert!(number < client.timestamp_u64().await?);
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::sequence_next`] takes numbers of a sequence, without gap or repeat.
//!
//! [`NodeCaller`] asks single nodes, and has the leader make changes, as `esker cluster` does.
//!
//! The book has a guide for clients in any language, "Writing a client".
//!
//! # Source
//!
//! For readers of the source: a call of a [`Client`] goes through `client`, `call` and `queue`,
//! which batches the callers that wait. `client_thread` sends one request for each batch, over the
//! connection that `leader` keeps. `answer`, `members` and `route` decide, without I/O. A call for
//! numbers of a sequence is a task of that thread: `sequence_call`, and `sequence_request` decides.
//!
//! `node_caller` sends single requests. It and `connection`, which is HTTP/2, take connections
//! from `transport`: with TLS by the options of `tls_options`, or without. `connection_error` says
//! why one failed.

mod address;
mod answer;
mod call;
mod client;
mod client_thread;
mod connect;
mod connection;
mod connection_error;
mod counters;
mod error;
mod leader;
mod members;
mod node_caller;
mod queue;
mod route;
mod sequence_call;
mod sequence_error;
mod sequence_request;
mod tls_error;
mod tls_options;
mod transport;

/// The examples of the book, compiled as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/client.md")]
struct Guide;

pub use client::{Client, ClientBuilder};
pub use counters::ClientStats;
pub use error::{AttemptError, AttemptErrorKind, CallError, Error};
pub use esker_oracle::{
    Range, SEQUENCE_COUNT_MAX, SEQUENCE_NUMBER_MAX, SequenceName, SequenceNameError, Timestamp,
};
pub use node_caller::{NodeAnswer, NodeCaller};
pub use sequence_error::{SequenceError, SequenceErrorKind};
pub use tls_error::TlsError;
pub use tls_options::TlsOptions;
pub use transport::NodeStream;
