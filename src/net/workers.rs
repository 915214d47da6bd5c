//! Two worker threads for what takes over a millisecond: password hashes.
//!
//! The queue is bounded: when it is full, a connection waits for its CONNECT deadline like any slow client.

#![expect(clippy::disallowed_types, reason = "two threads share one end of a queue, outside the core")]

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use tokio::sync::mpsc as to_core;

use super::handshake::{give_way, step_aside};
use crate::auth::Challenge;
use crate::ids::ConnectionId;

const WORKERS: usize = 2;
const WAITING_MAX: usize = 1024;

struct Check {
    connection: ConnectionId,
    challenge: Challenge,
    password: Box<[u8]>,
}

/// The outcome of a check.
#[derive(Debug)]
pub struct Checked {
    pub connection: ConnectionId,
    pub genuine: bool,
    pub password: Box<[u8]>,
}

/// The core's handle on the workers.
#[derive(Debug)]
pub struct PasswordWorkers {
    checks: mpsc::SyncSender<Check>,
}

impl PasswordWorkers {
    /// Starts the workers.
    ///
    /// # Errors
    /// When the system makes no thread.
    pub fn start() -> std::io::Result<(Self, to_core::Receiver<Checked>)> {
        let (checks, waiting) = mpsc::sync_channel::<Check>(WAITING_MAX);
        let (outcomes, outgoing) = to_core::channel(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..WORKERS {
            let waiting = Arc::clone(&waiting);
            let outcomes = outcomes.clone();
            thread::Builder::new().name("worker".into()).spawn(move || {
                give_way();
                loop {
                    let next = match waiting.lock() {
                        Ok(waiting) => waiting.recv(),
                        Err(_) => return,
                    };
                    let Ok(Check { connection, challenge, password }) = next else { return };
                    let genuine = challenge.verify(&password);
                    if outcomes.blocking_send(Checked { connection, genuine, password }).is_err() {
                        return;
                    }
                    step_aside();
                }
            })?;
        }
        Ok((Self { checks }, outgoing))
    }

    /// Has a password checked.
    pub fn verify(&self, connection: ConnectionId, challenge: Challenge, password: Box<[u8]>) {
        // Full: the connection's deadline ends it.
        drop(self.checks.try_send(Check { connection, challenge, password }));
    }
}
