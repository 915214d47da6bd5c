//! The topic index: which queues want a message with this address.
//!
//! A trie over levels. Owns matching; leaves the grammar of patterns to the protocols, which hand over lists of
//! [`Level`]s. MQTT's `+` and AMQP's `*` are `One`, `#` is `Many`; MQTT allows `Many` only at the end, AMQP anywhere.

use crate::collections::{self, Map};

/// One level of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level<'a> {
    Literal(&'a str),
    /// Exactly one level, an empty one included.
    One,
    /// Any number of levels, none included.
    Many,
}

/// Reads a pattern in MQTT's notation (`/`, `+`, `#`). The caller has validated it.
pub fn mqtt_levels(filter: &str) -> impl Iterator<Item = Level<'_>> {
    filter.split('/').map(|level| match level {
        "+" => Level::One,
        "#" => Level::Many,
        literal => Level::Literal(literal),
    })
}

/// Reads a pattern in the notation of bindings: levels joined by `/`, `*` for one and `#` for any number. Without
/// any text it has no level; several `#` in a row say what one says.
pub fn pattern_levels(pattern: &str) -> impl Iterator<Item = Level<'_>> {
    let mut levels = pattern.split('/').map(|level| match level {
        "*" => Level::One,
        "#" => Level::Many,
        literal => Level::Literal(literal),
    });
    let mut last = None;
    std::iter::from_fn(move || {
        if pattern.is_empty() {
            return None;
        }
        let next = levels.by_ref().find(|level| last != Some(Level::Many) || *level != Level::Many);
        last = next;
        next
    })
}

const ROOT: u32 = 0;

#[derive(Debug)]
struct Node<S> {
    children: Map<Box<str>, u32>,
    one: Option<u32>,
    many: Option<u32>,
    subscribers: Vec<(u32, S)>,
    /// Its level is `Many`.
    is_many: bool,
}

/// The trie. `S` is what a binding carries beside its queue, given back with each match.
#[derive(Debug)]
pub struct TopicIndex<S> {
    nodes: Vec<Node<S>>,
    free: Vec<u32>,
    seed: u64,
    /// Links that continue after a `Many`: as long as there are none, matching needs no memory of where it was.
    after_many: usize,
}

/// The first level of an address, and what follows it. A plain loop: levels are short, and this runs for each level of
/// each publish.
fn first_level(rest: &str) -> (&str, Option<&str>) {
    let at = rest.bytes().position(|byte| byte == b'/');
    match at.and_then(|at| rest.split_at_checked(at)) {
        Some((level, after)) => (level, after.get(1..)),
        None => (rest, None),
    }
}

