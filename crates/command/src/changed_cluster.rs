//! The cluster of a command whose request the leader executes.

use std::time::Duration;

use clap::Args;
use esker_client::{CallError, NodeAnswer, NodeCaller};
use esker_server::Members;
use serde::de::DeserializeOwned;

use crate::endpoints::{Endpoints, call_failure};
use crate::exit::{Failure, Outcome};
use crate::output::escaped;
use crate::token_file::TokenFile;

/// The time that a change may take.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// The nodes of a command that changes their cluster.
#[derive(Debug, Args)]
pub struct ChangedCluster {
    #[command(flatten)]
    endpoints: Endpoints,
    #[command(flatten)]
    token: TokenFile,
}

impl ChangedCluster {
    /// Creates a caller of the members, with the token.
    ///
    /// # Errors
    /// As [`Endpoints::caller`] and [`TokenFile::apply`].
    pub fn caller(&self) -> Outcome<NodeCaller> {
        self.token.apply(self.endpoints.caller()?)
    }
}

/// Returns the client addresses of the members.
pub fn addresses(members: &Members) -> Vec<String> {
    members.members.iter().map(|member| member.addr.clone()).collect()
}

/// Returns the answer to a change that was made. `status` is the command that shows what is.
///
/// # Errors
/// If there is no answer, or the leader refuses the change.
pub fn check_made(answered: Result<NodeAnswer, CallError>, status: &str) -> Outcome<NodeAnswer> {
    let answer = answered.map_err(|error| {
        let failure = call_failure(&error);
        match error.may_still_happen {
            true => failure.or_else(&format!("the change may still be made: look at `{status}`")),
            false => failure,
        }
    })?;
    check_status(answer)
}

/// Returns an answer that is no refusal.
///
/// # Errors
/// If it is one.
pub fn check_status(answer: NodeAnswer) -> Outcome<NodeAnswer> {
    match answer.status {
        200..300 => Ok(answer),
        _ => Err(Failure::failed(escaped(&answer.text()))),
    }
}

/// Decodes the leader's answer.
///
/// # Errors
/// If it is not what is expected.
pub fn decode<T: DeserializeOwned>(answer: &NodeAnswer) -> Outcome<T> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::failed(format!("the leader's answer: {error}")))
}
