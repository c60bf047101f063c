//! Parsers for sizes, times, rates and policies on the command line.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

use esker_log::Policy;

/// Parses bytes: a number, with `K`, `M`, `G` or `T` for powers of 1024, or `KB`, `MB`, `GB` or
/// `TB` for powers of 1000, in any case. With a unit it may have decimals, as `1.5M`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "a size is like 4096, 64K, 1.5M or 10GB".to_owned();
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    if [whole, decimals].iter().any(|part| !part.bytes().all(|c| c.is_ascii_digit())) {
        return Err(wrong());
    }
    let unit = &text[digits.len()..];
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("unknown unit {unit}; {}", wrong())),
    };
    let too_large = || "a size below 2^64 bytes".to_owned();
    if whole.is_empty() || decimals.is_empty() || factor == 1 && digits.contains('.') {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let scale = 10u128.checked_pow(decimals.len() as u32).ok_or_else(wrong)?;
    let decimals: u128 = decimals.parse().map_err(|_| wrong())?;
    let part = decimals.checked_mul(factor.into()).ok_or_else(wrong)? / scale;
    let sum = u128::from(whole) * u128::from(factor) + part;
    u64::try_from(sum).map_err(|_| too_large())
}

/// Bytes as [`bytes`] parses them, in the largest unit of which they are a whole number.
pub fn shown_bytes(bytes: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let whole = units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, ""));
    format!("{}{name}", bytes / unit)
}

/// Parses bytes of whole blocks of 4096, as which segments and buffers are written: `10MB` is
/// rounded down.
pub fn blocks(text: &str) -> Result<u32, String> {
    const BLOCK_BYTES: u32 = 4096;
    Ok(small_bytes(text)? / BLOCK_BYTES * BLOCK_BYTES)
}

/// Parses bytes that fit into 32 bits.
pub fn small_bytes(text: &str) -> Result<u32, String> {
    u32::try_from(bytes(text)?).map_err(|_| "at most 4G - 1".into())
}

/// Parses a size, or `MIN..MAX` with both ends included.
pub fn size_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let Some((least, most)) = text.split_once("..") else {
        let size = small_bytes(text)?;
        return Ok(size..=size);
    };
    let (least, most) = (small_bytes(least)?, small_bytes(most.trim_start_matches('='))?);
    if least > most {
        return Err("MIN..MAX with MIN at most MAX".into());
    }
    Ok(least..=most)
}

/// Parses a time: seconds, or numbers with `ms`, `s`, `m`, `h` or `d`, as in `2h30m`.
pub fn time(text: &str) -> Result<Duration, String> {
    sum_of_times(text, 1.0)
        .ok_or_else(|| "a time is like 90 (seconds), 500ms, 15m, 2h30m or 7d".into())
}

/// A time as [`time`] parses it, in milliseconds or in the largest unit of which it is a whole
/// number.
pub fn shown_time(time: Duration) -> String {
    let millis = time.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let whole = units.into_iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "ms"));
    format!("{}{name}", millis / unit)
}

/// Parses a time above 0.
pub fn timeout(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("a time above 0, as 500ms or 10s".into()),
        time => Ok(time),
    }
}

/// The sum of numbers with units. A number alone counts `bare` seconds.
fn sum_of_times(text: &str, bare: f64) -> Option<Duration> {
    let mut rest = text.trim();
    if let Ok(number) = rest.parse::<f64>() {
        return Duration::try_from_secs_f64(number * bare).ok();
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number: f64 = rest[..rest.len() - digits.len()].parse().ok()?;
        rest = digits.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &digits[..digits.len() - rest.len()] {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
    }
    (!text.trim().is_empty()).then_some(sum)
}

/// Parses whole milliseconds in these bounds: a number of them, or a time with a unit, as `10ms`.
pub fn millis(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let time = sum_of_times(text, 1e-3).filter(|time| time.subsec_nanos() % 1_000_000 == 0);
        let millis = time.and_then(|time| u64::try_from(time.as_millis()).ok());
        millis.filter(|millis| bounds.contains(millis)).ok_or_else(|| {
            format!("a number from {} to {}, or a time, as 10ms", bounds.start(), bounds.end())
        })
    }
}

/// Parses a number in these bounds.
pub fn number<T: TryFrom<u64>>(
    bounds: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.trim().parse().ok().filter(|number| bounds.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("a number from {} to {}", bounds.start(), bounds.end()))
    }
}

/// Parses a count of at least one.
pub fn count(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(0) => Err("a count of at least 1".into()),
        Ok(count) => Ok(count),
        Err(_) => Err("a whole number of at least 1".into()),
    }
}

/// Parses the length of a measurement: 20 milliseconds to a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    match sum_of_times(text, 1.0).map(|time| time.as_secs_f64()) {
        Some(seconds) if (0.02..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.02 to 86400, or a time as 20ms or 5m".into()),
    }
}

