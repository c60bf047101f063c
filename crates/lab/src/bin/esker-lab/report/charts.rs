//! The pictures of the report, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 90.0;

/// A point of throughput against loss.
#[derive(Debug, Clone)]
pub struct Point {
    pub name: String,
    /// The group of points with one color.
    pub group: usize,
    pub per_s: f64,
    pub loss: Loss,
}

/// The largest loss at a crash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    Nothing,
    /// Puts of so many milliseconds.
    Ms(f64),
    Everything,
}

/// A bar of a histogram: values up to this many microseconds, and how many.
pub type Bar = (f64, f64);

/// The survivors of one crash.
#[derive(Debug, Clone, Copy)]
pub struct Crash {
    pub accepted: f64,
    pub durable: f64,
    pub recovered: f64,
}

const COLORS: [&str; 6] = ["#2068a8", "#2e8b57", "#c8781e", "#b03030", "#7a4fa3", "#5f6b73"];

/// The color of a group.
pub fn color(group: usize) -> &'static str {
    COLORS[group % COLORS.len()]
}

/// Text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Throughput against what a crash may lose, both on scales of powers of ten.
pub fn throughput(points: &[Point]) -> String {
    const HEIGHT: f64 = 420.0;
    let (top, bottom) = (20.0, HEIGHT - 50.0);
    let rates = powers(points.iter().map(|point| point.per_s));
    let windows = powers(points.iter().filter_map(|point| match point.loss {
        Loss::Ms(ms) => Some(ms),
        Loss::Nothing | Loss::Everything => None,
    }));
    let (nothing, everything) = (LEFT + 40.0, WIDTH - 60.0);
    let x = |loss: Loss| match loss {
        Loss::Nothing => nothing,
        Loss::Ms(ms) => nothing + 60.0 + part(ms, windows) * (everything - nothing - 140.0),
        Loss::Everything => everything,
    };
    let y = |rate: f64| bottom - part(rate, rates) * (bottom - top);
    let mut svg = open(HEIGHT);
    for power in rates.0..=rates.1 {
        let at = y(10f64.powi(power));
        line(&mut svg, (LEFT, at), (WIDTH - 20.0, at));
        text(&mut svg, (8.0, at + 4.0), &format!("{}/s", short(10f64.powi(power))), "#777");
    }
    for (at, name) in [(nothing, "nothing"), (everything, "everything")] {
        line(&mut svg, (at, top), (at, bottom));
        text(&mut svg, (at - 22.0, bottom + 20.0), name, "#777");
    }
    for power in windows.0..=windows.1 {
        let at = x(Loss::Ms(10f64.powi(power)));
        line(&mut svg, (at, top), (at, bottom));
        text(&mut svg, (at - 20.0, bottom + 20.0), &time(10f64.powi(power) * 1e3), "#777");
    }
    for (n, point) in points.iter().enumerate() {
        let (at_x, at_y) = (x(point.loss), y(point.per_s));
        let color = color(point.group);
        let _ = write!(svg, r#"<circle cx="{at_x:.1}" cy="{at_y:.1}" r="5" fill="{color}"/>"#);
        // Names are above and below in turn.
        let name_y = if n % 2 == 0 { at_y - 9.0 } else { at_y + 18.0 };
        text(&mut svg, (at_x - 14.0, name_y), &point.name, color);
    }
    svg + "</svg>"
}

/// A histogram; the counts are on a scale of powers of ten, or the slow few would not show.
pub fn histogram(bars: &[Bar]) -> String {
    const HEIGHT: f64 = 110.0;
    let (top, bottom) = (8.0, HEIGHT - 24.0);
    let most = bars.iter().map(|bar| bar.1).fold(1.0, f64::max).log10().max(1.0);
    let width = ((WIDTH - LEFT - 20.0) / bars.len().max(1) as f64).min(40.0);
    let mut svg = open(HEIGHT);
    text(&mut svg, (8.0, top + 10.0), &short(10f64.powf(most)), "#777");
    text(&mut svg, (8.0, bottom), "1", "#777");
    line(&mut svg, (LEFT, bottom), (WIDTH - 20.0, bottom));
    for (n, (us, count)) in bars.iter().enumerate() {
        let at = LEFT + n as f64 * width;
        let height = match *count > 0.0 {
            true => 3.0 + (count.log10().max(0.0) / most) * (bottom - top - 3.0),
            false => 0.0,
        };
        let _ = write!(
            svg,
            r#"<rect x="{at:.1}" y="{:.1}" width="{:.1}" height="{height:.1}" fill="{}"><title>up to {}: {count}</title></rect>"#,
            bottom - height,
            width - 1.0,
            color(0),
            time(*us),
        );
        if n % 3 == 0 {
            text(&mut svg, (at, bottom + 16.0), &time(*us), "#777");
        }
    }
    svg + "</svg>"
}

/// A bar for each crash: what was durable, what else was recovered, and what was lost.
pub fn survival(crashes: &[Crash]) -> String {
    const HEIGHT: f64 = 120.0;
    let (top, bottom) = (8.0, HEIGHT - 10.0);
    let most = crashes.iter().map(|crash| crash.accepted).fold(1.0, f64::max);
    let width = (WIDTH - LEFT - 20.0) / crashes.len().max(1) as f64;
    let mut svg = open(HEIGHT);
    text(&mut svg, (8.0, top + 10.0), &short(most), "#777");
    text(&mut svg, (8.0, bottom), "0", "#777");
    for (n, crash) in crashes.iter().enumerate() {
        let Crash { accepted, durable, recovered } = *crash;
        let title = format!("accepted {accepted}, durable {durable}, recovered {recovered}");
        let _ = write!(svg, "<g><title>{title}</title>");
        // From the front: each covers the lower part of the one before. What was durable and lost
        // is above what was recovered.
        let bars = [
            (accepted, "#e2b6b6"),
            (durable, "#d00000"),
            (recovered, "#9cc3e0"),
            (durable.min(recovered), "#2068a8"),
        ];
        for (value, color) in bars {
            let height = value / most * (bottom - top);
            let _ = write!(
                svg,
                r#"<rect x="{:.2}" y="{:.1}" width="{:.2}" height="{height:.1}" fill="{color}"/>"#,
                LEFT + n as f64 * width,
                bottom - height,
                (width - 0.4).max(0.4),
            );
        }
        svg.push_str("</g>");
    }
    svg + "</svg>"
}

fn open(height: f64) -> String {
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" font-family="sans-serif" font-size="12">"#
    )
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = write!(
        svg,
        r##"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="#ddd"/>"##,
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), words: &str, color: &str) {
    let words = escaped(words);
    let _ = write!(svg, r#"<text x="{:.1}" y="{:.1}" fill="{color}">{words}</text>"#, at.0, at.1);
}

/// The powers of ten around these values.
fn powers(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::log10).collect();
    let least = logs.iter().copied().fold(f64::MAX, f64::min);
    let most = logs.iter().copied().fold(f64::MIN, f64::max);
    match logs.is_empty() {
        true => (0, 1),
        false => (least.floor() as i32, (most.ceil() as i32).max(least.floor() as i32 + 1)),
    }
}

/// A place between two powers of ten, as a part.
fn part(value: f64, (first, last): (i32, i32)) -> f64 {
    let (first, last) = (f64::from(first), f64::from(last));
    ((value.max(1e-300).log10() - first) / (last - first)).clamp(0.0, 1.0)
}

/// A number in few characters: three digits that count.
pub fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e3 => (value / 1e3, " k"),
        value => return format!("{value:.0}"),
    };
    match value {
        value if value >= 100.0 => format!("{value:.0}{unit}"),
        value if value >= 10.0 => format!("{value:.1}{unit}"),
        value => format!("{value:.2}{unit}"),
    }
}

/// A time in few characters.
pub fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.1} s", us / 1e6),
        us if us >= 1e3 => format!("{:.1} ms", us / 1e3),
        us if us >= 1.0 => format!("{us:.1} µs"),
        us => format!("{:.0} ns", us * 1e3),
    }
}
