//! How a log line looks.

use std::fmt::{self, Debug, Write};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use esker_command::output::time_in_nanos;

/// One JSON object a line: time, level, target, message and the fields of the event.
pub struct Json {
    pub in_ms: bool,
    pub level_key: String,
}

/// A line for people.
pub struct Pretty {
    pub in_ms: bool,
}

fn now(in_ms: bool) -> Value {
    let now = SystemTime::now();
    if in_ms {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        return Value::from(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    }
    Value::from(time_in_nanos(now))
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut line = fields.0;
        line.insert("time".into(), now(self.in_ms));
        line.insert(self.level_key.clone(), level(metadata.target(), metadata.level()).into());
        line.insert("target".into(), metadata.target().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

impl<S, N> FormatEvent<S, N> for Pretty
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let mut text = String::new();
        let time = now(self.in_ms);
        let time = time.as_str().map_or_else(|| time.to_string(), ToOwned::to_owned);
        let metadata = event.metadata();
        write!(text, "{time} {:5} ", level(metadata.target(), metadata.level()))?;
        if let Some(message) = fields.0.remove("message") {
            write!(text, "{}", message.as_str().unwrap_or_default())?;
        }
        for (name, value) in &fields.0 {
            match value.as_str() {
                Some(value) => write!(text, " {name}={}", value.escape_debug())?,
                None => write!(text, " {name}={value}")?,
            }
        }
        writeln!(writer, "{text}")
    }
}

/// The level of a line of this target. openraft calls ordinary elections, and the founding of a
/// cluster, warnings and errors: what a node has to say of them it says itself.
fn level(target: &str, level: &tracing::Level) -> &'static str {
    let is_detail = target == "openraft" || target.starts_with("openraft::");
    match if is_detail { (*level).max(tracing::Level::DEBUG) } else { *level } {
        tracing::Level::ERROR => "error",
        tracing::Level::WARN => "warn",
        tracing::Level::INFO => "info",
        tracing::Level::DEBUG => "debug",
        tracing::Level::TRACE => "trace",
    }
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        self.0.insert(field.name().into(), text.into());
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    /// With `--debug`, founding a cluster logged a warning.
    #[test]
    fn what_openraft_logs_is_a_detail() {
        assert_eq!(level("openraft::core::raft_core", &Level::WARN), "debug");
        assert_eq!(level("openraft", &Level::ERROR), "debug");
        assert_eq!(level("openraft", &Level::TRACE), "trace");
        assert_eq!(level("esker_raft::node::leadership_log", &Level::WARN), "warn");
        assert_eq!(level("openraft_legacy", &Level::WARN), "warn");
    }
}
