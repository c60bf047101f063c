//! The members that a command asks.

use std::time::Duration;

use clap::Args;
use esker_server::{Answer, CallError, Members, ask};
use hyper::StatusCode;
use tokio::task::JoinSet;

use crate::exit::{Failure, Outcome};
use crate::output::escaped;

/// How long one member is asked.
const MEMBERS_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long each of several is asked.
const ENDPOINT_CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Members of the cluster.
#[derive(Debug, Args)]
pub struct Endpoints {
    /// The client address of a member; may be repeated
    #[arg(long = "endpoint", value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = host)]
    endpoints: Vec<String>,
}

/// Host and port of a URL.
fn host(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let port = host.rsplit_once(':').filter(|(name, _)| !name.is_empty() && !host.contains('/'));
    match port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        true => Ok(host.to_owned()),
        false => Err("like http://127.0.0.1:8080".into()),
    }
}

impl Endpoints {
    /// Host and port of each.
    pub fn given(&self) -> &[String] {
        &self.endpoints
    }

    /// The members, as the leader knows them, if it is found: an endpoint that was cut off may lag.
    /// Otherwise from the first endpoint that answers, one that knows a leader before others.
    ///
    /// # Errors
    /// If none answers; if two that answer are of different clusters.
    pub async fn members(&self) -> Outcome<Members> {
        let known = self.known(MEMBERS_CALL_TIMEOUT).await?;
        let (endpoint, known) = known.map_err(|failures| Failure::failed(failures.join("; ")))?;
        if rank(endpoint, &known) == Rank::Leader {
            return Ok(known);
        }
        let addresses: Vec<_> = match &known.leader {
            Some(leader) => vec![leader.addr.clone()],
            None => known.members.iter().map(|member| member.addr.clone()).collect(),
        };
        let mut best = (rank(endpoint, &known), known);
        for (address, answer) in ask_all(&addresses, ENDPOINT_CALL_TIMEOUT).await {
            let Ok(answer) = answer else { continue };
            let Ok(members) = serde_json::from_slice::<Members>(&answer.body) else { continue };
            let rank = rank(address, &members);
            // Another cluster's node may be there.
            if rank > best.0 && members.cluster == best.1.cluster {
                best = (rank, members);
            }
        }
        Ok(best.1)
    }

    /// Fails if two of several that answer in time are of different clusters.
    pub async fn check_one_cluster(&self, patience: Duration) -> Outcome {
        if self.endpoints.len() > 1 {
            // One that does not answer is asked again.
            drop(self.known(patience).await?);
        }
        Ok(())
    }

    /// The members, from the endpoint of the highest rank that answers, or why none does.
    async fn known(&self, patience: Duration) -> Outcome<Result<(&String, Members), Vec<String>>> {
        let mut failures = Vec::new();
        let mut found: Option<(&String, Members)> = None;
        let several = self.endpoints.len() > 1;
        let patience = if several { patience.min(ENDPOINT_CALL_TIMEOUT) } else { patience };
        for (endpoint, answer) in ask_all(&self.endpoints, patience).await {
            let members = answer.map_err(|error| error.to_string()).and_then(|answer| {
                serde_json::from_slice::<Members>(&answer.body)
                    .map_err(|_| format!("{endpoint}: {}", no_member(&answer)))
            });
            let members = match members {
                Ok(members) => members,
                Err(why) => {
                    failures.push(why);
                    continue;
                }
            };
            match &found {
                Some((other, known)) if known.cluster != members.cluster => {
                    return Err(Failure::failed(format!(
                        "{other} is of the cluster {}, and {endpoint} is of the cluster {}: their \
                         timestamps have no order",
                        escaped(&known.cluster),
                        escaped(&members.cluster)
                    )));
                }
                Some((other, known)) if rank(other, known) >= rank(endpoint, &members) => {}
                _ => found = Some((endpoint, members)),
            }
        }
        Ok(found.ok_or(failures))
    }

    /// The addresses that may lead: those that were given, and those of the members.
    pub fn all(&self, members: &Members) -> Vec<String> {
        let mut all = self.endpoints.clone();
        all.extend(members.members.iter().map(|member| member.addr.clone()));
        all
    }
}

/// How much a node knows of the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The node has not heard from a leader lately.
    Alone,
    Follower,
    Leader,
}

/// The rank of the node at this address, which named these members.
fn rank(address: &str, members: &Members) -> Rank {
    match &members.leader {
        Some(leader) if leader.addr == address => Rank::Leader,
        Some(_) => Rank::Follower,
        None => Rank::Alone,
    }
}

/// Describes what answered, if it is no member: a node may wait for its cluster.
fn no_member(answer: &Answer) -> String {
    match answer.status {
        StatusCode::SERVICE_UNAVAILABLE => escaped(&answer.text()),
        _ => "it is no node of a cluster".into(),
    }
}

/// Asks all addresses at once, and returns their answers: one that is not there delays none.
async fn ask_all(
    addresses: &[String],
    patience: Duration,
) -> Vec<(&String, Result<Answer, CallError>)> {
    let mut asked = JoinSet::new();
    for (at, address) in addresses.iter().cloned().enumerate() {
        asked.spawn(async move { (at, ask(&address, "/members", None, patience).await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    addresses.iter().zip(answers.into_iter().map(|(_, answer)| answer)).collect()
}
