//! Access rules: Mosquitto's ACL file and its decisions.
//!
//! ```text
//! # rules above the first user are for clients without a user name
//! topic [read|write|readwrite|deny] FILTER
//! user NAME
//! topic ...              # for that user
//! pattern [...] FILTER   # for everybody; %u is the user name, %c the client identifier
//! queue ...              # for that user, in AMQP: see `resource`
//! exchange ...
//! ```
//!
//! As in Mosquitto 2 a client's own rules come first: a `deny` that matches refuses, else a rule that gives the
//! access allows, else the patterns decide in the same way, else it is refused. So a `pattern deny` does not take
//! what a `topic` rule of the user gives. No file allows everything; an empty one nothing.
//!
//! Stricter than Mosquitto: SUBSCRIBE is checked, too; a client identifier or user name with `/` in it stands for
//! no level; `$` at the start of a topic must be written in the rule.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;

use super::resource::{Resource, ResourceRules, Right};
use super::rule::{Access, Level, Met, Part, Tree, covers, for_client, overlap, parse_filter};
use super::{LineError, LineProblem, lines};

/// Who asks. The user name is one whose password was checked, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    pub username: Option<&'a str>,
    pub client_identifier: &'a str,
}

/// The rules of an ACL file, or that there is none.
#[derive(Clone, Debug)]
pub struct Acl {
    /// `None` allows everything.
    rules: Option<Rules>,
}

#[derive(Clone, Debug, Default)]
struct Rules {
    anonymous: RuleSet,
    users: BTreeMap<String, RuleSet>,
    patterns: RuleSet,
    /// A `pattern deny` names the client identifier, or the user name.
    denies_client_identifier: bool,
    denies_username: bool,
}

/// Rules that are asked together.
#[derive(Clone, Debug, Default)]
struct RuleSet {
    /// For topics.
    tree: Tree,
    /// For filters: SUBSCRIBE is rare.
    list: Vec<Line>,
    resources: ResourceRules,
}

/// A rule about topics as it stands in the file.
#[derive(Clone, Debug)]
struct Line {
    number: usize,
    filter: Vec<Level>,
    access: Access,
    /// By a subscription.
    met: Met,
}

/// For whom a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Whose<'a> {
    /// Clients without a user name.
    Nameless,
    User(&'a str),
    /// A pattern.
    Everybody,
}

/// A line of the file that gives or takes something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AclLine<'a> {
    /// Counted from 1.
    pub number: usize,
    pub whose: Whose<'a>,
    /// Something was asked since the file was read that this line is about.
    pub met: bool,
}

/// What a set of rules says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Allow,
    Refuse,
    Silent,
}

impl Acl {
    /// No ACL file: everybody may everything.
    #[must_use]
    pub const fn allow_all() -> Self {
        Self { rules: None }
    }

    /// The rules of an ACL file.
    ///
    /// # Errors
    /// Every line that is wrong; then there are no rules at all.
    pub fn parse(file: &[u8]) -> Result<Self, Vec<LineError>> {
        let mut rules = Rules::default();
        let mut user: Option<String> = None;
        let mut errors = Vec::new();
        for (number, line) in lines(file).map_err(|error| vec![error])? {
            if let Err((column, problem)) = parse_line((number, line), &mut user, &mut rules) {
                errors.push(LineError { line: number, column, problem });
            }
        }
        if errors.is_empty() { Ok(Self { rules: Some(rules) }) } else { Err(errors) }
    }

