//! `esker cluster certs`: the certificates of the nodes of a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use esker_command::exit::{Failure, Outcome, advise};
use esker_command::output::{print, print_json};
use esker_server::{ServerError, make_certificates, renew_certificates};

const EXAMPLES: &str = "\
Examples:
  # An authority, and a certificate for each of three nodes
  esker cluster certs ./certs --nodes 1=10.0.0.1,2=10.0.0.2,3=10.0.0.3

  # On node 1, with the files of ./certs/node-1
  esker serve --peer-ca ca.pem --peer-cert cert.pem --peer-key key.pem \\
      --cert server.pem --key server-key.pem

  # Another node, and new certificates for all before a year is over
  esker cluster certs ./certs --nodes 4=10.0.0.4
  esker cluster certs renew ./certs

Keep ./certs/ca-key.pem off the nodes: with it, anyone can make a node.";

const ADVICE: &str = "\
In each: --peer-ca ca.pem --peer-cert cert.pem --peer-key key.pem for other nodes,
--cert server.pem --key server-key.pem for clients, who trust ca.pem. For changes of
the cluster over TLS with --client-ca ca.pem: admin.pem and admin-key.pem.
";

/// The arguments of `esker cluster certs`.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct CertsArguments {
    #[command(subcommand)]
    renew: Option<CertsCommand>,
    /// The folder of the authority and of the nodes' files; it is made if it is not there
    #[arg(required = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The nodes, each with a host, or several with `+` between them
    #[arg(long, required = true, value_delimiter = ',', value_name = "N=HOST,...", value_parser = node)]
    nodes: Vec<(u64, Vec<String>)>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum CertsCommand {
    /// Make new certificates and keys for all nodes of a folder
    Renew {
        /// The folder
        dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

fn node(text: &str) -> Result<(u64, Vec<String>), String> {
    let (node, hosts) = text.split_once('=').ok_or("a node is N=HOST, such as 1=10.0.0.1")?;
    let node = node.parse::<u64>().ok().filter(|node| *node > 0);
    let node = node.ok_or("the number of a node is 1 or more")?;
    let hosts: Vec<_> = hosts.split('+').map(|host| host.trim().to_owned()).collect();
    match hosts.iter().any(String::is_empty) {
        true => Err(format!("node {node} has an empty host")),
        false => Ok((node, hosts)),
    }
}

/// Makes or renews the certificates.
pub fn run(arguments: &CertsArguments) -> Outcome {
    let (folders, json) = match (&arguments.renew, &arguments.dir) {
        (Some(CertsCommand::Renew { dir, json }), _) => (renew_certificates(dir), *json),
        (None, Some(dir)) => {
            let nodes: BTreeMap<_, _> = arguments.nodes.iter().cloned().collect();
            if nodes.len() < arguments.nodes.len() {
                return Err(Failure::usage("--nodes names a node twice"));
            }
            (make_certificates(dir, &nodes), arguments.json)
        }
        (None, None) => return Err(Failure::usage("which folder?")),
    };
    let folders = folders.map_err(|error| match error {
        ServerError::Certificate(why) => Failure::usage(why),
        error => Failure::failed(esker_command::library_errors::with_causes(&error)),
    })?;
    if json {
        return print_json(&json!({ "nodes": folders }));
    }
    folders.iter().try_for_each(|folder| print(&format!("{}\n", folder.display())))?;
    advise(ADVICE);
    Ok(())
}
