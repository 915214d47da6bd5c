//! A line chart in a terminal, drawn with Braille dots: two by four to a character.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::time::calendar;

/// Points that are kept; further ones thin out what is there.
const POINTS_MAX: usize = 200_000;
/// Lines that are told apart.
const LINES_MAX: usize = 8;
/// The first Braille character; its low eight bits are the dots.
const BRAILLE: u32 = 0x2800;

/// Points by line: the group, and which aggregate.
#[derive(Debug, Default)]
pub(super) struct Plot {
    lines: BTreeMap<String, Vec<(i64, f64)>>,
    points: usize,
    left_out: usize,
}

impl Plot {
    /// Takes a result: a bucket with its aggregates, or a reading with its first number.
    pub fn add(&mut self, row: &Map<String, Value>) {
        let time = ["_start", "_received_at"].iter().find_map(|key| row.get(*key)?.as_i64());
        let Some(time) = time else { return };
        let is_reading = row.contains_key("_received_at");
        let mut label: Vec<&str> = Vec::new();
        let mut values: Vec<(&str, f64)> = Vec::new();
        for (name, value) in row {
            match value {
                Value::String(text) if !is_reading || name == "_topic" => label.push(text),
                Value::Number(number) if !name.starts_with('_') => {
                    values.extend(number.as_f64().map(|number| (name.as_str(), number)));
                }
                _ => {}
            }
        }
        if is_reading {
            let value =
                ["value", "payload"].iter().find_map(|name| values.iter().find(|(n, _)| n == name).copied());
            values = value.or_else(|| values.first().copied()).into_iter().collect();
        }
        for (name, value) in values {
            let line = [label.join(" "), name.to_owned()].join(" ").trim().to_owned();
            if !self.lines.contains_key(&line) && self.lines.len() >= LINES_MAX || self.points >= POINTS_MAX {
                self.left_out += 1;
                continue;
            }
            self.points += 1;
            self.lines.entry(line).or_default().push((time, value));
        }
    }

    /// The chart, so many characters wide and high.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "dots of a chart"
    )]
    pub fn draw(&self, width: usize, height: usize) -> String {
        let all = || self.lines.values().flatten();
        let (Some(from), Some(to)) = (all().map(|p| p.0).min(), all().map(|p| p.0).max()) else {
            return "nothing to plot\n".to_owned();
        };
        let low = all().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let high = all().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
        let (across, down) = (width * 2, height * 4);
        let span = ((to - from) as f64).max(1.0);
        let range = if high > low { high - low } else { 1.0 };
        let mut dots = vec![vec![0u8; width]; height];
        let mut mark = |x: usize, y: usize| {
            let bit = match (x % 2, y % 4) {
                (0, 3) => 6,
                (1, 3) => 7,
                (column, row) => column * 3 + row,
            };
            if let Some(cell) = dots.get_mut(y / 4).and_then(|line| line.get_mut(x / 2)) {
                *cell |= 1 << bit;
            }
        };
        let place = |(time, value): (i64, f64)| {
            let x = ((time - from) as f64 / span * (across - 1) as f64).round() as usize;
            let y = ((high - value) / range * (down - 1) as f64).round() as usize;
            (x, y.min(down - 1))
        };
        for points in self.lines.values() {
            let mut last: Option<(usize, usize)> = None;
            for point in points {
                let (x, y) = place(*point);
                if let Some((from_x, from_y)) = last {
                    let steps = x.abs_diff(from_x).max(y.abs_diff(from_y)).max(1);
                    for step in 0..=steps {
                        let at = |a: usize, b: usize| {
                            (a as f64 + (b as f64 - a as f64) * step as f64 / steps as f64).round() as usize
                        };
                        mark(at(from_x, x), at(from_y, y));
                    }
                } else {
                    mark(x, y);
                }
                last = Some((x, y));
            }
        }
        let labels = [format!("{high:.6}"), format!("{low:.6}")].map(|text| short(&text));
        let margin = labels.iter().map(String::len).max().unwrap_or(0);
        let mut out = String::new();
        for (at, line) in dots.iter().enumerate() {
            let label = match at {
                0 => labels[0].as_str(),
                _ if at + 1 == height => labels[1].as_str(),
                _ => "",
            };
            let cells: String =
                line.iter().filter_map(|dots| char::from_u32(BRAILLE + u32::from(*dots))).collect();
            out.push_str(&format!("{label:>margin$} |{cells}\n"));
        }
        let (first, last) = (calendar::show(from), calendar::show(to));
        out.push_str(&format!(
            "{:margin$} {first}{last:>rest$}\n",
            "",
            rest = width.saturating_sub(first.len()) + 1
        ));
        for line in self.lines.keys() {
            out.push_str(&format!("{:margin$} {line}\n", ""));
        }
        if self.left_out > 0 {
            out.push_str(&format!(
                "{:margin$} {} points are left out: ask for fewer lines or a larger --every\n",
                "", self.left_out
            ));
        }
        out
    }
}

/// A number without needless zeros.
fn short(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_from_corner_to_corner() {
        let mut plot = Plot::default();
        for n in 0..10 {
            let row = serde_json::json!({ "_start": n * 1000, "avg": f64::from(n) });
            plot.add(row.as_object().unwrap());
        }
        let text = plot.draw(10, 5);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert!(lines[0].starts_with("9 |\u{2800}") && !lines[0].ends_with('\u{2800}'), "{text}");
        assert!(lines[4].starts_with("0 |") && !lines[4].starts_with("0 |\u{2800}"), "{text}");
        assert!(lines[5].contains("1970-01-01T00:00:00.000Z") && lines[6].contains("avg"));
        assert_eq!(Plot::default().draw(10, 5), "nothing to plot\n");
    }
}