    /// The lines that give or take something, in their order.
    #[must_use]
    pub fn lines(&self) -> Vec<AclLine<'_>> {
        let Some(rules) = &self.rules else { return Vec::new() };
        let of_users = rules.users.iter().map(|(name, set)| (Whose::User(name), set));
        let others = [(Whose::Nameless, &rules.anonymous), (Whose::Everybody, &rules.patterns)];
        let mut lines: Vec<AclLine<'_>> =
            of_users.chain(others).flat_map(|(whose, set)| set.lines(whose)).collect();
        lines.sort_unstable();
        lines
    }

    /// Whether `client` may publish to `topic`.
    #[must_use]
    pub fn may_publish(&self, client: Identity<'_>, topic: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.may(client, topic, Access::WRITE))
    }

    /// Whether the rules give `client` every topic to publish to but those that begin with `$`.
    #[must_use]
    pub fn may_publish_everything(&self, client: Identity<'_>) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.may_publish_everything(client))
    }

    /// Whether `client` may be given a message of `topic`: asked at each delivery, since rules may have changed
    /// since it subscribed (CVE-2021-34434, CVE-2018-12546).
    #[must_use]
    pub fn may_read(&self, client: Identity<'_>, topic: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.may(client, topic, Access::READ))
    }

    /// Whether `client` may do this with the queue or exchange `name`.
    #[must_use]
    pub fn may_use(&self, client: Identity<'_>, resource: Resource, right: Right, name: &str) -> bool {
        let Some(rules) = &self.rules else { return true };
        rules.of_user(client).is_some_and(|own| own.resources.allow(resource, right, name))
    }

    /// Whether a subscription of `client` to `filter` could ever be given a message. Not a filter: false.
    #[must_use]
    pub fn may_subscribe(&self, client: Identity<'_>, filter: &str) -> bool {
        let Some(rules) = &self.rules else { return true };
        parse_filter(filter, false).is_ok_and(|filter| rules.may_subscribe(client, &filter))
    }
}

impl Rules {
    fn may(&self, client: Identity<'_>, topic: &str, access: Access) -> bool {
        if let Some(own) = self.of_user(client) {
            match own.verdict(client, topic, access) {
                Verdict::Allow => return true,
                Verdict::Refuse => return false,
                Verdict::Silent => {}
            }
        }
        self.patterns_apply(client) && self.patterns.verdict(client, topic, access) == Verdict::Allow
    }

    fn may_subscribe(&self, client: Identity<'_>, filter: &[Level]) -> bool {
        if let Some(own) = self.of_user(client) {
            match own.verdict_on_filter(client, filter) {
                Verdict::Allow => return true,
                Verdict::Refuse => return false,
                Verdict::Silent => {}
            }
        }
        self.patterns_apply(client) && self.patterns.verdict_on_filter(client, filter) == Verdict::Allow
    }

    fn may_publish_everything(&self, client: Identity<'_>) -> bool {
        let own = self.of_user(client);
        if own.is_some_and(RuleSet::denies) {
            return false;
        }
        own.is_some_and(|own| own.gives_everything(client, Access::WRITE))
            || self.patterns_apply(client)
                && !self.patterns.denies()
                && self.patterns.gives_everything(client, Access::WRITE)
    }

    fn of_user(&self, client: Identity<'_>) -> Option<&RuleSet> {
        match client.username {
            Some(username) => self.users.get(username),
            None => Some(&self.anonymous),
        }
    }

    /// Whether the patterns speak for a client of this name. With `+` or `#` in it they never do, as in Mosquitto.
    /// With `/`, or `$` in front, a pattern that uses the name may match nothing; were that a `deny`, others would
    /// give too much.
    fn patterns_apply(&self, client: Identity<'_>) -> bool {
        let username = client.username.unwrap_or("");
        let names =
            [(client.client_identifier, self.denies_client_identifier), (username, self.denies_username)];
        !names.iter().any(|(name, is_denied)| {
            name.contains(['+', '#']) || *is_denied && (name.contains('/') || name.starts_with('$'))
        })
    }

    fn add_pattern(&mut self, number: usize, filter: Vec<Level>, access: Access) {
        if access == Access::DENY {
            let uses = |wanted: &Part| {
                filter.iter().any(|level| matches!(level, Level::Client(parts) if parts.contains(wanted)))
            };
            self.denies_client_identifier |= uses(&Part::ClientIdentifier);
            self.denies_username |= uses(&Part::Username);
        }
        self.patterns.add(number, filter, access);
    }
}

impl RuleSet {
    fn add(&mut self, number: usize, filter: Vec<Level>, access: Access) {
        self.tree.insert(&filter, access);
        self.list.push(Line { number, filter, access, met: Met::default() });
    }