impl<S: Copy> TopicIndex<S> {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut index = Self { nodes: Vec::new(), free: Vec::new(), seed, after_many: 0 };
        index.add_node();
        index
    }

    /// Binds `queue` under `pattern`, or replaces what the same binding carried. True when it is new.
    pub fn insert<'a>(&mut self, pattern: impl Iterator<Item = Level<'a>>, queue: u32, carried: S) -> bool {
        let mut at = ROOT;
        let mut after_many = false;
        for level in pattern {
            at = match self.child(at, level) {
                Some(child) => child,
                None => {
                    self.after_many += usize::from(after_many);
                    self.add_child(at, level)
                }
            };
            after_many = level == Level::Many;
        }
        let subscribers = &mut self.node_mut(at).subscribers;
        match subscribers.iter_mut().find(|(q, _)| *q == queue) {
            Some((_, old)) => {
                *old = carried;
                false
            }
            None => {
                subscribers.push((queue, carried));
                true
            }
        }
    }

    /// Removes the binding of `queue` under `pattern`. True when there was one.
    pub fn remove<'a>(&mut self, pattern: impl Iterator<Item = Level<'a>>, queue: u32) -> bool {
        let mut path = vec![(ROOT, Level::Many)];
        for level in pattern {
            let Some((at, _)) = path.last().copied() else { return false };
            let Some(child) = self.child(at, level) else { return false };
            path.push((child, level));
        }
        let Some((leaf, _)) = path.last().copied() else { return false };
        let subscribers = &mut self.node_mut(leaf).subscribers;
        let Some(position) = subscribers.iter().position(|(q, _)| *q == queue) else { return false };
        subscribers.remove(position);
        self.prune(&path);
        true
    }

    /// Calls `visit` for every binding that matches `address`, whose levels are separated by `/`.
    ///
    /// A queue bound under several matching patterns is visited once for each. An address whose first level begins
    /// with `$` is not matched by a pattern that begins with a wildcard. [MQTT-4.7.2-1]
    pub fn matches(&self, address: &str, visit: &mut impl FnMut(u32, S)) {
        let reserved = address.starts_with('$');
        // Without any text there is no level.
        let rest = if address.is_empty() { None } else { Some(address) };
        if self.after_many > 0 {
            self.walk_remembering(ROOT, rest, reserved, visit);
        } else {
            self.walk(ROOT, rest, reserved, visit);
        }
    }

    /// Calls `visit` for the bindings that match `address` and that [`TopicIndex::matches`] leaves out because they
    /// begin with a wildcard and the address is reserved.
    pub fn matches_leading_wildcards(&self, address: &str, visit: &mut impl FnMut(u32, S)) {
        let root = self.node(ROOT);
        if let Some(many) = root.many {
            self.walk_remembering(many, Some(address), false, visit);
        }
        if let Some(one) = root.one {
            let after = address.split_once('/').map(|(_, after)| after);
            self.walk_remembering(one, after, false, visit);
        }
    }

    /// Nodes in use, the root included: for accounting and tests.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// `rest` is what follows this node's level: `None` after the last one.
    fn walk(&self, at: u32, rest: Option<&str>, reserved: bool, visit: &mut impl FnMut(u32, S)) {
        let node = self.node(at);
        if !reserved && let Some(many) = node.many {
            self.walk_many(many, visit);
        }
        let Some(rest) = rest else {
            for (queue, carried) in &node.subscribers {
                visit(*queue, *carried);
            }
            return;
        };
        if node.children.is_empty() && node.one.is_none() {
            return;
        }
        let (level, after) = first_level(rest);
        if let Some(child) = node.children.get(level) {
            self.walk(*child, after, false, visit);
        }
        if !reserved && let Some(one) = node.one {
            self.walk(one, after, false, visit);
        }
    }

    /// A `Many` node that ends its patterns takes all levels that are left.
    fn walk_many(&self, many: u32, visit: &mut impl FnMut(u32, S)) {
        for (queue, carried) in &self.node(many).subscribers {
            visit(*queue, *carried);
        }
    }

    /// Matching where patterns continue after a `Many`: each node is visited at most once for each level of the
    /// address, however many `Many` follow each other, and each binding at most once.
    fn walk_remembering(
        &self,
        start: u32,
        rest: Option<&str>,
        reserved: bool,
        visit: &mut impl FnMut(u32, S),
    ) {
        let mut been = collections::set(self.seed);
        let mut told = collections::set(self.seed);
        let mut work = vec![(start, rest)];
        while let Some((at, rest)) = work.pop() {
            // What is left is a suffix of the address, so its length says which.
            if !been.insert((at, rest.map_or(usize::MAX, str::len))) {
                continue;
            }
            let node = self.node(at);
            let wild = !(reserved && at == ROOT);
            let is_many = self.is_many(at);
            if (rest.is_none() || is_many) && told.insert(at) {
                for (queue, carried) in &node.subscribers {
                    visit(*queue, *carried);
                }
            }
            if wild && let Some(many) = node.many {
                work.push((many, rest));
            }
            let Some(rest) = rest else { continue };
            let (level, after) = first_level(rest);
            if is_many {
                work.push((at, after));
            }
            if let Some(child) = node.children.get(level) {
                work.push((*child, after));
            }
            if wild && let Some(one) = node.one {
                work.push((one, after));
            }
        }
    }

    fn is_many(&self, at: u32) -> bool {
        self.node(at).is_many
    }

    fn child(&self, at: u32, level: Level<'_>) -> Option<u32> {
        let node = self.node(at);
        match level {
            Level::Literal(name) => node.children.get(name).copied(),
            Level::One => node.one,
            Level::Many => node.many,
        }
    }

    fn add_child(&mut self, at: u32, level: Level<'_>) -> u32 {
        let child = self.add_node();
        let node = self.node_mut(at);
        match level {
            Level::Literal(name) => {
                node.children.insert(name.into(), child);
            }
            Level::One => node.one = Some(child),
            Level::Many => node.many = Some(child),
        }
        self.node_mut(child).is_many = level == Level::Many;
        child
    }

    fn add_node(&mut self) -> u32 {
        let node = Node {
            children: collections::map(self.seed),
            one: None,
            many: None,
            subscribers: Vec::new(),
            is_many: false,
        };
        if let Some(free) = self.free.pop() {
            *self.node_mut(free) = node;
            return free;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("nodes are bounded by the subscriptions of all sessions")
    }

    /// Frees the nodes at the end of `path` that carry nothing any more.
    fn prune(&mut self, path: &[(u32, Level<'_>)]) {
        for pair in path.windows(2).rev() {
            let [(parent, _), (child, level)] = pair else { return };
            let node = self.node(*child);
            if !node.subscribers.is_empty()
                || !node.children.is_empty()
                || node.one.is_some()
                || node.many.is_some()
            {
                return;
            }
            self.after_many -= usize::from(self.is_many(*parent));
            let parent = self.node_mut(*parent);
            match level {
                Level::Literal(name) => {
                    parent.children.remove(*name);
                }
                Level::One => parent.one = None,
                Level::Many => parent.many = None,
            }
            self.free.push(*child);
        }
    }

    fn node(&self, at: u32) -> &Node<S> {
        self.nodes.get(at as usize).expect("links point at nodes in use")
    }

    fn node_mut(&mut self, at: u32) -> &mut Node<S> {
        self.nodes.get_mut(at as usize).expect("links point at nodes in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(patterns: &[&str], address: &str) -> Vec<usize> {
        let mut index = TopicIndex::new(1);
        for (n, pattern) in (0..).zip(patterns) {
            index.insert(mqtt_levels(pattern), n, ());
        }
        let mut found = Vec::new();
        index.matches(address, &mut |queue, ()| found.push(queue as usize));
        found.sort_unstable();
        found
    }

    #[test]
    fn wildcards_match_as_the_specification_says() {
        let patterns = ["a/+/c", "a/#", "+/b/c", "#", "a/b/c", "+", "a/b/c/#", "/+", "+/+"];
        assert_eq!(matching(&patterns, "a/b/c"), [0, 1, 2, 3, 4, 6]);
        assert_eq!(matching(&patterns, "a"), [1, 3, 5]);
        assert_eq!(matching(&patterns, "/x"), [3, 7, 8]);
        assert_eq!(matching(&patterns, "a//c"), [0, 1, 3]);
        assert_eq!(matching(&patterns, "a/"), [1, 3, 8]);
    }

    #[test]
    fn mqtt_4_7_2_1_leading_wildcards_do_not_match_reserved_topics() {
        assert_eq!(matching(&["#", "+/x", "$SYS/#", "$SYS/+", "$SYS/x"], "$SYS/x"), [2, 3, 4]);
        assert_eq!(matching(&["a/#", "a/+"], "a/$x"), [0, 1]);
    }

    #[test]
    fn many_in_the_middle_takes_any_number_of_levels() {
        let patterns = ["a/#/z", "#/z", "#/b/#"];
        assert_eq!(matching(&patterns, "a/z"), [0, 1]);
        assert_eq!(matching(&patterns, "a/b/c/z").iter().filter(|n| **n == 0).count(), 1);
        assert!(matching(&patterns, "a/b/c").contains(&2));
    }

    #[test]
    fn many_after_many_costs_a_step_for_each_node_and_level() {
        let mut index = TopicIndex::new(1);
        let pattern = ["#/a"; 24].join("/") + "/#/b";
        index.insert(pattern_levels(&pattern), 0, ());
        let address = ["a"; 120].join("/");
        let mut found = 0;
        index.matches(&address, &mut |_, ()| found += 1);
        assert_eq!(found, 0);
        index.matches(&(address + "/b"), &mut |_, ()| found += 1);
        assert_eq!(found, 1);
    }

    #[test]
    fn patterns_of_bindings_match_words() {
        let mut index = TopicIndex::new(1);
        let patterns = ["*/error", "eu/#", "eu/west/db/*", "#", "", "*", "#/#/x", "#/x/#", "+/error"];
        for (n, pattern) in (0..).zip(&patterns) {
            index.insert(pattern_levels(pattern), n, ());
        }
        let matching = |address: &str| {
            let mut found = Vec::new();
            index.matches(address, &mut |queue, ()| found.push(queue));
            found.sort_unstable();
            found
        };
        assert_eq!(matching("api/error"), [0, 3]);
        assert_eq!(matching("eu/west/db/error"), [1, 2, 3]);
        assert_eq!(matching("eu"), [1, 3, 5]);
        assert_eq!(matching(""), [3, 4]);
        assert_eq!(matching("x"), [3, 5, 6, 7]);
        assert_eq!(matching("a/x"), [3, 6, 7]);
        assert_eq!(matching("x/a"), [3, 7]);
        assert_eq!(matching("+/error"), [0, 3, 8]);
        assert!(matching("$a").is_empty());
        let mut found = Vec::new();
        index.matches_leading_wildcards("$a", &mut |queue, ()| found.push(queue));
        found.sort_unstable();
        assert_eq!(found, [3, 5]);
    }

    #[test]
    fn removing_every_binding_frees_every_node() {
        let mut index = TopicIndex::new(1);
        let patterns = ["a/b", "a/+", "a/#", "#", "a/b/c/d", "+/+/x", "a/#/b", "#/#", "#/a/#/b"];
        for (n, pattern) in (0..).zip(&patterns) {
            assert!(index.insert(mqtt_levels(pattern), n, n));
            assert!(!index.insert(mqtt_levels(pattern), n, n));
        }
        for (n, pattern) in (0..).zip(&patterns) {
            assert!(index.remove(mqtt_levels(pattern), n));
            assert!(!index.remove(mqtt_levels(pattern), n));
        }
        assert_eq!((index.nodes(), index.after_many), (1, 0));
    }
}
