//! Which components and policies a command goes through.

use clap::{Args, ValueEnum};
use esker_lab::{Setting, settings};

use crate::exit::{Failure, Outcome};

/// The components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Face {
    /// The log
    Log,
    /// The consensus log
    Consensus,
    /// The key-value store
    Kv,
}

impl Face {
    fn name(self) -> &'static str {
        match self {
            Face::Log => "log",
            Face::Consensus => "consensus",
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
    /// The settings selected, at least one.
    pub fn settings(&self) -> Outcome<Vec<Setting>> {
        let all = settings();
        if let Some(unknown) =
            self.policy.iter().find(|name| all.iter().all(|setting| setting.policy != **name))
        {
            let mut names: Vec<_> = all.iter().map(|setting| setting.policy).collect();
            names.sort_unstable();
            names.dedup();
            let names = names.join(", ");
            return Err(Failure::usage(format!("no policy is named {unknown}; there are {names}")));
        }
        let selected = |setting: &Setting| {
            let component = self.component.is_empty()
                || self.component.iter().any(|face| face.name() == setting.component);
            component && (self.policy.is_empty() || self.policy.iter().any(|p| p == setting.policy))
        };
        let selected: Vec<_> = all.into_iter().filter(selected).collect();
        if selected.is_empty() {
            return Err(Failure::usage("no selected component has a selected policy"));
        }
        Ok(selected)
    }
}
