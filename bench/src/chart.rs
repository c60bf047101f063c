//! A bar for each system, one drawing for each work.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::job::Set;
use crate::report::{Row, grouped, of_work};
use crate::work::{Work, works};

const WIDTH: u32 = 860;
const BAR: i32 = 26;
const TOP: i32 = 64;
const LEFT: i32 = 170;
const RIGHT: i32 = 110;

const INK: RGBColor = RGBColor(40, 40, 40);
const GREY: RGBColor = RGBColor(120, 120, 120);
const ESKER: RGBColor = RGBColor(32, 104, 168);
const PEER: RGBColor = RGBColor(170, 180, 190);

/// Draws every work that has figures.
pub fn draw_all(set: Set, rows: &[Row], out: &Path) -> Result<()> {
    for work in works(set) {
        let rows = of_work(rows, work);
        if !rows.is_empty() {
            let path = out.join(format!("{}.svg", work.name));
            draw(&path, work, &rows).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn draw(path: &Path, work: &Work, rows: &[&Row]) -> Result<()> {
    let height = TOP + BAR * rows.len() as i32 + 16;
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    let error_of = |error: DrawingAreaErrorKind<std::io::Error>| anyhow!("{error}");
    area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    let text = |words: &str, at: (i32, i32), size: i32, color: RGBColor| {
        let style = ("sans-serif", size).into_font().color(&color);
        area.draw(&Text::new(words.to_owned(), at, style)).map_err(error_of)
    };
    text(work.title, (12, 10), 20, INK)?;
    let unit = if work.in_bytes { "MB/s" } else { work.set.unit() };
    let floor = rows.iter().find_map(|row| row.floor).map_or_else(String::new, |floor| {
        let (sync, seq) = (floor.sync_p50_us, grouped(floor.seq_mb_per_s));
        format!("; floor: overwrite + sync {sync:.0} µs, direct write {seq} MB/s")
    });
    text(&format!("{unit}, medians{floor}"), (12, 36), 16, GREY)?;
    let most = rows.iter().filter_map(|row| row.figure(work)).fold(0.0, f64::max);
    let room = f64::from(WIDTH as i32 - LEFT - RIGHT);
    for (row, top) in rows.iter().zip((TOP..).step_by(BAR as usize)) {
        text(&row.system, (12, top + 6), 17, INK)?;
        let Some(figure) = row.figure(work) else {
            text("no figure: see the notes", (LEFT, top + 6), 16, GREY)?;
            continue;
        };
        let right = LEFT + ((figure / most * room) as i32).max(1);
        let color = if row.system.starts_with("esker") { ESKER } else { PEER };
        let corners = [(LEFT, top + 3), (right, top + BAR - 4)];
        area.draw(&Rectangle::new(corners, color.filled())).map_err(error_of)?;
        text(&grouped(figure), (right + 6, top + 6), 17, INK)?;
    }
    area.present().map_err(error_of)
}
