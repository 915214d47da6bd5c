//! What a filter matches, and how the sets of topics of two filters lie to each other.

use super::{FilterLevel, TopicFilter, TopicName};

/// Whether a message published to `name` is wanted by `filter`. Section 4.7.
#[must_use]
pub fn matches(filter: TopicFilter<'_>, name: TopicName<'_>) -> bool {
    if name.is_reserved() && begins_with_wildcard(filter) {
        return false;
    }
    // Bytes, not text: a separator is one byte, and equal bytes are equal text.
    let mut levels = name.as_str().as_bytes().split(|&byte| byte == b'/');
    for wanted in filter.as_str().as_bytes().split(|&byte| byte == b'/') {
        match (wanted, levels.next()) {
            (b"#", _) => return true,
            (b"+", Some(_)) => {}
            (text, Some(level)) if text == level => {}
            (_, _) => return false,
        }
    }
    levels.next().is_none()
}

/// Whether some topic is matched by both filters.
#[must_use]
pub fn filters_overlap(a: TopicFilter<'_>, b: TopicFilter<'_>) -> bool {
    if begins_with_wildcard(a) && is_reserved(b) || begins_with_wildcard(b) && is_reserved(a) {
        return false;
    }
    let (mut a_levels, mut b_levels) = (spelled_out(a).levels(), spelled_out(b).levels());
    loop {
        match (a_levels.next(), b_levels.next()) {
            // `#` takes whatever the other side needs, its parent included.
            (Some(FilterLevel::MultiLevel), _) | (_, Some(FilterLevel::MultiLevel)) | (None, None) => {
                return true;
            }
            (Some(_), None) | (None, Some(_)) => return false,
            (Some(FilterLevel::Literal(a_text)), Some(FilterLevel::Literal(b_text))) => {
                if a_text != b_text {
                    return false;
                }
            }
            (Some(FilterLevel::SingleLevel), Some(_)) | (Some(_), Some(FilterLevel::SingleLevel)) => {}
        }
    }
}

/// Whether `a` matches every topic that `b` matches.
#[must_use]
pub fn covers(a: TopicFilter<'_>, b: TopicFilter<'_>) -> bool {
    if begins_with_wildcard(a) && is_reserved(b) {
        return false;
    }
    let (mut a_levels, mut b_levels) = (a.levels(), spelled_out(b).levels());
    loop {
        match (a_levels.next(), b_levels.next()) {
            (Some(FilterLevel::MultiLevel), _) | (None, None) => return true,
            (_, Some(FilterLevel::MultiLevel)) | (Some(_), None) | (None, Some(_)) => return false,
            (Some(FilterLevel::SingleLevel), Some(_)) => {}
            (Some(FilterLevel::Literal(a_text)), Some(FilterLevel::Literal(b_text))) => {
                if a_text != b_text {
                    return false;
                }
            }
            (Some(FilterLevel::Literal(_)), Some(FilterLevel::SingleLevel)) => return false,
        }
    }
}

/// The same filter with `#` standing for levels that may all be absent. No topic is empty: at the top `#` needs a
/// level, and below an empty first level it needs a second.
fn spelled_out(filter: TopicFilter<'_>) -> TopicFilter<'_> {
    match filter.as_str() {
        "#" => TopicFilter("+/#"),
        "/#" => TopicFilter("/+/#"),
        _ => filter,
    }
}

fn begins_with_wildcard(filter: TopicFilter<'_>) -> bool {
    filter.as_str().starts_with(['+', '#'])
}

fn is_reserved(filter: TopicFilter<'_>) -> bool {
    filter.as_str().starts_with('$')
}