    fn lines<'a>(&'a self, whose: Whose<'a>) -> impl Iterator<Item = AclLine<'a>> {
        let topics = self.list.iter().map(move |line| {
            let met = line.met.is_noted() || self.tree.was_met(&line.filter);
            AclLine { number: line.number, whose, met }
        });
        let resources = self.resources.lines().map(move |(number, met)| AclLine { number, whose, met });
        topics.chain(resources)
    }

    fn verdict(&self, client: Identity<'_>, topic: &str, access: Access) -> Verdict {
        let given = self.tree.access(topic, client);
        if given.includes(Access::DENY) {
            Verdict::Refuse
        } else if given.includes(access) {
            Verdict::Allow
        } else {
            Verdict::Silent
        }
    }

    fn denies(&self) -> bool {
        self.list.iter().any(|line| line.access.includes(Access::DENY))
    }

    /// Whether one rule gives this access to all topics.
    fn gives_everything(&self, client: Identity<'_>, access: Access) -> bool {
        let gives = |line: &&Line| {
            line.access.includes(access)
                && for_client(&line.filter, client).is_some_and(|filter| covers(&filter, &[Level::Rest]))
        };
        let given = self.list.iter().find(gives);
        if let Some(line) = given {
            line.met.note();
        }
        given.is_some()
    }

    /// Refused when a `deny` covers the whole filter. Allowed when a rule that gives `read` overlaps it and no one
    /// `deny` covers that rule.
    fn verdict_on_filter(&self, client: Identity<'_>, filter: &[Level]) -> Verdict {
        let resolved = |wanted: Access| {
            let rules = self.list.iter().filter(move |line| line.access.includes(wanted));
            rules.filter_map(move |line| Some((&line.met, for_client(&line.filter, client)?)))
        };
        let denied: Vec<(&Met, Vec<Level>)> = resolved(Access::DENY).collect();
        if let Some((met, _)) = denied.iter().find(|(_, deny)| covers(deny, filter)) {
            met.note();
            return Verdict::Refuse;
        }
        let mut is_given = false;
        for (met, rule) in resolved(Access::READ).filter(|(_, rule)| overlap(rule, filter)) {
            met.note();
            is_given |= !denied.iter().any(|(_, deny)| covers(deny, &rule));
        }
        if is_given { Verdict::Allow } else { Verdict::Silent }
    }
}

/// Reads one line into `rules`. An error comes with its column.
fn parse_line(
    (number, line): (usize, &str),
    user: &mut Option<String>,
    rules: &mut Rules,
) -> Result<(), (usize, LineProblem)> {
    if line.starts_with('#') {
        return Ok(());
    }
    let line_end = line.trim_end();
    let Some((word, rest)) = take_word(line_end) else { return Ok(()) };
    let column = |part: &str| column_of(line_end, part);
    match word {
        "user" => {
            if rest.is_empty() {
                return Err((column(rest), LineProblem::Missing("the user name")));
            }
            if rest.contains(char::is_control) {
                return Err((column(rest), LineProblem::BadUserName));
            }
            *user = Some(rest.to_owned());
            Ok(())
        }
        "topic" | "pattern" => {
            let (access, text) = parse_access(rest).map_err(|(part, problem)| (column(part), problem))?;
            let filter = parse_filter(text, word == "pattern").map_err(|(at, reason)| {
                (column(text).saturating_add(at).saturating_sub(1), LineProblem::BadFilter(reason))
            })?;
            match (word, user) {
                ("pattern", _) => rules.add_pattern(number, filter, access),
                (_, None) => rules.anonymous.add(number, filter, access),
                (_, Some(user)) => rules.users.entry(user.clone()).or_default().add(number, filter, access),
            }
            Ok(())
        }
        "queue" | "exchange" => {
            let resource = if word == "queue" { Resource::Queue } else { Resource::Exchange };
            let set = match user {
                None => &mut rules.anonymous,
                Some(user) => rules.users.entry(user.clone()).or_default(),
            };
            set.resources.add(number, resource, rest).map_err(|(part, problem)| (column(part), problem))
        }
        _ => Err((column(word), LineProblem::UnknownWord(word.to_owned()))),
    }
}

