//! What `reload` shows of what it did.

use serde_json::Value;

/// The answer of a reload as text.
#[must_use]
pub fn render_reload(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let words = |name: &str| {
        let words = value.get(name).and_then(Value::as_array).into_iter().flatten();
        words.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let (changed, restart) = (words("changed"), words("needs_restart"));
    let mut text = match changed.as_str() {
        "" => "reloaded: nothing was different\n".to_owned(),
        changed => format!("reloaded: {changed}\n"),
    };
    if !restart.is_empty() {
        text.push_str(&format!("counts from the next start on: {restart}\n"));
    }
    match value.get("connections_ended").and_then(Value::as_u64) {
        None | Some(0) => {}
        Some(1) => text.push_str("1 connection ended, which may no longer be there\n"),
        Some(count) => text.push_str(&format!("{count} connections ended, which may no longer be there\n")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told() {
        let none = br#"{"changed": [], "needs_restart": [], "connections_ended": 0}"#;
        assert_eq!(render_reload(none), "reloaded: nothing was different\n");
        let some = br#"{"changed": ["auth", "log"], "needs_restart": ["log"], "connections_ended": 2}"#;
        assert_eq!(
            render_reload(some),
            "reloaded: auth, log\ncounts from the next start on: log\n2 connections ended, which may no longer be there\n"
        );
    }
}
