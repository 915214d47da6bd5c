//! The rules of names and filters, and the relations between filters, against examples and against each other.

use std::collections::BTreeSet;

use super::*;

fn name(text: &str) -> TopicName<'_> {
    TopicName::parse(text).unwrap()
}

fn filter(text: &str) -> TopicFilter<'_> {
    TopicFilter::parse(text).unwrap()
}

#[test]
fn names_and_filters_are_checked() {
    for (text, as_name, as_filter) in [
        ("", Err(TopicError::Empty), Err(TopicError::Empty)),
        ("a\0", Err(TopicError::NullCharacter), Err(TopicError::NullCharacter)),
        ("/", Ok(()), Ok(())),
        ("$SYS/x", Ok(()), Ok(())),
        ("a b/ü", Ok(()), Ok(())),
        ("#", Err(TopicError::WildcardInName), Ok(())),
        ("+", Err(TopicError::WildcardInName), Ok(())),
        ("+/+/#", Err(TopicError::WildcardInName), Ok(())),
        ("/+", Err(TopicError::WildcardInName), Ok(())),
        ("sport/tennis#", Err(TopicError::WildcardInName), Err(TopicError::MultiLevelMisplaced)),
        ("sport/#/ranking", Err(TopicError::WildcardInName), Err(TopicError::MultiLevelMisplaced)),
        ("#/", Err(TopicError::WildcardInName), Err(TopicError::MultiLevelMisplaced)),
        ("##", Err(TopicError::WildcardInName), Err(TopicError::MultiLevelMisplaced)),
        ("+#", Err(TopicError::WildcardInName), Err(TopicError::MultiLevelMisplaced)),
        ("sport+", Err(TopicError::WildcardInName), Err(TopicError::SingleLevelMisplaced)),
        ("a/+b/c", Err(TopicError::WildcardInName), Err(TopicError::SingleLevelMisplaced)),
        ("++", Err(TopicError::WildcardInName), Err(TopicError::SingleLevelMisplaced)),
    ] {
        assert_eq!(TopicName::parse(text).map(drop), as_name, "{text:?}");
        assert_eq!(TopicFilter::parse(text).map(drop), as_filter, "{text:?}");
    }
}

#[test]
fn length_and_depth_are_bounded() {
    assert!(TopicName::parse(&"x".repeat(TOPIC_BYTES_MAX)).is_ok());
    assert_eq!(TopicName::parse(&"x".repeat(TOPIC_BYTES_MAX + 1)), Err(TopicError::TooLong));
    assert!(TopicFilter::parse(&"/".repeat(TOPIC_LEVELS_MAX - 1)).is_ok());
    assert_eq!(TopicFilter::parse(&"/".repeat(TOPIC_LEVELS_MAX)), Err(TopicError::TooManyLevels));
}

#[test]
fn errors_name_their_rule() {
    assert_eq!(TopicError::Empty.to_string(), "topic is empty [MQTT-4.7.3-1]");
}

