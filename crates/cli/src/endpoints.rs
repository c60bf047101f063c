//! The members that a command asks.

use std::time::Duration;

use clap::Args;
use esker_server::{Members, ask};

use crate::exit::{Failure, Outcome};

/// How long one member is asked.
const ASK: Duration = Duration::from_secs(5);

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

    /// The members, from the first that answers.
    pub async fn members(&self) -> Outcome<Members> {
        let mut failures = Vec::new();
        for endpoint in &self.endpoints {
            match ask(endpoint, "/members", None, ASK).await {
                Ok(answer) => match serde_json::from_slice::<Members>(&answer.body) {
                    Ok(members) => return Ok(members),
                    Err(_) => failures.push(format!("{endpoint}: it is no node of a cluster")),
                },
                Err(error) => failures.push(error.to_string()),
            }
        }
        Err(Failure::failed(failures.join("; ")))
    }

    /// The addresses that may lead: those that were given, and those of the members.
    pub fn all(&self, members: &Members) -> Vec<String> {
        let mut all = self.endpoints.clone();
        all.extend(members.members.iter().map(|member| member.addr.clone()));
        all
    }
}
