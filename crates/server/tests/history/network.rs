//! The network between the nodes, which can be cut.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use esker_testkit::own_address;

use crate::namespaces::Namespaces;
use crate::proxies::Proxies;

pub enum Network {
    Proxies(Proxies),
    Namespaces(Namespaces),
}

/// Where a node listens, and where the others find it.
pub struct Addresses {
    pub listen: SocketAddr,
    pub raft_listen: SocketAddr,
    pub raft_advertise: SocketAddr,
}

/// The ports of a node at its own address: for clients and for the other nodes.
const PORTS: [u16; 2] = [8080, 9090];

impl Network {
    pub async fn addresses(&self, node: u64) -> Addresses {
        match self {
            Self::Proxies(proxies) => {
                let own = IpAddr::V4(own_address());
                let [listen, raft_listen] = PORTS.map(|port| SocketAddr::new(own, port));
                let raft_advertise = proxies.in_front_of(node, raft_listen).await;
                Addresses { listen, raft_listen, raft_advertise }
            }
            Self::Namespaces(_) => Addresses {
                listen: Namespaces::for_clients(node),
                raft_listen: Namespaces::for_peers(node),
                raft_advertise: Namespaces::for_peers(node),
            },
        }
    }

    /// This program again, where that node is.
    pub fn program(&self, node: u64) -> Command {
        let own = std::env::current_exe().unwrap();
        match self {
            Self::Proxies(_) => Command::new(own),
            Self::Namespaces(spaces) => {
                // It becomes the program: a signal reaches it.
                let mut ip = Command::new("ip");
                ip.args(["netns", "exec", &spaces.name(node)]).arg(own);
                ip
            }
        }
    }

    /// From now on nothing passes from and to this node, and nothing says so to either side.
    pub fn cut_off(&self, node: Option<u64>) {
        match self {
            Self::Proxies(proxies) => proxies.cut_off(node),
            Self::Namespaces(spaces) => spaces.cut_off(node),
        }
    }
}