#[test]
fn matching_follows_the_examples_of_the_specification() {
    for (wanted, topic, expected) in [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
        ("sport/#", "sport", true),
        ("#", "a/b/c", true),
        ("sport/tennis/+", "sport/tennis/player1", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("#", "$SYS/x", false),
        ("+/monitor/Clients", "$SYS/monitor/Clients", false),
        ("$SYS/#", "$SYS/monitor", true),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", true),
        ("a/+/c", "a/$b/c", true),
        ("ACCOUNTS", "Accounts", false),
        ("/finance", "finance", false),
    ] {
        assert_eq!(matches(filter(wanted), name(topic)), expected, "{wanted} against {topic}");
    }
}

/// All texts of `levels_min` to 3 levels over this alphabet that `parse` accepts.
fn all<'a, T>(alphabet: &[&str], texts: &'a mut Vec<String>, parse: fn(&'a str) -> Option<T>) -> Vec<T> {
    let mut row = vec![String::new()];
    for depth in 0..3 {
        row = row
            .iter()
            .flat_map(|start| {
                alphabet.iter().map(
                    move |level| if depth == 0 { (*level).to_owned() } else { format!("{start}/{level}") },
                )
            })
            .collect();
        texts.extend(row.iter().cloned());
    }
    texts.iter().filter_map(|text| parse(text)).collect()
}

/// What a filter means, written down a second time: as the recursive definition of a set of level lists.
fn matches_by_definition(wanted: &[FilterLevel<'_>], levels: &[&str], first: bool) -> bool {
    match (wanted, levels) {
        ([FilterLevel::MultiLevel], _) => {
            !first || !levels.first().is_some_and(|level| level.starts_with('$'))
        }
        ([], []) => true,
        ([FilterLevel::SingleLevel, rest @ ..], [level, below @ ..]) => {
            !(first && level.starts_with('$')) && matches_by_definition(rest, below, false)
        }
        ([FilterLevel::Literal(text), rest @ ..], [level, below @ ..]) => {
            text == level && matches_by_definition(rest, below, false)
        }
        _ => false,
    }
}

#[test]
fn matching_overlap_and_cover_agree_with_enumeration() {
    // `z` and `$z` stand in no filter: the levels that only a wildcard can match. Topics are one level deeper than
    // filters, so that `#` is told from any row of `+`.
    let (mut filter_texts, mut topic_texts) = (Vec::new(), Vec::new());
    let filters = all(&["", "a", "$s", "+", "#"], &mut filter_texts, |text| TopicFilter::parse(text).ok());
    let mut topics = all(&["", "a", "z", "$s", "$z"], &mut topic_texts, |text| TopicName::parse(text).ok());
    let deeper: Vec<String> =
        topics.iter().flat_map(|topic| ["", "a", "z"].map(|level| format!("{topic}/{level}"))).collect();
    topics.extend(deeper.iter().map(|text| name(text)));

    let sets: Vec<BTreeSet<usize>> = filters
        .iter()
        .map(|wanted| {
            let levels: Vec<_> = wanted.levels().collect();
            let set = (0..topics.len()).filter(|at| matches(*wanted, topics[*at]));
            set.inspect(|at| {
                let topic: Vec<_> = topics[*at].levels().collect();
                assert!(matches_by_definition(&levels, &topic, true), "{wanted} against {}", topics[*at]);
            })
            .collect()
        })
        .collect();
    for (at, topic) in topics.iter().enumerate() {
        let levels: Vec<_> = topic.levels().collect();
        for (wanted, set) in filters.iter().zip(&sets) {
            let wanted_levels: Vec<_> = wanted.levels().collect();
            let expected = matches_by_definition(&wanted_levels, &levels, true);
            assert_eq!(set.contains(&at), expected, "{wanted} against {topic}");
        }
    }
    for (a, a_set) in filters.iter().zip(&sets) {
        assert!(!a_set.is_empty(), "{a} matches something");
        for (b, b_set) in filters.iter().zip(&sets) {
            assert_eq!(filters_overlap(*a, *b), !a_set.is_disjoint(b_set), "{a} overlaps {b}");
            assert_eq!(covers(*a, *b), b_set.is_subset(a_set), "{a} covers {b}");
        }
    }
}

#[test]
fn a_name_is_the_filter_of_itself_alone() {
    let topic = name("$SYS/broker/load");
    assert!(matches(topic.into(), topic));
    assert!(!TopicFilter::from(topic).has_wildcards() && filter("a/+").has_wildcards());
}

#[test]
fn swapping_separators_twice_is_the_identity() {
    assert_eq!(swap_separators("a.b/c//ü."), "a/b.c..ü/");
    for text in ["", "a", "/", ".", "sensors/room.1/temp", "ü.é/😀"] {
        assert_eq!(swap_separators(&swap_separators(text)), text);
    }
}
