//! A component under one of its policies, and what happens to it.

use crate::promise::Promise;

/// A component under one of its policies, and what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The instrument: `power`, `kill` or a fault of the disk.
    pub instrument: &'static str,
    /// `log`, `consensus`, `manager` or `kv`.
    pub component: &'static str,
    /// The name of the policy.
    pub policy: &'static str,
    /// The promise of the policy.
    pub promise: Promise,
    /// The place of the policy in the component's list.
    pub(crate) index: usize,
}

/// The policies of a component, each with its name and its promise.
pub(crate) type Policies<P> = &'static [(&'static str, P, Promise)];

/// The settings of a component.
pub(crate) fn settings<P>(
    instrument: &'static str,
    component: &'static str,
    policies: Policies<P>,
) -> impl Iterator<Item = Setting> {
    let policies = policies.iter().enumerate();
    policies.map(move |(index, (policy, _, promise))| Setting {
        instrument,
        component,
        policy,
        promise: *promise,
        index,
    })
}
