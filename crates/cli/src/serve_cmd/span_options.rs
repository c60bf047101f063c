//! The collector of spans, and the attributes of the process in them.

use hyper::Uri;

/// The collector of spans, and the attributes of each span.
#[derive(Debug, Clone)]
pub struct SpanOptions {
    pub collector: Uri,
    pub service: String,
    pub environment: Option<String>,
}

/// Parses the URL of a collector. A URL without a path gets `/v1/traces`.
pub fn collector(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
    // No user, and a port that is one.
    let is_host = uri.authority().is_some_and(|authority| {
        let port = authority.as_str().strip_prefix(authority.host());
        let port = port.filter(|_| !authority.host().is_empty());
        port.is_some_and(|port| port.is_empty() || authority.port_u16().is_some())
    });
    match uri.scheme_str() {
        Some("http") if is_host && !text.contains('#') => {}
        _ => return Err("not a URL like http://127.0.0.1:4318".into()),
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Ok(uri);
    }
    let whole = format!("{}/v1/traces", text.trim_end_matches('/'));
    whole.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_path_is_added_where_there_is_none() {
        let shown = |text| collector(text).map(|uri| uri.to_string());
        let whole = Ok("http://localhost:4318/v1/traces".to_owned());
        assert_eq!(shown("http://localhost:4318"), whole);
        assert_eq!(shown("http://localhost:4318/"), whole);
        assert_eq!(shown("http://10.0.0.1/otlp"), Ok("http://10.0.0.1/otlp".into()));
        assert_eq!(shown("http://[::1]:1"), Ok("http://[::1]:1/v1/traces".into()));
        for text in ["https://localhost:4318", "localhost:4318", "http://", "grpc://a", ""] {
            shown(text).unwrap_err();
        }
        for text in ["http://a:99999", "http://a:", "http://a#b", "http://user:word@a", "http://:1"]
        {
            shown(text).unwrap_err();
        }
    }
}
