//! What clients were not allowed to do: counted for metrics, and the newest remembered for `trace` and `doctor`, for
//! MQTT 3 has no way to tell a publisher that its message was dropped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::Identity;
use crate::time::Wall;

/// Different denials that are remembered; the oldest make room.
const REMEMBERED_MAX: usize = 64;
/// Characters of a name that are remembered: they are the client's choice.
const NAME_CHARS_MAX: usize = 200;

/// What was denied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Denied {
    /// To enter.
    Login,
    /// To publish to a topic.
    Publish,
    /// To subscribe with a filter, or to bind.
    Subscribe,
    /// To get a message that a wider subscription matches.
    Deliver,
}

impl Denied {
    pub const ALL: [Self; 4] = [Self::Login, Self::Publish, Self::Subscribe, Self::Deliver];

    /// The name in `status` and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Deliver => "deliver",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Login => 0,
            Self::Publish => 1,
            Self::Subscribe => 2,
            Self::Deliver => 3,
        }
    }
}

/// The same thing denied to the same client, once or often.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    pub denied: Denied,
    pub user_name: Option<Box<str>>,
    pub client_identifier: Box<str>,
    /// Topic or filter; for a login where it came from.
    pub what: Box<str>,
    pub count: u64,
    pub last_at: Wall,
}

/// See the file's head. Noted through a shared reference: whoever asks for a right only looks.
#[derive(Debug, Default)]
pub struct Denials {
    counts: [Cell<u64>; 4],
    remembered: RefCell<VecDeque<Denial>>,
}

impl Denials {
    /// Notes a denial.
    pub fn note(&self, at: Wall, denied: Denied, client: Identity<'_>, what: &str) {
        if let Some(count) = self.counts.get(denied.index()) {
            count.set(count.get() + 1);
        }
        let what = shortened(what);
        let mut remembered = self.remembered.borrow_mut();
        let same = |old: &Denial| {
            old.denied == denied
                && *old.what == *what
                && old.user_name.as_deref() == client.username.map(shortened)
                && *old.client_identifier == *shortened(client.client_identifier)
        };
        let mut denial = match remembered.iter().position(same).and_then(|at| remembered.remove(at)) {
            Some(denial) => denial,
            None => {
                if remembered.len() >= REMEMBERED_MAX {
                    remembered.pop_front();
                }
                Denial {
                    denied,
                    user_name: client.username.map(|name| shortened(name).into()),
                    client_identifier: shortened(client.client_identifier).into(),
                    what: what.into(),
                    count: 0,
                    last_at: at,
                }
            }
        };
        denial.count += 1;
        denial.last_at = at;
        remembered.push_back(denial);
    }

    /// How many there were of a kind.
    #[must_use]
    pub fn count(&self, denied: Denied) -> u64 {
        self.counts.get(denied.index()).map_or(0, Cell::get)
    }

    /// Those that are remembered, the newest last.
    #[must_use]
    pub fn remembered(&self) -> Vec<Denial> {
        self.remembered.borrow().iter().cloned().collect()
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(NAME_CHARS_MAX).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_one_and_the_oldest_make_room() {
        let denials = Denials::default();
        let client = Identity { username: Some("ada"), client_identifier: "c" };
        for n in 0..200u64 {
            denials.note(Wall(n), Denied::Publish, client, &format!("t/{}", n % 100));
        }
        denials.note(Wall(900), Denied::Publish, client, "t/99");
        assert_eq!(denials.count(Denied::Publish), 201);
        assert_eq!(denials.count(Denied::Login), 0);
        let remembered = denials.remembered();
        assert_eq!(remembered.len(), REMEMBERED_MAX);
        let last = remembered.last().unwrap();
        assert_eq!((&*last.what, last.count, last.last_at), ("t/99", 2, Wall(900)));
    }

    #[test]
    fn names_of_any_length_take_bounded_room() {
        let denials = Denials::default();
        let long = "ä".repeat(10_000);
        denials.note(Wall(1), Denied::Login, Identity { username: None, client_identifier: &long }, &long);
        let remembered = denials.remembered();
        assert_eq!(remembered[0].what.chars().count(), NAME_CHARS_MAX);
        denials.note(Wall(2), Denied::Login, Identity { username: None, client_identifier: &long }, &long);
        assert_eq!(denials.remembered().len(), 1);
    }
}
