//! The simulator's own test: it must find each known mistake within a bounded number of seeds.

#[cfg(feature = "mutations")]
use gatewayd::broker::mutation::{self, Mutation};

use crate::mistakes::Mistake;
use crate::trace::show;
use crate::try_run;

/// Seeds within which a mistake must be found.
const SEEDS_MAX: u64 = 1_000;

/// Runs seeds until one fails.
fn find(what: &str, mistake: Option<Mistake>) {
    for seed in 1..=SEEDS_MAX {
        if let Err(found) = try_run(seed, mistake, false) {
            show(format_args!("{what} was found by seed {seed}: {found}"));
            return;
        }
    }
    panic!("{what} was not found by {SEEDS_MAX} seeds");
}

#[test]
fn acknowledging_before_the_batch_is_written_is_found() {
    find("acknowledging early", Some(Mistake::ReportEarly));
}

#[test]
fn ignoring_that_a_write_failed_is_found() {
    find("ignoring a failed write", Some(Mistake::IgnoreWriteErrors));
}

#[test]
fn reporting_readings_before_they_are_stored_is_found() {
    find("reporting readings early", Some(Mistake::FlushEarly));
}

#[cfg(feature = "mutations")]
macro_rules! mutations {
    ($($name:ident => $mutation:ident)*) => {$(
        #[test]
        fn $name() {
            mutation::make(Some(Mutation::$mutation));
            find(stringify!($mutation), None);
            mutation::make(None);
        }
    )*};
}

#[cfg(feature = "mutations")]
mutations! {
    completing_a_release_before_it_is_kept_is_found => CompleteBeforeKept
    forgetting_an_owed_release_is_found => ForgetOwedRelease
    releasing_before_the_receipt_is_kept_is_found => ReleaseBeforeKept
    delivering_once_before_the_identifier_is_kept_is_found => DeliverBeforeKept
    dropping_the_newest_is_found => DropNewest
    recovering_beyond_the_bounds_is_found => RecoverBeyondBounds
    settling_by_content_is_found => SettleByContent
    a_reply_that_overtakes_is_found => ReplyOvertakes
    granting_before_the_subscription_is_kept_is_found => SubscribeBeforeKept
    forgetting_the_mark_of_an_empty_queue_is_found => ForgetEmptyMarks
    forgetting_what_may_have_been_sent_is_found => ForgetSentMarks
    forgetting_that_a_value_was_replaced_is_found => ForgetReplacedValues
    forgetting_a_chunk_is_found => ForgetChunk
    adopting_a_chunk_unseen_is_found => AdoptUnseen
    requeueing_behind_what_waits_is_found => RequeueBehind
    ignoring_credit_is_found => IgnoreCredit
    confirming_before_the_message_is_kept_is_found => ConfirmBeforeKept
    forgetting_queues_in_the_gate_is_found => ForgetQueuesInGate
    forgetting_that_a_message_came_back_is_found => ForgetReturned
    delivering_to_two_consumers_is_found => DeliverTwice
    keeping_what_has_expired_is_found => KeepExpired
    forgetting_that_messages_were_purged_is_found => ForgetPurge
    telling_of_an_empty_queue_though_rows_wait_is_found => EmptyWithRows
}
