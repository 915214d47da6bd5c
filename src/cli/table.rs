//! A table on a terminal: columns as wide as the first rows need, then row by row as they come.

use std::io::{self, Write};

/// Rows that decide which columns there are and how wide.
const SAMPLE: usize = 500;
/// A wider cell is cut.
const WIDTH_MAX: usize = 60;

#[derive(Debug, Default)]
pub(super) struct Table {
    sample: Vec<Vec<(String, String)>>,
    columns: Vec<(String, usize)>,
    begun: bool,
}

impl Table {
    pub fn add(&mut self, row: Vec<(String, String)>, out: &mut dyn Write) -> io::Result<()> {
        if self.begun {
            return self.write(&row, out);
        }
        self.sample.push(row);
        if self.sample.len() >= SAMPLE { self.begin(out) } else { Ok(()) }
    }

    pub fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.begun { Ok(()) } else { self.begin(out) }
    }

    fn begin(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.begun = true;
        for (name, value) in self.sample.iter().flatten() {
            let width = value.chars().count().max(name.chars().count()).min(WIDTH_MAX);
            match self.columns.iter_mut().find(|(known, _)| known == name) {
                Some((_, widest)) => *widest = width.max(*widest),
                None => self.columns.push((name.clone(), width)),
            }
        }
        if self.columns.is_empty() {
            return writeln!(out, "nothing");
        }
        let names: Vec<_> = self.columns.iter().map(|(name, _)| (name.clone(), name.clone())).collect();
        self.write(&names, out)?;
        for row in std::mem::take(&mut self.sample) {
            self.write(&row, out)?;
        }
        Ok(())
    }

    fn write(&self, row: &[(String, String)], out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for (name, width) in &self.columns {
            let value = row.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
            let mut cell: String = value.chars().take(*width).collect();
            if value.chars().count() > *width {
                cell.pop();
                cell.push('~');
            }
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
        }
        writeln!(out, "{}", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut out = Vec::new();
        let mut table = Table::default();
        let row =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        table.add(row(&[("a", "1"), ("long", "x")]), &mut out).unwrap();
        table.add(row(&[("a", "22222"), ("more", "y")]), &mut out).unwrap();
        table.finish(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a      long  more\n1      x\n22222        y\n");
    }
}
