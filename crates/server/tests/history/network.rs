//! What the nodes say to one another, which can be cut.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr, TcpListener as Port};
use std::process::Command;

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

/// Of an address that no connection comes from, so that none takes the port of a node that is down.
fn free_port() -> SocketAddr {
    Port::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap().local_addr().unwrap()
}

impl Network {
    pub async fn addresses(&self, node: u64) -> Addresses {
        match self {
            Self::Proxies(proxies) => {
                let (listen, raft_listen) = (free_port(), free_port());
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
