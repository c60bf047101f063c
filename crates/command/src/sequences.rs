//! The sequences of a cluster, which its leader creates, lists and removes.

use std::time::Duration;

use esker_client::{NodeCaller, SequenceName};
use esker_server::Members;
use serde::Deserialize;

use crate::changed_cluster::{CHANGE_TIMEOUT, addresses, check_made, check_status, decode};
use crate::endpoints::call_failure;
use crate::exit::Outcome;

/// The time that the leader has to list the sequences.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The command that shows whether a change was made.
const LIST_COMMAND: &str = "esker sequence list";

/// A sequence, and the number that it gives next.
#[derive(Debug, Clone, Deserialize)]
pub struct ListedSequence {
    /// The name, as the node sent it.
    pub name: String,
    /// The next number; above [`SEQUENCE_NUMBER_MAX`](esker_client::SEQUENCE_NUMBER_MAX) if none is
    /// left.
    pub next: u64,
}

/// The answer of `GET /sequences`.
#[derive(Debug, Deserialize)]
struct SequenceListAnswer {
    sequences: Vec<ListedSequence>,
}

/// Creates a sequence, whose first number is `first`.
///
/// # Errors
/// If there is one of this name, or the leader cannot be reached or refuses the change.
pub async fn create(
    caller: &NodeCaller,
    members: &Members,
    name: &SequenceName,
    first: u64,
) -> Outcome {
    let path = format!("/sequence/{name}?first={first}");
    let answered = caller.put(&addresses(members), &path, CHANGE_TIMEOUT).await;
    check_made(answered, LIST_COMMAND).map(drop)
}

/// Removes a sequence, for good.
///
/// # Errors
/// If there is none of this name, or the leader cannot be reached or refuses the change.
pub async fn remove(caller: &NodeCaller, members: &Members, name: &SequenceName) -> Outcome {
    let path = format!("/sequence/{name}");
    let answered = caller.delete(&addresses(members), &path, CHANGE_TIMEOUT).await;
    check_made(answered, LIST_COMMAND).map(drop)
}

/// Returns the sequences in the order of their names, as the leader has them.
///
/// # Errors
/// If the leader cannot be reached.
pub async fn list(caller: &NodeCaller, members: &Members) -> Outcome<Vec<ListedSequence>> {
    let answered = caller.get_from_leader(&addresses(members), "/sequences", LIST_TIMEOUT).await;
    let answer = check_status(answered.map_err(|error| call_failure(&error))?)?;
    let SequenceListAnswer { sequences } = decode(&answer)?;
    Ok(sequences)
}
