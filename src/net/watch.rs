//! What has to be looked at now and then: whether the clock is to be trusted, the essentials file, systemd's watchdog
//! and the line of status that it shows.
//!
//! The watchdog is fed by a task of the core's thread, so only while its round turns, and only when the store's thread
//! has answered since it was fed last. A store that fails and says so has answered: it recovers in place, and a restart
//! would lose what waits in memory. One that hangs has not.

use std::rc::Rc;
use std::time::Duration;

use super::core::Core;
use super::{daemon, notify};
use crate::gateway::{StoreCondition, fill};

/// The system's trust in the wall clock is asked for this often.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// The essentials file is written at most this often while the daemon runs.
const ESSENTIALS_INTERVAL: Duration = Duration::from_secs(3600);

/// Looks at clock and essentials for ever.
pub(super) async fn keep_watch(core: Rc<Core>) {
    let mut written = tokio::time::Instant::now();
    loop {
        notify::status(&status_line(&core));
        tokio::time::sleep(CLOCK_INTERVAL).await;
        let mut clock = core.clock.get();
        clock.look_for_trust();
        core.clock.set(clock);
        core.kick();
        if written.elapsed() >= ESSENTIALS_INTERVAL {
            written = tokio::time::Instant::now();
            core.store.write_essentials(daemon::essentials(&core));
        }
    }
}

/// Feeds the watchdog, three times in its interval.
pub(super) async fn feed_watchdog(core: Rc<Core>) {
    let Some(interval) = notify::watchdog_interval() else { return };
    loop {
        if core.store_answers.take() {
            notify::feed();
            notify::status(&status_line(&core));
        }
        core.store.ask_whether_it_lives();
        tokio::time::sleep(interval / 3).await;
    }
}

/// One line for `systemctl status`.
fn status_line(core: &Core) -> String {
    let now = core.clock.get().now();
    let gateway = core.gateway.borrow();
    let figures = gateway.figures(now);
    if let StoreCondition::Failing(why) = &figures.store.condition {
        return format!("the flash fails, acknowledgements wait: {why}");
    }
    let [mqtt, amqp, _] = figures.connections;
    let mut line = format!("{} clients, {} messages queued", mqtt + amqp, figures.broker.queued);
    let fullest = gateway.broker().queue_status().max_by(|a, b| fill(a).total_cmp(&fill(b)));
    if let Some(queue) = fullest.filter(|queue| fill(queue) >= 0.01) {
        line.push_str(&format!(
            ", {} {} is {:.0} % full",
            queue.kind.name(),
            queue.name,
            fill(&queue) * 100.0
        ));
    }
    if let Some(budget) = figures.facts.flash_bytes_per_day.filter(|budget| *budget > 0) {
        let percent = u128::from(figures.store.bytes_today(now)) * 100 / u128::from(budget);
        line.push_str(&format!(", flash {percent} % of today's budget"));
    }
    if figures.broker.counters.lost > 0 {
        line.push_str(&format!(", {} lost", figures.broker.counters.lost));
    }
    line
}
