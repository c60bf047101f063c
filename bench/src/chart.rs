//! A bar for each system, one drawing for each work.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::job::Set;
use crate::report::{Row, grouped, rows_of_work};
use crate::work::{Workload, works};

const IMAGE_WIDTH: u32 = 860;
const BAR_HEIGHT: i32 = 26;
const TOP_MARGIN: i32 = 64;
const LEFT_MARGIN: i32 = 170;
const RIGHT_MARGIN: i32 = 110;

const INK: RGBColor = RGBColor(40, 40, 40);
const GREY: RGBColor = RGBColor(120, 120, 120);
const ESKER: RGBColor = RGBColor(32, 104, 168);
const PEER: RGBColor = RGBColor(170, 180, 190);

/// Draws every work that has figures.
pub fn draw_all(set: Set, rows: &[Row], out: &Path) -> Result<()> {
    for work in works(set) {
        let rows = rows_of_work(rows, work);
        if !rows.is_empty() {
            let path = out.join(format!("{}.svg", work.name));
            draw(&path, work, &rows).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn draw(path: &Path, work: &Workload, rows: &[&Row]) -> Result<()> {
    let height = TOP_MARGIN + BAR_HEIGHT * rows.len() as i32 + 16;
    let area = SVGBackend::new(path, (IMAGE_WIDTH, height as u32)).into_drawing_area();
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
    let room = f64::from(IMAGE_WIDTH as i32 - LEFT_MARGIN - RIGHT_MARGIN);
    for (row, top) in rows.iter().zip((TOP_MARGIN..).step_by(BAR_HEIGHT as usize)) {
        text(&row.system, (12, top + 6), 17, INK)?;
        let Some(figure) = row.figure(work) else {
            text("no figure: see the notes", (LEFT_MARGIN, top + 6), 16, GREY)?;
            continue;
        };
        let right = LEFT_MARGIN + ((figure / most * room) as i32).max(1);
        let color = if row.system.starts_with("esker") { ESKER } else { PEER };
        let corners = [(LEFT_MARGIN, top + 3), (right, top + BAR_HEIGHT - 4)];
        area.draw(&Rectangle::new(corners, color.filled())).map_err(error_of)?;
        text(&grouped(figure), (right + 6, top + 6), 17, INK)?;
    }
    area.present().map_err(error_of)
}
