//! What a run did, as a hash and, on request, as text.
//!
//! Two runs of one seed must have equal hashes: whatever differs between them is read from somewhere else than the
//! seed.

use std::fmt;

#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    shown: bool,
    pub step: u64,
}

impl Trace {
    /// An empty trace; `shown` prints each event to standard error.
    pub const fn new(shown: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, shown, step: 0 }
    }

    /// Notes an event.
    pub fn note(&mut self, event: fmt::Arguments<'_>) {
        self.events += 1;
        self.mix(self.step);
        if self.shown {
            show(format_args!("{:>6} {event}", self.step));
        }
        fmt::write(self, event).expect("hashing does not fail");
    }

    /// The hash of all that was noted.
    pub const fn hash(&self) -> u64 {
        self.hash ^ self.events
    }

    pub const fn events(&self) -> u64 {
        self.events
    }

    const fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}

impl fmt::Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.mix(u64::from_le_bytes(word));
        }
        Ok(())
    }
}

#[expect(clippy::print_stderr, reason = "the readable trace goes there")]
pub fn show(line: fmt::Arguments<'_>) {
    eprintln!("{line}");
}
