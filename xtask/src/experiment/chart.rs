//! The picture: throughput against what a crash may lose, for each policy.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::page::{count, time};
use super::results::Results;

const SIZE: (u32, u32) = (860, 480);
const LEFT_X: i32 = 90;
const RIGHT_X: i32 = 820;
const TOP_Y: i32 = 70;
const BOTTOM_Y: i32 = 410;
/// The place of a policy that loses nothing.
const NO_LOSS_X: i32 = LEFT_X + 40;
/// The loss windows of the axis, as powers of ten of a millisecond.
const WINDOWS: std::ops::RangeInclusive<i32> = -2..=3;
/// The rates of the axis, as powers of ten.
const RATES: std::ops::RangeInclusive<i32> = 2..=7;

const INK: RGBColor = RGBColor(40, 40, 40);
const GREY: RGBColor = RGBColor(120, 120, 120);
const LINE: RGBColor = RGBColor(225, 225, 225);
/// A set of results, its name, where the name is, and its color.
const SETS: [(&str, &str, i32, RGBColor); 4] = [
    ("128", "128 bytes", 90, RGBColor(32, 104, 168)),
    ("4096", "4 KiB", 190, RGBColor(46, 139, 87)),
    ("sata", "128 bytes, SATA SSD (emulated)", 270, RGBColor(200, 120, 30)),
    ("hdd", "128 bytes, hard disk (emulated)", 520, RGBColor(176, 48, 48)),
];

/// A place between two powers of ten, as a part.
fn part(value: f64, range: &std::ops::RangeInclusive<i32>) -> f64 {
    let (first, last) = (f64::from(*range.start()), f64::from(*range.end()));
    ((value.log10() - first) / (last - first)).clamp(0.0, 1.0)
}

fn x(ms: f64) -> i32 {
    let room = f64::from(RIGHT_X - NO_LOSS_X - 60);
    if ms == 0.0 { NO_LOSS_X } else { NO_LOSS_X + 60 + (part(ms, &WINDOWS) * room) as i32 }
}

fn y(per_s: f64) -> i32 {
    BOTTOM_Y - (part(per_s, &RATES) * f64::from(BOTTOM_Y - TOP_Y)) as i32
}

/// The picture as SVG.
pub fn svg(results: &Results) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let failed = |error: DrawingAreaErrorKind<std::io::Error>| anyhow!("{error}");
        area.fill(&WHITE).map_err(failed)?;
        let write = |words: &str, at: (i32, i32), size: i32, color: RGBColor| {
            let style = ("sans-serif", size).into_font().color(&color);
            area.draw(&Text::new(words.to_owned(), at, style)).map_err(failed)
        };
        let line = |from: (i32, i32), to: (i32, i32)| {
            area.draw(&PathElement::new(vec![from, to], LINE)).map_err(failed)
        };
        write("Throughput against what a crash may lose", (12, 10), 20, INK)?;
        write("puts per second; one caller, the last sync included", (12, 38), 15, GREY)?;
        for power in RATES {
            let rate = 10f64.powi(power);
            line((LEFT_X, y(rate)), (RIGHT_X, y(rate)))?;
            write(&count(rate), (12, y(rate) - 8), 15, GREY)?;
        }
        line((NO_LOSS_X, TOP_Y), (NO_LOSS_X, BOTTOM_Y))?;
        write("nothing", (NO_LOSS_X - 24, BOTTOM_Y + 8), 15, GREY)?;
        for power in WINDOWS {
            let ms = 10f64.powi(power);
            line((x(ms), TOP_Y), (x(ms), BOTTOM_Y))?;
            write(&time(ms * 1e3), (x(ms) - 22, BOTTOM_Y + 8), 15, GREY)?;
        }
        for (set, name, left, color) in SETS {
            let legend = (left, BOTTOM_Y + 40);
            area.draw(&Circle::new((legend.0, legend.1 + 7), 5, color.filled())).map_err(failed)?;
            write(name, (legend.0 + 10, legend.1), 13, INK)?;
            // Names are above and below in turn.
            for (figure, above) in
                results.figures(set, "kv/put").into_iter().zip([20, -8].iter().cycle())
            {
                let at = (x(figure.loss()?.ms), y(figure.per_s()?));
                area.draw(&Circle::new(at, 5, color.filled())).map_err(failed)?;
                if set == "128" {
                    write(figure.policy(), (at.0 + 8, at.1 - above), 14, INK)?;
                }
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}
