//! The components and policies that a command goes through.

use clap::{Args, ValueEnum};
use esker_lab::Setting;

use esker_command::exit::{Failure, Outcome};

/// The components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Face {
    /// The log
    Log,
    /// The consensus log
    Consensus,
    /// The manager of many consensus logs, with snapshots and backups
    Manager,
    /// The key-value store
    Kv,
}

impl Face {
    fn name(self) -> &'static str {
        match self {
            Face::Log => "log",
            Face::Consensus => "consensus",
            Face::Manager => "manager",
            Face::Kv => "kv",
        }
    }
}

/// Selects components and policies.
#[derive(Debug, Args)]
pub struct Selection {
    /// Only this component; can be repeated
    #[arg(long, value_name = "COMPONENT")]
    component: Vec<Face>,
    /// Only this policy, as the table names it; can be repeated
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,
}

impl Selection {
    /// Selects the elements whose setting is selected: at least one.
    pub fn select<T>(&self, all: Vec<T>, setting: impl Fn(&T) -> Setting) -> Outcome<Vec<T>> {
        let mut policies: Vec<_> = all.iter().map(|each| setting(each).policy).collect();
        policies.sort_unstable();
        policies.dedup();
        if let Some(unknown) = self.policy.iter().find(|name| !policies.contains(&name.as_str())) {
            let known = policies.join(", ");
            return Err(Failure::usage(format!("no policy is named {unknown}; there are {known}")));
        }
        let mut known: Vec<_> = all
            .iter()
            .map(|each| format!("{} {}", setting(each).component, setting(each).policy))
            .collect();
        known.sort_unstable();
        known.dedup();
        let selected = |each: &T| {
            let Setting { component, policy, .. } = setting(each);
            let face = |face: &Face| face.name() == component;
            (self.component.is_empty() || self.component.iter().any(face))
                && (self.policy.is_empty() || self.policy.iter().any(|name| name == policy))
        };
        let selected: Vec<_> = all.into_iter().filter(selected).collect();
        if selected.is_empty() {
            return Err(Failure::usage(format!(
                "nothing is selected; there are {}",
                known.join(", ")
            )));
        }
        Ok(selected)
    }
}