/// The access word, by default `readwrite`, and the filter. Only behind an access word may a filter hold spaces.
fn parse_access(rest: &str) -> Result<(Access, &str), (&str, LineProblem)> {
    let Some((first, filter)) = take_word(rest) else {
        return Err((rest, LineProblem::Missing("the topic filter")));
    };
    let access = match first {
        "read" => Access::READ,
        "write" => Access::WRITE,
        "readwrite" => Access::READ_WRITE,
        "deny" => Access::DENY,
        _ if filter.is_empty() => return Ok((Access::READ_WRITE, first)),
        _ => return Err((first, LineProblem::UnknownAccess(first.to_owned()))),
    };
    if filter.is_empty() {
        return Err((filter, LineProblem::Missing("the topic filter")));
    }
    Ok((access, filter))
}

/// The first word and what follows the blanks behind it; `None` when there is only blank.
pub(super) fn take_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches(BLANKS);
    if text.is_empty() {
        return None;
    }
    match text.split_once(BLANKS) {
        Some((word, rest)) => Some((word, rest.trim_start_matches(BLANKS))),
        None => Some((text, text.get(text.len()..).unwrap_or_default())),
    }
}

pub(super) const BLANKS: [char; 2] = [' ', '\t'];

/// Where `part`, the end or the middle of `line`, starts.
fn column_of(line: &str, part: &str) -> usize {
    // Both are pieces of one text, so the distance of their addresses is the distance in it.
    let offset = (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
    line.get(..offset).map_or(1, |before| before.chars().count().saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(text: &str) -> Acl {
        Acl::parse(text.as_bytes()).unwrap()
    }

    fn client<'a>(username: Option<&'a str>, client_identifier: &'a str) -> Identity<'a> {
        Identity { username, client_identifier }
    }

    const ADA: Identity<'_> = Identity { username: Some("ada"), client_identifier: "c1" };
    const ANYONE: Identity<'_> = Identity { username: None, client_identifier: "c2" };

    #[test]
    fn no_file_allows_everything_and_an_empty_one_nothing() {
        let none = Acl::allow_all();
        assert!(
            none.may_publish(ADA, "a") && none.may_read(ANYONE, "$SYS/x") && none.may_subscribe(ADA, "#")
        );
        for text in ["", "# nothing\n\n", "user ada\n"] {
            let acl = acl(text);
            assert!(!acl.may_publish(ADA, "a") && !acl.may_read(ANYONE, "a") && !acl.may_subscribe(ADA, "a"));
        }
    }

    #[test]
    fn rules_belong_to_the_user_above_them() {
        let acl = acl(
            "topic read news/#\nuser ada\ntopic write in/+\ntopic out\nuser bob x\ntopic #\nuser ada\ntopic deny in/9\n",
        );
        assert!(acl.may_read(ANYONE, "news") && !acl.may_publish(ANYONE, "news/a"));
        assert!(!acl.may_read(ADA, "news"));
        assert!(acl.may_publish(ADA, "in/1") && !acl.may_read(ADA, "in/1"));
        assert!(!acl.may_publish(ADA, "in/9"));
        assert!(acl.may_publish(ADA, "out") && acl.may_read(ADA, "out"));
        let bob = client(Some("bob x"), "c");
        assert!(acl.may_publish(bob, "a/b") && !acl.may_publish(bob, "$SYS/a"));
    }

    #[test]
    fn everything_may_be_published_where_one_rule_gives_it_and_none_takes_of_it() {
        for (text, expected) in [
            ("user ada\ntopic #\n", true),
            ("user ada\ntopic write +/#\n", true),
            ("user ada\ntopic read #\ntopic write a/#\n", false),
            ("user ada\ntopic #\ntopic deny secret/#\n", false),
            ("user ada\ntopic read a\npattern write #\n", true),
            ("user ada\ntopic deny a\npattern write #\n", false),
            ("pattern write #\npattern deny a/%c\n", false),
            ("user ada\ntopic #\npattern deny a/%c\n", true),
            ("topic #\nuser bob\ntopic #\n", false),
            ("pattern write %u/#\n", false),
        ] {
            let acl = acl(text);
            assert_eq!(acl.may_publish_everything(ADA), expected, "{text}");
            let everything = ["a", "a/c1", "secret/b", "x/y", ""].map(|topic| acl.may_publish(ADA, topic));
            assert!(!expected || everything.iter().all(|may| *may), "{text}");
        }
        assert!(Acl::allow_all().may_publish_everything(ANYONE));
        assert!(!acl("pattern write #\n").may_publish_everything(client(Some("+"), "c")));
    }

    #[test]
    fn own_rules_decide_before_patterns() {
        let acl =
            acl("user ada\ntopic a/x\ntopic deny b/x\npattern deny a/#\npattern b/#\npattern read %u/%c\n");
        assert!(acl.may_read(ADA, "a/x"));
        assert!(!acl.may_read(ADA, "a/y"));
        assert!(!acl.may_read(ADA, "b/x"));
        assert!(acl.may_read(ADA, "b/y"));
        assert!(acl.may_read(ADA, "ada/c1") && !acl.may_publish(ADA, "ada/c1"));
        assert!(!acl.may_read(ANYONE, "ada/c2"));
    }

    /// CVE-2017-7650 and its relatives: a name never widens a rule.
    #[test]
    fn a_name_with_a_wildcard_or_a_slash_gets_nothing_from_patterns() {
        let acl = acl("pattern %u/%c/#\npattern read plain/#\n");
        assert!(acl.may_read(client(Some("u"), "c"), "u/c/x"));
        for (username, client_identifier) in
            [("+", "c"), ("u", "+"), ("#", "c"), ("u", "#"), ("u", "c+"), ("a#b", "c"), ("u", "x/#")]
        {
            let client = client(Some(username), client_identifier);
            for topic in ["u/c/x", "+/c/x", "u/+/x", "plain/x"] {
                assert!(!acl.may_read(client, topic), "{client:?} {topic}");
                assert!(!acl.may_subscribe(client, topic), "{client:?} {topic}");
            }
            assert!(!acl.may_subscribe(client, "#"), "{client:?}");
        }
        let slashed = client(Some("u/c"), "c");
        assert!(!acl.may_read(slashed, "u/c/c/x") && !acl.may_subscribe(slashed, "u/c/c/x"));
        assert!(acl.may_read(slashed, "plain/x"));
    }

    #[test]
    fn a_pattern_deny_that_cannot_be_applied_refuses() {
        let acl = acl("pattern deny secret/%c/#\npattern read #\n");
        assert!(acl.may_read(client(None, "a"), "secret/b/x"));
        assert!(!acl.may_read(client(None, "a"), "secret/a/x"));
        assert!(!acl.may_read(client(None, "a/b"), "secret/a/b/x"));
    }

    #[test]
    fn a_subscription_needs_something_that_it_could_be_given() {
        let acl = acl(
            "user ada\ntopic read a/+/c\ntopic write w/#\ntopic deny a/b/#\ntopic read p/q\ntopic deny p/+\n\
                       pattern read mine/%c/#\npattern deny mine/c1/secret/#\n",
        );
        for (filter, is_allowed) in [
            ("a/x/c", true),
            ("a/#", true),
            ("#", true),
            ("+/+/+", true),
            ("a/b/c", false),
            ("a/b/#", false),
            ("w/x", false),
            ("p/q", false),
            ("p/#", false),
            ("mine/c1/x", true),
            ("mine/+/x", true),
            ("mine/c2/x", false),
            ("mine/c1/secret/+", false),
            ("$SYS/#", false),
            ("a/#/c", false),
            ("", false),
        ] {
            assert_eq!(acl.may_subscribe(ADA, filter), is_allowed, "{filter}");
        }
    }

    /// What `may_subscribe` refuses, no delivery would have passed: it is a service to the client, not the guard.
    #[test]
    fn a_refused_subscription_would_have_been_given_nothing() {
        let filters = ["#", "a/#", "a/+", "+/b", "a/b", "a", "+", "+/+/c", "a/c1", "$s/#"];
        let topics = ["a", "b", "a/b", "a/c", "c/b", "a/b/c", "c/c/c", "a/c1", "$s/a", "a/b/c/d"];
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for _ in 0..500 {
            let mut text = String::new();
            for _ in 0..random(6) {
                let rule = ["topic", "user ada\ntopic", "pattern"][random(3)];
                let access = ["read", "write", "deny", "readwrite"][random(4)];
                let filter = ["#", "a/#", "a/+", "+/b", "a/b", "a/%c", "%u/#", "$s/a", "+/+/c"][random(9)];
                text.push_str(&format!("{rule} {access} {filter}\n"));
            }
            let acl = acl(&text);
            for client in [ADA, ANYONE, client(Some("a"), "b")] {
                for filter in filters {
                    let subscription = parse_filter(filter, false).unwrap();
                    let mut tree = Tree::default();
                    tree.insert(&subscription, Access::READ);
                    let is_of = |topic: &str| tree.access(topic, client).includes(Access::READ);
                    let given =
                        topics.iter().filter(|topic| is_of(topic) && acl.may_read(client, topic)).count();
                    assert!(given == 0 || acl.may_subscribe(client, filter), "{text}{client:?} {filter}");
                }
            }
        }
    }

    #[test]
    fn a_line_that_was_met_is_known() {
        let acl =
            acl("topic read news/#\n# comment\nuser ada\ntopic write in/+\ntopic in/9\ntopic read out/#\n\
             queue read tasks*\nexchange write x\npattern read mine/%c/+\npattern deny secret/#\n");
        let met = |acl: &Acl| -> Vec<usize> {
            acl.lines().into_iter().filter(|line| line.met).map(|line| line.number).collect()
        };
        let numbers: Vec<usize> = acl.lines().iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(acl.lines()[1].whose, Whose::User("ada"));
        assert_eq!(met(&acl), Vec::<usize>::new());
        assert!(acl.may_publish(ADA, "in/1") && !acl.may_publish(ADA, "else"));
        assert_eq!(met(&acl), [4]);
        assert!(
            acl.may_subscribe(ADA, "out/a/b") && acl.may_use(ADA, Resource::Queue, Right::Read, "tasks.1")
        );
        assert!(acl.may_read(ADA, "mine/c1/x") && acl.may_read(ANYONE, "news"));
        assert_eq!(met(&acl), [1, 4, 6, 7, 9]);
        assert!(acl.may_publish(ADA, "in/9"));
        // Of a clone it is known, too: the file is the same.
        assert_eq!(met(&acl), [1, 4, 5, 6, 7, 9]);
        assert!(!acl.may_read(ADA, "secret/a"));
        assert_eq!(met(&acl), [1, 4, 5, 6, 7, 9, 10]);
    }

    #[test]
    fn every_wrong_line_is_named_with_its_column() {
        let text = "topic read a\n  usr ada\nuser\nuser   \ntopic\ntopic  deny \ntopic reed a/b\ntopic a/#/b\n\
                    pattern read x/%u+\n # comment\nqueue fly x\ntopic\tread\tq\r\nuser a\u{7}b\n";
        let errors = Acl::parse(text.as_bytes()).unwrap_err();
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "2:3: unknown word \"usr\": a line starts with user, topic, pattern, queue, exchange or #",
                "3:5: the user name is missing",
                "4:5: the user name is missing",
                "5:6: the topic filter is missing",
                "6:12: the topic filter is missing",
                "7:7: unknown access \"reed\": it is read, write, readwrite or deny",
                "8:9: not a topic filter: # stands for the rest and must be the last level",
                "9:16: not a topic filter: the wildcard in \"%u+\" must be alone between slashes",
                "10:2: unknown word \"#\": a line starts with user, topic, pattern, queue, exchange or #",
                "11:7: unknown right \"fly\": it is configure, write, read or deny, or several joined by |",
                "13:6: the user name is empty or holds a control character",
            ]
        );
    }
}
