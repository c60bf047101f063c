//! The configuration file, TOML. Its keys are those of the flags, with `_` for `-`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use esker_command::exit::{Failure, Outcome};

/// The keys of the file. A key that is not here is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    pub data: Option<PathBuf>,
    pub listen: Option<String>,
    pub http_port: Option<u16>,
    #[serde(alias = "raft_addr")]
    pub raft_listen: Option<String>,
    pub advertise: Option<String>,
    pub raft_advertise: Option<String>,
    pub node_id: Option<u64>,
    pub join: Option<String>,
    pub cluster: Option<String>,
    pub max_clock_step: Option<Word>,
    pub timestamp_request_buffer: Option<usize>,
    pub max_timestamps: Option<u32>,
    pub epoch_interval_ms: Option<u64>,
    pub epoch_deadline_limit: Option<u32>,
    pub rtt_ms: Option<u64>,
    pub connections: Option<usize>,
    pub lease_reads: Option<bool>,
    pub http3: Option<bool>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub client_ca: Option<PathBuf>,
    pub plain_http: Option<bool>,
    pub admin_token_file: Option<PathBuf>,
    pub peer_ca: Option<PathBuf>,
    pub peer_cert: Option<PathBuf>,
    pub peer_key: Option<PathBuf>,
    pub plain_peers: Option<bool>,
    pub follower_answer: Option<Word>,
    pub debug: Option<bool>,
    pub trace: Option<bool>,
    pub pretty: Option<bool>,
    pub log_time_ms: Option<bool>,
    pub log_level_key: Option<String>,
    pub profile_listen: Option<String>,
    pub otlp_endpoint: Option<String>,
    pub tracing_service_name: Option<String>,
    pub env: Option<String>,
}

/// A word, or a number in its place.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Word {
    Number(u64),
    Text(String),
}

impl Word {
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Reads the file, if one is given.
pub fn read(path: Option<&Path>) -> Outcome<ConfigFile> {
    let Some(path) = path else { return Ok(ConfigFile::default()) };
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("cannot read --config (ESKER_CONFIG) {shown}: {error}"))
    })?;
    let file = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let place = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        let why = unknown_key(error.message()).unwrap_or_else(|| error.message().to_owned());
        Failure::usage(format!("{shown}, line {place}: {why}"))
    })?;
    match empty_key(&text) {
        Some(key) => Err(Failure::usage(format!("{shown}: `{key}` is empty; remove the line"))),
        None => Ok(file),
    }
}

/// A key with an empty value, which no flag takes either.
fn empty_key(text: &str) -> Option<String> {
    let keys: toml::Table = toml::from_str(text).ok()?;
    keys.into_iter().find(|(_, value)| value.as_str() == Some("")).map(|(key, _)| key)
}

/// The message for an unknown key. `message` of the parser names it, and then the known keys.
fn unknown_key(message: &str) -> Option<String> {
    let mut names = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let key = names.next()?;
    let wanted = key.replace('-', "_");
    let nearest = names.map(|name| (strsim::levenshtein(&wanted, name), name)).min();
    Some(match nearest {
        // As far apart as a mistake in each third letter.
        Some((far, name)) if far <= name.len() / 3 => {
            format!("unknown key `{key}`: did you mean `{name}`?")
        }
        _ => format!("unknown key `{key}`: the keys are the flags of `esker serve`, with _ for -"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `data = ""` founded a cluster in the working directory.
    #[test]
    fn no_key_takes_an_empty_value() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for key in ["data", "listen", "otlp_endpoint", "tracing_service_name", "env", "cluster"] {
            std::fs::write(file.path(), format!("node_id = 1\n{key} = \"\"\n")).unwrap();
            let failure = format!("{:?}", read(Some(file.path())).unwrap_err());
            assert!(failure.contains(&format!("`{key}` is empty")), "{failure}");
            assert!(failure.contains("Usage"), "{failure}");
        }
    }

    #[test]
    fn an_unknown_key_is_compared_with_the_known_ones() {
        let said = |key: &str| {
            let error = toml::from_str::<ConfigFile>(&format!("{key} = 1")).err();
            error.and_then(|error| unknown_key(error.message())).unwrap_or_default()
        };
        assert!(said("lisen").contains("did you mean `listen`?"), "{}", said("lisen"));
        assert!(said("node-id").contains("did you mean `node_id`?"), "{}", said("node-id"));
        assert!(
            said("epoch_interval").contains("`epoch_interval_ms`"),
            "{}",
            said("epoch_interval")
        );
        assert!(!said("colour").contains("did you mean"), "{}", said("colour"));
        let apart = [("", "abc", 3), ("abc", "", 3), ("abc", "abd", 1), ("listen", "lisetn", 2)];
        for (from, to, far) in apart {
            assert_eq!(strsim::levenshtein(from, to), far, "{from} {to}");
        }
    }
}
