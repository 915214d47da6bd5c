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

const ROOT: u32 = 0;

#[derive(Debug)]
struct Node<S> {
    children: Map<Box<str>, u32>,
    one: Option<u32>,
    many: Option<u32>,
    subscribers: Vec<(u32, S)>,
}

/// The trie. `S` is what a binding carries beside its queue, given back with each match.
#[derive(Debug)]
pub struct TopicIndex<S> {
    nodes: Vec<Node<S>>,
    free: Vec<u32>,
    seed: u64,
}

impl<S: Copy> TopicIndex<S> {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut index = Self { nodes: Vec::new(), free: Vec::new(), seed };
        index.add_node();
        index
    }

    /// Binds `queue` under `pattern`, or replaces what the same binding carried. True when it is new.
    pub fn insert<'a>(&mut self, pattern: impl Iterator<Item = Level<'a>>, queue: u32, carried: S) -> bool {
        let mut at = ROOT;
        for level in pattern {
            at = match self.child(at, level) {
                Some(child) => child,
                None => self.add_child(at, level),
            };
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
        self.walk(ROOT, Some(address), reserved, visit);
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
            self.walk_many(many, rest, visit);
        }
        let Some(rest) = rest else {
            for (queue, carried) in &node.subscribers {
                visit(*queue, *carried);
            }
            return;
        };
        let (level, after) = match rest.split_once('/') {
            Some((level, after)) => (level, Some(after)),
            None => (rest, None),
        };
        if let Some(child) = node.children.get(level) {
            self.walk(*child, after, false, visit);
        }
        if !reserved && let Some(one) = node.one {
            self.walk(one, after, false, visit);
        }
    }

    /// A `Many` node takes any number of the levels that are left, then its own children continue.
    fn walk_many(&self, many: u32, rest: Option<&str>, visit: &mut impl FnMut(u32, S)) {
        let node = self.node(many);
        for (queue, carried) in &node.subscribers {
            visit(*queue, *carried);
        }
        if node.children.is_empty() && node.one.is_none() && node.many.is_none() {
            return;
        }
        let mut rest = rest;
        while let Some(suffix) = rest {
            self.walk_after_many(many, suffix, visit);
            rest = suffix.split_once('/').map(|(_, after)| after);
        }
    }

    fn walk_after_many(&self, many: u32, suffix: &str, visit: &mut impl FnMut(u32, S)) {
        let node = self.node(many);
        let (level, after) = match suffix.split_once('/') {
            Some((level, after)) => (level, Some(after)),
            None => (suffix, None),
        };
        if let Some(child) = node.children.get(level) {
            self.walk(*child, after, false, visit);
        }
        if let Some(one) = node.one {
            self.walk(one, after, false, visit);
        }
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
        child
    }

    fn add_node(&mut self) -> u32 {
        let node =
            Node { children: collections::map(self.seed), one: None, many: None, subscribers: Vec::new() };
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
    fn removing_every_binding_frees_every_node() {
        let mut index = TopicIndex::new(1);
        let patterns = ["a/b", "a/+", "a/#", "#", "a/b/c/d", "+/+/x"];
        for (n, pattern) in (0..).zip(&patterns) {
            assert!(index.insert(mqtt_levels(pattern), n, n));
            assert!(!index.insert(mqtt_levels(pattern), n, n));
        }
        for (n, pattern) in (0..).zip(&patterns) {
            assert!(index.remove(mqtt_levels(pattern), n));
            assert!(!index.remove(mqtt_levels(pattern), n));
        }
        assert_eq!(index.nodes(), 1);
    }
}
