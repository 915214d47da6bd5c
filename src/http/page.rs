//! The page for people: one file without a build step, and what a browser may let it do.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

/// The page.
pub const PAGE: &str = include_str!("../../page/index.html");

/// Its media type.
pub const MEDIA_TYPE: &str = "text/html; charset=utf-8";

/// The value of Content-Security-Policy: it may run its own script, talk to the gateway that it came from, and nothing
/// else. What clients send could not run even where the page took it for markup.
#[must_use]
pub fn policy() -> String {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        digest("<script>", "</script>"),
        digest("<style>", "</style>"),
    )
}

/// The digest of what stands between two tags of the page, as the policy names it.
fn digest(open: &str, close: &str) -> String {
    let inside = PAGE.split_once(open).and_then(|(_, rest)| rest.split_once(close));
    let text = inside.map_or("", |(inside, _)| inside);
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_the_pages_own_script_and_style_alone() {
        assert_eq!((PAGE.matches("<script").count(), PAGE.matches("<style").count()), (1, 1));
        let policy = policy();
        assert_eq!(policy.matches("sha256-").count(), 2, "{policy}");
        assert!(digest("<script>", "</script>") != digest("<style>", "</style>"));
        assert!(!PAGE.contains(" style=\"") && !PAGE.contains(" onclick=\""));
    }
}
