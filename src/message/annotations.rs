//! What the gateway notes about a message beside what its publisher sent: how often and where it died, how long it is
//! held back. Neutral: an endpoint shows it in its protocol's own form.

use super::record::{Reader, put_bytes, put_integer, put_optional, read_optional};
use crate::time::Wall;

/// Deaths that are remembered; the oldest are forgotten beyond.
const DEATHS_MAX: usize = 64;

/// Notes of the gateway.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Annotations {
    /// Milliseconds for which an exchange that delays holds it back.
    pub delay_ms: Option<u64>,
    /// Further addresses that its publisher gave openly.
    pub also: Vec<Box<str>>,
    /// Those that its receivers do not see.
    pub hidden: Vec<Box<str>>,
    /// Where it was taken out of a queue without having been accepted; the latest first.
    pub deaths: Vec<Death>,
}

/// A message's deaths in one queue for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Death {
    pub queue: Box<str>,
    pub reason: DeathReason,
    pub count: u64,
    /// The first time.
    pub died_at: Wall,
    /// Exchange and addresses under which it had come to the queue; an empty exchange is the default one.
    pub exchange: Box<str>,
    pub addresses: Vec<Box<str>>,
    /// The message's own time to live, which it does not keep.
    pub time_to_live_ms: Option<u64>,
}

/// Why a message died.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DeathReason {
    /// Its consumer did not want it.
    Rejected,
    /// Its time to live was over.
    Expired,
    /// The queue was full.
    QueueFull,
    /// It was handed out and came back too often.
    DeliveryLimit,
}

impl DeathReason {
    const ALL: [Self; 4] = [Self::Rejected, Self::Expired, Self::QueueFull, Self::DeliveryLimit];

    const fn code(self) -> u8 {
        match self {
            Self::Rejected => 0,
            Self::Expired => 1,
            Self::QueueFull => 2,
            Self::DeliveryLimit => 3,
        }
    }
}

impl Annotations {
    /// Notes a death; one in the same queue for the same reason is counted with the earlier ones.
    pub fn add_death(&mut self, death: Death) {
        let same = |old: &Death| old.queue == death.queue && old.reason == death.reason;
        let death = match self.deaths.iter().position(same) {
            Some(position) => {
                let old = self.deaths.remove(position);
                Death { count: old.count.saturating_add(1), ..old }
            }
            None => death,
        };
        self.deaths.insert(0, death);
        if self.deaths.len() > DEATHS_MAX {
            // Rules about topics ask for what passed the shared exchange, so that is forgotten last.
            let other = self.deaths.iter().rposition(|death| &*death.exchange != super::SHARED_EXCHANGE);
            self.deaths.remove(other.unwrap_or(DEATHS_MAX));
        }
    }

    /// True when as many deaths are remembered as can be.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.deaths.len() >= DEATHS_MAX
    }

    /// Bytes that they are charged, an upper bound of their stored form.
    #[must_use]
    pub fn charge(&self) -> usize {
        let texts = |texts: &[Box<str>]| texts.iter().map(|text| text.len() + 10).sum::<usize>();
        let death = |death: &Death| death.queue.len() + death.exchange.len() + texts(&death.addresses) + 64;
        32 + texts(&self.also) + texts(&self.hidden) + self.deaths.iter().map(death).sum::<usize>()
    }

    /// All further addresses.
    pub fn further(&self) -> impl Iterator<Item = &Box<str>> {
        self.also.iter().chain(&self.hidden)
    }

    /// Appends the stored form: delay plus 1 or 0 (integer), further addresses, deaths, and hidden addresses if there are
    /// any; each list behind its length.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_optional(out, self.delay_ms);
        put_texts(out, &self.also);
        put_integer(out, self.deaths.len() as u64);
        for death in &self.deaths {
            put_bytes(out, death.queue.as_bytes());
            out.push(death.reason.code());
            put_integer(out, death.count);
            put_integer(out, death.died_at.0);
            put_bytes(out, death.exchange.as_bytes());
            put_texts(out, &death.addresses);
            put_optional(out, death.time_to_live_ms);
        }
        if !self.hidden.is_empty() {
            put_texts(out, &self.hidden);
        }
    }

    /// Reads what [`Annotations::put`] wrote.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut annotations = Self { delay_ms: read_optional(reader)?, ..Self::default() };
        annotations.also = read_texts(reader)?;
        for _ in 0..reader.integer()? {
            let queue = reader.string()?.into();
            let code = reader.byte()?;
            annotations.deaths.push(Death {
                queue,
                reason: DeathReason::ALL.into_iter().find(|reason| reason.code() == code)?,
                count: reader.integer()?,
                died_at: Wall(reader.integer()?),
                exchange: reader.string()?.into(),
                addresses: read_texts(reader)?,
                time_to_live_ms: read_optional(reader)?,
            });
        }
        if !reader.is_empty() {
            annotations.hidden = read_texts(reader)?;
        }
        Some(annotations)
    }
}

fn put_texts(out: &mut Vec<u8>, texts: &[Box<str>]) {
    put_integer(out, texts.len() as u64);
    for text in texts {
        put_bytes(out, text.as_bytes());
    }
}

fn read_texts(reader: &mut Reader<'_>) -> Option<Vec<Box<str>>> {
    let mut texts = Vec::new();
    for _ in 0..reader.integer()? {
        texts.push(reader.string()?.into());
    }
    Some(texts)
}
