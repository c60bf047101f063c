//! The text format of Prometheus before OpenMetrics, version 0.0.4.

use std::collections::HashMap;

use hyper::header::{ACCEPT, HeaderMap};

/// Whether a client prefers the older format to OpenMetrics, or names neither. Tools without an
/// `Accept` of their own, such as curl before promtool, only know the older one.
pub(crate) fn is_preferred(headers: &HeaderMap) -> bool {
    let (mut plain, mut open) = (0.0, 0.0);
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        let best = match kind {
            _ if kind.eq_ignore_ascii_case("text/plain") => &mut plain,
            _ if kind.eq_ignore_ascii_case("application/openmetrics-text") => &mut open,
            _ => continue,
        };
        *best = weight.unwrap_or(1.0).max(*best);
    }
    open == 0.0 || plain > open
}

/// Converts metrics from OpenMetrics: in the older format a counter and an information have their
/// whole names in each line.
pub(crate) fn from_open_metrics(text: &str) -> String {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: HashMap<_, _> = types.collect();
    let whole = |name: &str| match types.get(name) {
        Some(&"counter") => format!("{name}_total"),
        Some(&"info") => format!("{name}_info"),
        _ => name.to_owned(),
    };
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        let described = line.strip_prefix("# ").and_then(|line| line.split_once(' '));
        let described = described.map(|(word, rest)| (word, rest.split_once(' ')));
        match described {
            None if line == "# EOF" => continue,
            None => plain.push_str(line),
            Some(("UNIT", _)) => continue,
            Some(("TYPE", Some((name, "info")))) => {
                plain.extend(["# TYPE ", &whole(name), " gauge"]);
            }
            Some((word, Some((name, rest)))) => {
                plain.extend(["# ", word, " ", &whole(name), " ", rest]);
            }
            Some((_, None)) => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_format_that_a_client_names_is_taken() {
        let openmetrics = "application/openmetrics-text;version=1.0.0";
        for (accepted, is_plain) in [
            (&[][..], true),
            (&["*/*"], true),
            (&["text/plain"], true),
            (&["text/plain;version=0.0.4"], true),
            (&["Text/Plain; version=0.0.4; q=0.5, */*;q=0.1"], true),
            (&[&*format!("{openmetrics};q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1")], false),
            (&["text/plain;q=0.9", &*format!("{openmetrics};q=0.2")], true),
            (&[openmetrics], false),
            (&["text/plain;q=0, */*"], true),
            (&[&*format!("{openmetrics};q=0")], true),
            (&[&*format!("{openmetrics};q=0.5, text/plain;q=0.5")], false),
            (&["\u{1};;,=", "q="], true),
        ] {
            let mut headers = HeaderMap::new();
            for value in accepted {
                if let Ok(value) = value.parse() {
                    headers.append(ACCEPT, value);
                }
            }
            assert_eq!(is_preferred(&headers), is_plain, "{accepted:?}");
        }
    }

    #[test]
    fn names_are_whole_in_the_older_format() {
        let open = "# HELP a_b Help for a_b.\n# TYPE a_b counter\na_b_total 1\n\
                    # HELP a_seconds S.\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 2\n\
                    # HELP a I.\n# TYPE a info\na_info{v=\"# EOF\"} 1\n# EOF\n";
        let plain = "# HELP a_b_total Help for a_b.\n# TYPE a_b_total counter\na_b_total 1\n\
                     # HELP a_seconds S.\n# TYPE a_seconds gauge\na_seconds 2\n\
                     # HELP a_info I.\n# TYPE a_info gauge\na_info{v=\"# EOF\"} 1\n";
        assert_eq!(from_open_metrics(open), plain);
    }
}
