//! Log lines that repeat: written once, then counted, with a growing pause until the next is written with its count.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Lines that are compared with; the oldest make room.
const LINES_MAX: usize = 32;
/// A line is not written twice within this; the pause doubles with each time that it is, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Line {
    text: String,
    written_at: Instant,
    pause: Duration,
    /// Times that it came since it was written.
    held_back: u64,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    lines: VecDeque<Line>,
}

impl Repeats {
    /// What is added to a line before it is written, or `None` when it is held back.
    pub fn pass(&mut self, now: Instant, text: &str) -> Option<String> {
        let Some(at) = self.lines.iter().position(|line| line.text == text) else {
            if self.lines.len() >= LINES_MAX {
                self.lines.pop_front();
            }
            let line = Line { text: text.to_owned(), written_at: now, pause: PAUSE_MIN, held_back: 0 };
            self.lines.push_back(line);
            return Some(String::new());
        };
        let mut line = self.lines.remove(at)?;
        let since = now.duration_since(line.written_at);
        if since < line.pause {
            line.held_back += 1;
            self.lines.push_back(line);
            return None;
        }
        let added = match line.held_back {
            0 => String::new(),
            count => format!(" (and {count} times more in the last {} s)", since.as_secs()),
        };
        // A line that stayed away for long begins anew.
        line.pause = if since >= line.pause * 4 { PAUSE_MIN } else { (line.pause * 2).min(PAUSE_MAX) };
        line.written_at = now;
        line.held_back = 0;
        self.lines.push_back(line);
        Some(added)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a moment to begin with")]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_hours_is_a_dozen_lines() {
        let begun = Instant::now();
        let mut repeats = Repeats::default();
        let mut written = Vec::new();
        for second in (0..3 * 3600).step_by(5) {
            if let Some(added) = repeats.pass(begun + Duration::from_secs(second), "the flash fails") {
                written.push((second, added));
            }
        }
        assert!(written.len() <= 12, "{written:?}");
        assert_eq!(written[0], (0, String::new()));
        assert_eq!(written[1], (10, " (and 1 times more in the last 10 s)".to_owned()));
        // Another line is not held back, and this one begins anew after a long silence.
        assert_eq!(repeats.pass(begun, "another"), Some(String::new()));
        let later = begun + Duration::from_secs(100 * 3600);
        assert!(repeats.pass(later, "the flash fails").is_some());
        assert!(repeats.pass(later + Duration::from_secs(9), "the flash fails").is_none());
        assert!(repeats.pass(later + Duration::from_secs(11), "the flash fails").is_some());
    }

    #[test]
    fn many_different_lines_take_bounded_room() {
        let now = Instant::now();
        let mut repeats = Repeats::default();
        for n in 0..1000 {
            assert!(repeats.pass(now, &n.to_string()).is_some());
        }
        assert_eq!(repeats.lines.len(), LINES_MAX);
    }
}
