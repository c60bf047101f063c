//! The members that a command asks.

use std::time::Duration;

use clap::Args;
use esker_client::{
    AttemptErrorKind, CallError, Client, ClientBuilder, Error, NodeAnswer, NodeCaller,
    SequenceError, SequenceErrorKind, TlsError, TlsOptions,
};
use esker_server::Members;
use tokio::task::JoinSet;

use crate::exit::{Failure, Outcome};
use crate::library_errors::with_causes;
use crate::output::escaped;
use crate::tls_flags::{TLS_WITHOUT_HTTPS, TlsFlags};

/// The time that a member has to answer, if it is the only one that is asked.
const MEMBERS_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that each of several members has to answer.
const ENDPOINT_CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Members of the cluster, and how a command proves to them who it is.
#[derive(Debug, Args)]
pub struct Endpoints {
    /// The client address of a member; may be repeated
    #[arg(long = "endpoint", value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = url)]
    endpoints: Vec<String>,
    #[command(flatten)]
    tls: TlsFlags,
}

/// Parses a URL, or host and port.
pub fn url(text: &str) -> Result<String, String> {
    let schemes = ["http://", "https://"];
    let host = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let host = host.trim_end_matches('/');
    let port = host.rsplit_once(':').filter(|(name, _)| !name.is_empty() && !host.contains('/'));
    match port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err("like http://127.0.0.1:8080".into()),
    }
}

impl Endpoints {
    /// Returns the flags of TLS, for connections that are always over TLS.
    pub fn tls_flags(&self) -> &TlsFlags {
        &self.tls
    }

    /// Returns whether connections use TLS.
    pub fn is_https(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }

    fn tls_options(&self) -> Outcome<Option<TlsOptions>> {
        match self.is_https() {
            true => self.tls.https_options(),
            false => self.tls.refuse().map(|()| None),
        }
    }

    /// Creates a caller of the members.
    ///
    /// # Errors
    /// If the endpoints have several schemes, or flags of TLS do not fit them, or a file cannot be
    /// used.
    pub fn caller(&self) -> Outcome<NodeCaller> {
        self.caller_with(self.tls_options()?)
    }

    /// Creates the same caller. With `http://` endpoints, the flags of TLS are for HTTP/3.
    ///
    /// # Errors
    /// As [`Endpoints::caller`].
    pub fn caller_beside_http3(&self) -> Outcome<NodeCaller> {
        let tls = if self.is_https() { self.tls.https_options()? } else { None };
        self.caller_with(tls)
    }

    fn caller_with(&self, tls: Option<TlsOptions>) -> Outcome<NodeCaller> {
        let caller = NodeCaller::new(self.endpoints.iter().cloned(), tls);
        caller.map_err(|error| client_failure(&error))
    }

    /// Creates a builder of a client of the members.
    ///
    /// # Errors
    /// If flags of TLS do not fit the endpoints.
    pub fn client(&self) -> Outcome<ClientBuilder> {
        let client =
            self.endpoints.iter().cloned().fold(Client::builder(), ClientBuilder::endpoint);
        Ok(match self.tls_options()? {
            Some(tls) => client.tls(tls),
            None => client,
        })
    }
}

/// Creates a caller of one node.
///
/// # Errors
/// If the endpoint is none, or flags do not fit it, or a file cannot be used.
pub fn node_caller(endpoint: &str, tls: &TlsFlags) -> Outcome<NodeCaller> {
    let options = match endpoint.starts_with("https://") {
        true => tls.https_options()?,
        false => tls.refuse().map(|()| None)?,
    };
    NodeCaller::new([endpoint], options).map_err(|error| client_failure(&error))
}

/// Returns the failure of a client that was not built, or of its call.
pub fn client_failure(error: &Error) -> Failure {
    let text = with_causes(error);
    match error {
        Error::Deadline { last: Some(last) } => Failure::failed(text + advice(&last.kind)),
        Error::TlsWithoutHttps => Failure::usage(TLS_WITHOUT_HTTPS),
        Error::NoSystemAuthorities(_) => Failure::usage(text + ": --ca"),
        Error::MixedSchemes | Error::InvalidEndpoint(_) | Error::UnusableFile { .. } => {
            Failure::usage(text)
        }
        _ => Failure::failed(text),
    }
}

