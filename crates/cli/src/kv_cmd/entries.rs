//! Keys and values as text: JSON lines, or frames with a length.

use std::io::{self, Write};

use crate::output;

/// Writes a key and its value as one JSON object. Bytes that are not text are written as base 64.
pub fn write_json(out: &mut impl Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut object = serde_json::Map::new();
    insert_bytes(&mut object, "key", key);
    insert_bytes(&mut object, "value", value);
    serde_json::to_writer(&mut *out, &object)?;
    out.write_all(b"\n")
}

/// Adds bytes to an object, as text under `name`, or as base 64 under `name` and `_b64`.
pub fn insert_bytes(
    object: &mut serde_json::Map<String, serde_json::Value>,
    name: &str,
    bytes: &[u8],
) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_b64"), output::base64(bytes).into()),
    };
}

/// Writes a key and its value as two frames, each after its length in 4 bytes, little-endian.
pub fn write_len32(out: &mut impl Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    for bytes in [key, value] {
        out.write_all(&(bytes.len() as u32).to_le_bytes())?;
        out.write_all(bytes)?;
    }
    Ok(())
}

/// Parses what [`write_json`] writes; otherwise says what is wrong.
pub fn parse_json(line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(line).map_err(|error| format!("it is no JSON object: {error}"))?;
    let field = |name: &str| -> Result<Vec<u8>, String> {
        let encoded = format!("{name}_b64");
        match (object.get(name), object.get(&encoded)) {
            (Some(serde_json::Value::String(text)), None) => Ok(text.clone().into_bytes()),
            (None, Some(serde_json::Value::String(text))) => {
                output::from_base64(text).ok_or(format!("`{encoded}` is not base 64"))
            }
            (None, None) => Err(format!("it has neither `{name}` nor `{encoded}`")),
            (Some(_), Some(_)) => Err(format!("it has both `{name}` and `{encoded}`")),
            _ => Err(format!("`{name}` is no string")),
        }
    };
    Ok((field("key")?, field("value")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        for (key, value) in [(&b"key"[..], &b"value"[..]), (b"", b"\xff\n"), (b"\xfe\"", b"\"\n")] {
            let mut line = Vec::new();
            write_json(&mut line, key, value).unwrap();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(parse_json(&line), Ok((key.to_vec(), value.to_vec())));
        }
    }

    #[test]
    fn invalid_entries_are_refused() {
        for line in [
            "",
            "[]",
            "{\"key\":1,\"value\":\"v\"}",
            "{\"key\":\"k\"}",
            "{\"key\":\"k\",\"key_b64\":\"aw==\",\"value\":\"v\"}",
            "{\"key\":\"k\",\"value_b64\":\"a\"}",
            "{\"key\":\"k\",\"value_b64\":\"a=b=\"}",
        ] {
            assert!(parse_json(line.as_bytes()).is_err(), "{line}");
        }
    }
}
