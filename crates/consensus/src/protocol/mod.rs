//! The operations of an acceptor: promise, accept, commit, learn, truncate. `rules` decides,
//! without I/O. `floor` drops the slots below the floor, and `app_state` stores bytes of the
//! application's with it.

pub(crate) mod accept;
pub(crate) mod app_state;
pub(crate) mod commit;
pub(crate) mod floor;
pub(crate) mod learn;
pub(crate) mod promise;
pub(crate) mod rules;
pub(crate) mod truncate;
