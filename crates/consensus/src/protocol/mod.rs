//! The operations of an acceptor: promise, accept, commit, learn, truncate. `rules` decides,
//! without I/O.

pub(crate) mod accept;
pub(crate) mod commit;
pub(crate) mod learn;
pub(crate) mod promise;
pub(crate) mod rules;
pub(crate) mod truncate;