/// Parses `always`, `batch:N`, `periodic:MS` or `os`.
pub fn policy(text: &str) -> Result<Policy, String> {
    let wrong = || "a policy is always, batch:N, periodic:MS or os".to_owned();
    let (name, number) = match text.split_once(':') {
        Some((name, number)) => (name, Some(number)),
        None => (text, None),
    };
    match (name, number) {
        ("always", None) => Ok(Policy::Always),
        ("os", None) => Ok(Policy::OsBuffered),
        ("batch", Some(n)) => {
            Ok(Policy::Batch(n.parse::<NonZeroU64>().map_err(|_| "batch:N with N at least 1")?))
        }
        ("periodic", Some(ms)) => {
            let time = sum_of_times(ms, 1e-3).filter(|time| time.as_millis() > 0);
            let time = time.ok_or("periodic:MS with at least 1 millisecond, as 10 or 10ms")?;
            Ok(Policy::Periodic(time))
        }
        _ => Err(wrong()),
    }
}

/// Returns a policy as typed on the command line.
pub fn policy_name(policy: Policy) -> String {
    match policy {
        Policy::Always => "always".into(),
        Policy::Batch(n) => format!("batch:{n}"),
        Policy::Periodic(t) => format!("periodic:{}", t.as_millis()),
        Policy::OsBuffered => "os".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(bytes("64m"), Ok(64 << 20));
        assert_eq!(bytes("10MB"), Ok(10_000_000));
        assert_eq!(bytes("3kb"), Ok(3_000));
        assert_eq!(bytes("1.5M"), Ok(3 << 19));
        assert_eq!(bytes("0.25kb"), Ok(250));
        assert_eq!(bytes("16777215.999T"), Ok(u64::MAX - 1_099_511_627));
        assert!(
            ["1.5", "1.5b", ".5M", "1.M", "1.2.3M", "-1M", "1e3K", "+1"]
                .iter()
                .all(|text| bytes(text).is_err())
        );
        assert!(bytes("4 apples").is_err());
        assert!(bytes("m").is_err());
        assert!(bytes("99999999999T").is_err());
        assert!(small_bytes("4G").is_err());
    }

    #[test]
    fn what_is_shown_is_parsed_to_the_same() {
        for (number, shown) in [(0, "0"), (1000, "1000"), (3 << 19, "1536K"), (2 << 30, "2G")] {
            assert_eq!((shown_bytes(number), bytes(shown)), (shown.to_owned(), Ok(number)));
        }
        for (millis, shown) in
            [(0, "0ms"), (1500, "1500ms"), (1000, "1s"), (7_200_000, "2h"), (172_800_000, "2d")]
        {
            let duration = Duration::from_millis(millis);
            assert_eq!((shown_time(duration), time(shown)), (shown.to_owned(), Ok(duration)));
        }
    }

    #[test]
    fn blocks_are_rounded_down() {
        assert_eq!(blocks("10MB"), Ok(9_998_336));
        assert_eq!(blocks("64K"), Ok(65_536));
        assert_eq!(blocks("4095"), Ok(0));
    }

    #[test]
    fn milliseconds_have_units_or_none() {
        let millis = millis(1..=60_000);
        for (text, expected) in [("10", 10), ("10ms", 10), ("1.5s", 1_500), ("1m", 60_000)] {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        for text in ["0", "0.5", "0.5ms", "61s", "-1", "soon", "10MS", ""] {
            assert!(millis(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_range_includes_both_ends() {
        assert_eq!(size_range("900"), Ok(900..=900));
        assert_eq!(size_range("512..1M"), Ok(512..=1 << 20));
        assert!(size_range("2..1").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("7d"), Ok(Duration::from_secs(7 * 86_400)));
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("2h30m"), Ok(Duration::from_secs(9_000)));
        assert_eq!(time("1.5s250ms"), Ok(Duration::from_millis(1_750)));
        assert_eq!(time(" 0.5 "), Ok(Duration::from_millis(500)));
        for text in [
            "",
            " ",
            "soon",
            "-1",
            "-1s",
            "2h30",
            "h",
            "2 h",
            "1e3s",
            "NaN",
            "inf",
            "9999999999999999999d",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_and_seconds_are_above_zero() {
        assert_eq!(
            (count("1"), seconds("20ms"), seconds("86400")),
            (Ok(1), Ok(0.02), Ok(86_400.0))
        );
        for text in ["0", "-1", "1.5", "many"] {
            assert!(count(text).is_err(), "{text}");
        }
        for text in ["0", "0.01", "-1", "86401", "NaN", "inf", "long"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn policies_round_trip() {
        for text in ["always", "os", "batch:100", "periodic:10"] {
            assert_eq!(policy_name(policy(text).unwrap()), text);
        }
        assert_eq!(policy("periodic:2s"), policy("periodic:2000"));
        assert_eq!(policy("periodic:10ms"), policy("periodic:10"));
        for text in ["batch", "batch:0", "periodic:0", "periodic:0.5", "never", "os:1"] {
            assert!(policy(text).is_err(), "{text}");
        }
    }
}
