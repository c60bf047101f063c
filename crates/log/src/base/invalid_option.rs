//! The error of an option that is out of its range, in every crate that has options.

use std::fmt;

/// An option that is out of its range. Nothing was opened or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidOption {
    /// The option's name.
    pub option: &'static str,
    /// The rule that its value must satisfy.
    pub rule: String,
}

impl InvalidOption {
    /// Refuses an option whose value breaks this rule.
    ///
    /// # Errors
    /// The option and the rule, if the rule does not hold.
    ///
    /// # Examples
    /// ```
    /// use esker_log::InvalidOption;
    ///
    /// let refused = InvalidOption::unless(0 > 0, "max_open", "at least 1").unwrap_err();
    /// assert_eq!(refused.to_string(), "option max_open must be at least 1");
    /// ```
    pub fn unless(holds: bool, option: &'static str, rule: impl Into<String>) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self { option, rule: rule.into() }) }
    }
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option {} must be {}", self.option, self.rule)
    }
}

impl std::error::Error for InvalidOption {}
