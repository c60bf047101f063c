//! Keys and values as text: JSON lines, or frames with a length.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use esker_command::output;

/// How entries are separated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Framing {
    /// JSON lines
    #[default]
    Json,
    /// Lengths of 4 bytes, little-endian
    Len32,
}

/// The framing of a command.
#[derive(Debug, Args)]
pub struct FramingArgument {
    /// JSON lines, or lengths and bytes
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "json|len32"
    )]
    pub framing: Framing,
}

/// Writes a key and its value as one JSON object, with the name of their keyspace if given. Bytes
/// that are not text are written as base 64.
pub fn write_json(
    out: &mut impl Write,
    keyspace: Option<&str>,
    key: &[u8],
    value: &[u8],
) -> io::Result<()> {
    let mut object = json!({});
    output::add_bytes(&mut object, "key", key);
    output::add_bytes(&mut object, "value", value);
    if let Some(name) = keyspace {
        object["keyspace"] = name.into();
    }
    writeln!(out, "{object}")
}

/// Writes the name of a keyspace that has no keys as one JSON object.
pub fn write_keyspace(out: &mut impl Write, name: &str) -> io::Result<()> {
    writeln!(out, "{}", json!({ "keyspace": name }))
}

/// Writes a key and its value as two frames, each after its length in 4 bytes, little-endian.
pub fn write_len32(out: &mut impl Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    for bytes in [key, value] {
        out.write_all(&(bytes.len() as u32).to_le_bytes())?;
        out.write_all(bytes)?;
    }
    Ok(())
}

/// One entry of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The keyspace, where the line names one.
    pub keyspace: Option<String>,
    /// Key and value. A line that names only a keyspace creates it.
    pub pair: Option<(Vec<u8>, Vec<u8>)>,
}

/// Parses what [`write_json`] and [`write_keyspace`] write; otherwise says what is wrong.
pub fn parse_json(line: &[u8]) -> Result<Entry, String> {
    const FIELDS: [&str; 5] = ["key", "key_b64", "value", "value_b64", "keyspace"];
    let object: Map<String, Value> = serde_json::from_slice(line)
        .map_err(|error| format!("it is no JSON object: {}", output::json_error(&error)))?;
    if let Some(name) = object.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(format!("it has a field {name:?}, which is unknown"));
    }
    let keyspace = match object.get("keyspace") {
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => return Err("`keyspace` is no string".into()),
        None => None,
    };
    if keyspace.is_some() && object.len() == 1 {
        return Ok(Entry { keyspace, pair: None });
    }
    let field = |name: &str| -> Result<Vec<u8>, String> {
        let encoded = format!("{name}_b64");
        match (object.get(name), object.get(&encoded)) {
            (Some(Value::String(text)), None) => Ok(text.clone().into_bytes()),
            (None, Some(Value::String(text))) => {
                output::from_base64(text).ok_or(format!("`{encoded}` is not base 64"))
            }
            (None, None) => Err(format!("it has neither `{name}` nor `{encoded}`")),
            (Some(_), Some(_)) => Err(format!("it has both `{name}` and `{encoded}`")),
            (Some(_), None) => Err(format!("`{name}` is no string")),
            (None, Some(_)) => Err(format!("`{encoded}` is no string")),
        }
    };
    Ok(Entry { keyspace, pair: Some((field("key")?, field("value")?)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        for (key, value) in [(&b"key"[..], &b"value"[..]), (b"", b"\xff\n"), (b"\xfe\"", b"\"\n")] {
            for keyspace in [None, Some("a \"name\"\n")] {
                let mut line = Vec::new();
                write_json(&mut line, keyspace, key, value).unwrap();
                assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
                let pair = Some((key.to_vec(), value.to_vec()));
                let keyspace = keyspace.map(str::to_owned);
                assert_eq!(parse_json(&line), Ok(Entry { keyspace, pair }));
            }
        }
        let mut line = Vec::new();
        write_keyspace(&mut line, "empty").unwrap();
        let keyspace = Some("empty".to_owned());
        assert_eq!(parse_json(&line), Ok(Entry { keyspace, pair: None }));
    }

    #[test]
    fn invalid_entries_are_refused() {
        for line in [
            "",
            "[]",
            "{}",
            "{\"key\":1,\"value\":\"v\"}",
            "{\"key\":\"k\"}",
            "{\"key\":\"k\",\"keyspace\":\"a\"}",
            "{\"key\":\"k\",\"key_b64\":\"aw==\",\"value\":\"v\"}",
            "{\"key\":\"k\",\"value_b64\":\"a\"}",
            "{\"key\":\"k\",\"value_b64\":\"a=b=\"}",
            "{\"key\":\"k\",\"value\":\"v\",\"keyspace\":null}",
            "{\"key\":\"k\",\"value\":\"v\",\"ttl\":\"1\"}",
        ] {
            assert!(parse_json(line.as_bytes()).is_err(), "{line}");
        }
    }
}
