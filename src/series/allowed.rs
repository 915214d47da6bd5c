//! Which topics whoever asks may read. The rules are others'; a query asks for each origin.

use std::fmt;
use std::sync::Arc;

/// See the module's head.
#[derive(Clone)]
pub struct Allowed(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Allowed {
    /// By a rule that says of a topic whether it may be read.
    pub fn by(rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }

    /// Whether readings of a topic may be shown.
    #[must_use]
    pub fn takes(&self, topic: &str) -> bool {
        (self.0)(topic)
    }
}

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allowed")
    }
}
