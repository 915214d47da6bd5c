//! The store's own thread: takes a batch, answers when it is on flash, recovers in place when the flash fails.
//!
//! One hand-off and one wake-up a batch. A batch that failed is submitted again until it is there, with growing
//! pauses; the core goes on meanwhile and holds the acknowledgements.

#![expect(clippy::disallowed_methods, reason = "the store's thread is made here, and waits here")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc as to_core;

use crate::store::{Batch, Persisted, Salvaged, Store, StoreError};

/// Pause before the first attempt to recover; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Idle time after which the journal is put in order.
const IDLE: Duration = Duration::from_millis(500);

enum Request {
    Append(Batch),
    WriteEssentials(Vec<u8>),
    Close(Vec<u8>),
}

/// What the store's thread tells the core.
#[derive(Debug)]
pub enum Answer {
    Persisted(Persisted),
    /// The batch is not on flash yet; the text says why.
    Failing(String),
    /// The flash works again, and holds what it held.
    Recovered,
    /// The flash works again, but a file had to be set aside: the batch under way is void, and the core writes anew
    /// what it knows.
    Damaged(Salvaged),
    /// Files are closed; the thread has ended.
    Closed(Result<(), String>),
}

/// The core's handle on the store's thread.
#[derive(Debug)]
pub struct StoreThread {
    requests: mpsc::SyncSender<Request>,
}

impl StoreThread {
    /// Moves the store to a thread of its own.
    ///
    /// # Errors
    /// When the system makes no thread.
    pub fn start(store: Store) -> std::io::Result<(Self, to_core::Receiver<Answer>)> {
        // One batch under way, and room for the few rare requests beside it.
        let (requests, incoming) = mpsc::sync_channel(4);
        let (answers, outgoing) = to_core::channel(16);
        thread::Builder::new().name("store".into()).spawn(move || {
            let _guard = AbortOnPanic;
            serve(store, &incoming, &answers);
        })?;
        Ok((Self { requests }, outgoing))
    }

    /// Hands over a batch. The core hands over one at a time.
    pub fn append(&self, batch: Batch) {
        self.send(Request::Append(batch));
    }

    /// Has the essentials file written.
    pub fn write_essentials(&self, bytes: Vec<u8>) {
        self.send(Request::WriteEssentials(bytes));
    }

    /// Has the files closed; the answer is [`Answer::Closed`].
    pub fn close(&self, essentials: Vec<u8>) {
        self.send(Request::Close(essentials));
    }

    fn send(&self, request: Request) {
        // The thread lives until it is closed; if it died, the process is about to end.
        drop(self.requests.send(request));
    }
}

/// Without its store the gateway would hold every acknowledgement for ever: it ends, and is started again.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

fn serve(mut store: Store, requests: &mpsc::Receiver<Request>, answers: &to_core::Sender<Answer>) {
    let mut idle = false;
    loop {
        let request = if idle {
            requests.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(IDLE)
        };
        match request {
            Ok(Request::Append(batch)) => {
                idle = false;
                if let Some(persisted) = append(&mut store, batch, answers) {
                    tell(answers, Answer::Persisted(persisted));
                }
            }
            Ok(Request::WriteEssentials(bytes)) => {
                if let Err(error) = store.write_essentials(&bytes) {
                    tracing::warn!(%error, "essentials file not written");
                }
            }
            Ok(Request::Close(essentials)) => {
                let closed = store.close(Some(&essentials)).map_err(|error| error.to_string());
                tell(answers, Answer::Closed(closed));
                return;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                idle = true;
                if let Err(error) = store.apply_if_idle() {
                    recover(&mut store, &error, answers);
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Appends until the batch is there. `None` when a file was damaged, which makes the batch void.
fn append(store: &mut Store, batch: Batch, answers: &to_core::Sender<Answer>) -> Option<Persisted> {
    loop {
        match store.append(batch.clone()) {
            Ok(persisted) => return Some(persisted),
            Err(error) => {
                if !recover(store, &error, answers) {
                    return None;
                }
            }
        }
    }
}

/// Opens the store again until it opens. False when a file was damaged.
fn recover(store: &mut Store, error: &StoreError, answers: &to_core::Sender<Answer>) -> bool {
    tell(answers, Answer::Failing(error.to_string()));
    let mut pause = PAUSE_MIN;
    loop {
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
        match store.reopen() {
            Ok(Some(_)) => {
                tell(answers, Answer::Recovered);
                return true;
            }
            Ok(None) => match store.salvaged() {
                Ok(salvaged) => {
                    tell(answers, Answer::Damaged(salvaged));
                    return false;
                }
                Err(error) => tell(answers, Answer::Failing(error.to_string())),
            },
            Err(error) => tell(answers, Answer::Failing(error.to_string())),
        }
    }
}

fn tell(answers: &to_core::Sender<Answer>, answer: Answer) {
    // Without a core there is nobody to tell.
    drop(answers.blocking_send(answer));
}
