//! CPU profiles in a build without the feature `profile`: there are none.

use std::net::SocketAddr;

use esker_command::exit::{Failure, Outcome};

/// Never made.
#[derive(Debug)]
pub enum Port {}

impl Port {
    /// Refuses: profiles that are asked for are not left out silently.
    pub fn bind(_: SocketAddr) -> Outcome<Self> {
        Err(Failure::usage(
            "--profile-listen (ESKER_PROFILE_LISTEN): this build gives no profiles; build esker \
             with --features profile, or leave the address out",
        ))
    }

    /// Serves profiles.
    pub async fn serve(self) {
        match self {}
    }
}
