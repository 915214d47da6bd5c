//! Class tx: transactions of publishes and acknowledgements. Section 1.9.

use super::*;

methods! {
    /// A method of class tx.
    class 90, Method;

    /// Puts the channel into transaction mode.
    10 Select {}

    /// It is in transaction mode.
    11 SelectOk {}

    /// Makes what was published and acknowledged since happen.
    20 Commit {}

    /// It has happened.
    21 CommitOk {}

    /// Forgets what was published and acknowledged since.
    30 Rollback {}

    /// It is forgotten.
    31 RollbackOk {}
}
