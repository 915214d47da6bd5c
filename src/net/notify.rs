//! What systemd is told about the service: ready, reloading, stopping, a line of status, and that the watchdog need not
//! bite. Without systemd nobody is told.

use std::cell::RefCell;
use std::time::Duration;

use sd_notify::NotifyState;

/// A start that reads damaged files may take so long.
const START_TIMEOUT: Duration = Duration::from_secs(600);

thread_local! {
    /// The line that was told last: only the core's thread tells.
    static STATUS: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The start began: it may take its time.
pub(super) fn starting() {
    let micros = u32::try_from(START_TIMEOUT.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::ExtendTimeoutUsec(micros), NotifyState::Status("reading what is on flash")]);
}

/// Listeners are open.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is being read again; [`ready`] says that it is done, whether it was taken or not. systemd wants
/// both, with the monotonic time, where the unit says `Type=notify-reload`.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The stop began.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// The line that `systemctl status` shows; nobody is told the same twice.
pub(super) fn status(line: &str) {
    STATUS.with_borrow_mut(|told| {
        if told != line {
            line.clone_into(told);
            tell(&[NotifyState::Status(line)]);
        }
    });
}

/// The watchdog may wait again.
pub(super) fn feed() {
    tell(&[NotifyState::Watchdog]);
}

/// How often systemd wants to be fed, if it does.
pub(super) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}