/// Returns the failure of a call for numbers of a sequence.
pub fn sequence_failure(error: &SequenceError) -> Failure {
    let text = match std::error::Error::source(error) {
        Some(cause) => format!("{}: {}", error.kind, with_causes(cause)),
        None => error.kind.to_string(),
    };
    match &error.kind {
        SequenceErrorKind::Client(error) => client_failure(error),
        SequenceErrorKind::Name(_) | SequenceErrorKind::Count(_) => Failure::usage(text),
        SequenceErrorKind::NoSequence(_) => {
            Failure::failed(text + "; `esker sequence create` makes one")
        }
        SequenceErrorKind::Deadline { last: Some(last) } => {
            Failure::failed(text + advice(&last.kind))
        }
        _ => Failure::failed(text),
    }
}

/// Returns the failure of a call without an answer.
pub fn call_failure(error: &CallError) -> Failure {
    Failure::failed(call_text(error))
}

fn call_text(error: &CallError) -> String {
    format!("{error}{}", advice(&error.attempt.kind))
}

/// The advice against the failure of an attempt.
fn advice(kind: &AttemptErrorKind) -> &'static str {
    match kind {
        AttemptErrorKind::Tls(why) => match why {
            TlsError::UnknownAuthority => {
                "; give its authority with --ca FILE (ESKER_CA), such as the ca.pem of `esker \
                 cluster certs`"
            }
            TlsError::OtherHost(_) => "; give --endpoint with a name that it is for",
            TlsError::CertificateRequired => {
                "; give --client-cert and --client-key (ESKER_CLIENT_CERT, ESKER_CLIENT_KEY)"
            }
            TlsError::CertificateRefused(_) => "; give another --client-cert and --client-key",
            TlsError::PlainNode => "; give --endpoint http://...",
            TlsError::TlsNode => "; give --endpoint https://..., and --ca",
            _ => "",
        },
        AttemptErrorKind::Denied { .. } => {
            "; set ESKER_TOKEN_FILE to a file with a token of the nodes' --admin-token-file, or \
             give a --client-cert of an admin"
        }
        _ => "",
    }
}

/// Returns the members, as the leader knows them, if it is found: an endpoint that was cut off may
/// lag. Otherwise from the first endpoint that answers, one that knows a leader before others.
///
/// # Errors
/// If none answers; if two that answer are of different clusters.
pub async fn members(caller: &NodeCaller) -> Outcome<Members> {
    let known = known_members(caller, MEMBERS_CALL_TIMEOUT).await?;
    let (endpoint, known) = known.map_err(|failures| Failure::failed(failures.join("; ")))?;
    if rank(endpoint, &known) == Rank::Leader {
        return Ok(known);
    }
    let addresses: Vec<_> = match &known.leader {
        Some(leader) => vec![leader.addr.clone()],
        None => known.members.iter().map(|member| member.addr.clone()).collect(),
    };
    let mut best = (rank(endpoint, &known), known);
    for (address, answer) in get_all(caller, &addresses, "/members", ENDPOINT_CALL_TIMEOUT).await {
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

/// Fails if two of several endpoints that answer in time are of different clusters.
pub async fn check_one_cluster(caller: &NodeCaller, patience: Duration) -> Outcome {
    if caller.endpoints().len() > 1 {
        // One that does not answer is asked again.
        drop(known_members(caller, patience).await?);
    }
    Ok(())
}

/// The members, from the endpoint of the highest rank that answers, or why none does.
async fn known_members(
    caller: &NodeCaller,
    patience: Duration,
) -> Outcome<Result<(&String, Members), Vec<String>>> {
    let mut failures = Vec::new();
    let mut found: Option<(&String, Members)> = None;
    let several = caller.endpoints().len() > 1;
    let patience = if several { patience.min(ENDPOINT_CALL_TIMEOUT) } else { patience };
    for (endpoint, answer) in get_all(caller, caller.endpoints(), "/members", patience).await {
        let members = answer.map_err(|error| call_text(&error)).and_then(|answer| {
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

/// The knowledge that a node has of the members.
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
fn no_member(answer: &NodeAnswer) -> String {
    match answer.status {
        503 => escaped(&answer.text()),
        _ => "it is no node of a cluster".into(),
    }
}

/// Gets a path of all addresses at once, and returns their answers: one that is not there delays
/// none.
pub async fn get_all<'a>(
    caller: &NodeCaller,
    addresses: &'a [String],
    path: &'static str,
    patience: Duration,
) -> Vec<(&'a String, Result<NodeAnswer, CallError>)> {
    let mut asked = JoinSet::new();
    for (at, address) in addresses.iter().cloned().enumerate() {
        let caller = caller.clone();
        asked.spawn(async move { (at, caller.get(&address, path, patience).await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    addresses.iter().zip(answers.into_iter().map(|(_, answer)| answer)).collect()
}
