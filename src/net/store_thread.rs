//! The store's own thread: takes a batch, answers when it is on flash, recovers in place when the flash fails.
//!
//! One hand-off and one wake-up a batch. A batch that failed is submitted again until it is there, with growing
//! pauses; the core goes on meanwhile and holds the acknowledgements.
//!
//! The store has one owner at any time. Usually that is its thread. While one publisher sends one message after another
//! and a sync is quick, the thread lends the store to the core, which appends a lone batch itself: two wake-ups cost
//! about 60 us, half of what a quick sync takes. Whatever else is to be done goes back to the thread, with the store.

#![expect(clippy::disallowed_methods, reason = "the store's thread is made here, and waits here")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc as to_core;

use crate::broker::BacklogRequest;
use crate::store::chunk::{BacklogChanged, ChunkRows};
use crate::store::copy::{CopiedBite, CopiedState};
use crate::store::{Batch, Persisted, Salvaged, Store, StoreError};

/// Pause before the first attempt to recover; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Idle time after which the journal is put in order.
const IDLE: Duration = Duration::from_millis(500);

/// The core appends a lone batch itself while that takes no longer than this, because nothing else is done meanwhile.
const QUICK: Duration = Duration::from_micros(500);

/// What there is to do, and the store when the core had it.
struct Request {
    store: Option<Box<Store>>,
    work: Work,
}

enum Work {
    Append {
        batch: Batch,
        /// It is small and nothing else is going on, so the next one is better appended by the core.
        alone: bool,
    },
    Backlog(BacklogRequest),
    Copy(CopyStep),
    WriteEssentials(Vec<u8>),
    Close(Vec<u8>),
    /// Only to have the store back.
    Nothing,
    /// To hear whether the thread still does anything.
    Live,
}

/// A step of a copy of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyStep {
    Begin,
    /// A bite of about so many bytes.
    Next(usize),
    /// The rest of it, and what it was taken of.
    Last,
    /// It is given up.
    End,
}

/// What a step brought.
#[derive(Debug, Default)]
pub struct Copied {
    pub bite: CopiedBite,
    /// After the last step.
    pub state: Option<CopiedState>,
}

/// The store on its way to the core.
#[derive(Debug)]
pub struct Lent {
    store: Box<Store>,
    /// Requests that the thread has received so far.
    received: u64,
    /// What the append before took.
    took: Duration,
}

/// What the store's thread tells the core.
#[derive(Debug)]
pub enum Answer {
    Persisted(Persisted, Option<Lent>),
    /// The thread lives: nobody else was to be told anything.
    Alive,
    /// The batch is not on flash yet; the text says why.
    Failing(String),
    /// The flash works again, and holds what it held.
    Recovered,
    /// The flash works again, but a file had to be set aside: the batch under way is void, and the core writes anew
    /// what it knows.
    Damaged(Salvaged),
    /// The backlog was changed; `None`: not at all.
    BacklogChanged(Option<BacklogChanged>),
    /// Rows of the backlog; `None`: they cannot be read now.
    BacklogRead(Option<ChunkRows>),
    /// A step of a copy is done; else why the copy is over.
    Copied(Result<Copied, String>),
    /// Files are closed; the thread has ended.
    Closed(Result<(), String>),
}

/// The core's handle on the store's thread.
#[derive(Debug)]
pub struct StoreThread {
    requests: mpsc::SyncSender<Request>,
    /// The store, while it is lent.
    lent: RefCell<Option<Box<Store>>>,
    sent: Cell<u64>,
    /// It was asked whether it lives.
    asked: Cell<bool>,
    /// What an append takes: the longest of late, forgotten by an eighth with each one.
    append_time: Cell<Duration>,
}

impl StoreThread {
    /// Moves the store to a thread of its own.
    ///
    /// # Errors
    /// When the system makes no thread.
    pub fn start(store: Store) -> std::io::Result<(Self, to_core::Receiver<Answer>)> {
        // One batch under way, a change and a read of the backlog, and room for the few rare requests beside them.
        let (requests, incoming) = mpsc::sync_channel(8);
        let (answers, outgoing) = to_core::channel(16);
        thread::Builder::new().name("store".into()).spawn(move || {
            let _guard = AbortOnPanic;
            Serving {
                store: Some(Box::new(store)),
                incoming,
                waiting: VecDeque::new(),
                received: 0,
                answers,
            }
            .serve();
        })?;
        let handle = Self {
            requests,
            lent: RefCell::new(None),
            sent: Cell::new(0),
            asked: Cell::new(false),
            append_time: Cell::new(Duration::ZERO),
        };
        Ok((handle, outgoing))
    }

    /// Hands over a batch. The core hands over one at a time. An answer at once when the core has the store and appended
    /// the batch itself, which it does only with a batch that is `alone`.
    pub fn append(&self, batch: Batch, alone: bool) -> Option<Persisted> {
        if alone && let Some(persisted) = self.append_here(&batch) {
            return Some(persisted);
        }
        self.send(Work::Append { batch, alone });
        None
    }

    /// The thread lends the store.
    pub fn take(&self, lent: Lent) {
        self.appended_in(lent.took);
        *self.lent.borrow_mut() = Some(lent.store);
        if lent.received < self.sent.get() {
            // A request crossed it.
            self.send(Work::Nothing);
        }
    }

    /// Asks something of the backlog. The core asks for one change and one read at a time.
    pub fn backlog(&self, request: BacklogRequest) {
        self.send(Work::Backlog(request));
    }

    /// Asks for a step of a copy; the answer is [`Answer::Copied`]. One step at a time.
    pub fn copy(&self, step: CopyStep) {
        self.send(Work::Copy(step));
    }

    /// Asks for [`Answer::Alive`], unless that was asked and not answered yet.
    pub fn ask_whether_it_lives(&self) {
        if !self.asked.replace(true) {
            // Full: then something else is to be answered.
            let request = Request { store: None, work: Work::Live };
            self.asked.set(self.requests.try_send(request).is_ok());
        }
    }

    /// The thread answered that it lives.
    pub fn lives(&self) {
        self.asked.set(false);
    }

    /// Has the essentials file written.
    pub fn write_essentials(&self, bytes: Vec<u8>) {
        self.send(Work::WriteEssentials(bytes));
    }

    /// Has the files closed; the answer is [`Answer::Closed`].
    pub fn close(&self, essentials: Vec<u8>) {
        self.send(Work::Close(essentials));
    }

    /// `None` when the thread has to do it: the core has no store, it would take long, or it failed and the thread
    /// has to recover first.
    fn append_here(&self, batch: &Batch) -> Option<Persisted> {
        let mut lent = self.lent.borrow_mut();
        let store = lent.as_mut()?;
        if self.append_time.get() > QUICK || !store.append_is_one_write(batch) {
            return None;
        }
        let begun = Instant::now();
        let persisted = store.append(batch.clone()).ok()?;
        self.appended_in(begun.elapsed());
        Some(persisted)
    }

    fn appended_in(&self, took: Duration) {
        let before = self.append_time.get();
        self.append_time.set(took.max(before - before / 8));
    }

    fn send(&self, work: Work) {
        self.sent.set(self.sent.get() + 1);
        let store = self.lent.borrow_mut().take();
        // The thread lives until it is closed; if it died, the process is about to end.
        drop(self.requests.send(Request { store, work }));
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

/// The thread's side.
struct Serving {
    /// `None` while it is lent.
    store: Option<Box<Store>>,
    incoming: mpsc::Receiver<Request>,
    /// What came while the store was on its way to the core and back.
    waiting: VecDeque<Work>,
    received: u64,
    answers: to_core::Sender<Answer>,
}

impl Serving {
    fn serve(mut self) {
        let mut idle = false;
        loop {
            let request = if idle || self.store.is_none() {
                self.incoming.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
            } else {
                self.incoming.recv_timeout(IDLE)
            };
            match request {
                // Neither work nor a reason to wake up again.
                Ok(Request { work: Work::Live, .. }) => tell(&self.answers, Answer::Alive),
                Ok(Request { store, work }) => {
                    idle = false;
                    self.received += 1;
                    self.store = store.or(self.store);
                    self.waiting.push_back(work);
                    if self.do_waiting() {
                        return;
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    idle = true;
                    self.apply_if_idle();
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Does what waits, as far as the store is here. True when it was closed.
    fn do_waiting(&mut self) -> bool {
        while let Some(mut store) = self.store.take() {
            match self.waiting.pop_front() {
                Some(Work::Append { batch, alone }) => self.append(store, &batch, alone),
                Some(Work::Backlog(request)) => self.serve_backlog(store, request),
                Some(Work::Copy(step)) => self.serve_copy(store, step),
                Some(Work::WriteEssentials(bytes)) => {
                    if let Err(error) = store.write_essentials(&bytes) {
                        tracing::warn!(%error, "essentials file not written");
                    }
                    self.store = Some(store);
                }
                Some(Work::Close(essentials)) => {
                    let closed = store.close(Some(&essentials)).map_err(|error| error.to_string());
                    tell(&self.answers, Answer::Closed(closed));
                    return true;
                }
                Some(Work::Nothing | Work::Live) => self.store = Some(store),
                None => {
                    self.store = Some(store);
                    return false;
                }
            }
        }
        false
    }

    /// Does what is asked of the backlog. Its failures stop nothing: rows stay in the window, or are asked for again.
    fn serve_backlog(&mut self, mut store: Box<Store>, request: BacklogRequest) {
        match request {
            BacklogRequest::Change(change) => {
                let changed = store.change_backlog(&change);
                if let Err(error) = &changed {
                    tracing::warn!(%error, "the backlog was not changed");
                }
                tell(&self.answers, Answer::BacklogChanged(changed.ok()));
            }
            BacklogRequest::Read(read) => {
                let rows = store.fetch_chunk(read);
                if let Err(error) = &rows {
                    tracing::warn!(%error, "the backlog was not read");
                }
                tell(&self.answers, Answer::BacklogRead(rows.ok()));
            }
        }
        if !store.is_open() {
            recover(&mut store, &StoreError::NotOpen, &self.answers);
        }
        self.store = Some(store);
    }

    fn serve_copy(&mut self, mut store: Box<Store>, step: CopyStep) {
        let copied = match step {
            CopyStep::Begin => {
                store.begin_copy();
                Ok(Copied::default())
            }
            CopyStep::Next(bytes_max) => {
                store.copy_next(bytes_max).map(|bite| Copied { bite, ..Copied::default() })
            }
            CopyStep::Last => store.copy_last().map(|(entries, state)| Copied {
                bite: CopiedBite { entries, caught_up: true },
                state: Some(state),
            }),
            CopyStep::End => {
                store.end_copy();
                Ok(Copied::default())
            }
        };
        tell(&self.answers, Answer::Copied(copied.map_err(|error| error.to_string())));
        if !store.is_open() {
            recover(&mut store, &StoreError::NotOpen, &self.answers);
        }
        self.store = Some(store);
    }

    /// Appends until the batch is there, or a file was found damaged, which makes the batch void.
    fn append(&mut self, mut store: Box<Store>, batch: &Batch, alone: bool) {
        let (persisted, took) = loop {
            let begun = Instant::now();
            match store.append(batch.clone()) {
                Ok(persisted) => break (persisted, begun.elapsed()),
                Err(error) => {
                    if !recover(&mut store, &error, &self.answers) {
                        self.store = Some(store);
                        return;
                    }
                }
            }
        };
        let lent = if alone && self.waiting.is_empty() {
            Some(Lent { store, received: self.received, took })
        } else {
            self.store = Some(store);
            None
        };
        tell(&self.answers, Answer::Persisted(persisted, lent));
    }

    fn apply_if_idle(&mut self) {
        if let Some(store) = &mut self.store
            && let Err(error) = store.apply_if_idle()
        {
            recover(store, &error, &self.answers);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::BatchNumber;
    use crate::store::{BatchBuilder, FileDisk, StoreOptions};

    fn batch(number: u64) -> Batch {
        let mut builder = BatchBuilder::new(BatchNumber(number));
        builder.push(1, &number.to_le_bytes());
        builder.finish()
    }

    /// Whoever has the store when a batch comes: each is answered once, in order, and all of them are on flash.
    #[test]
    fn the_store_goes_back_and_forth_without_losing_a_batch() {
        let folder = std::env::temp_dir().join(format!("gatewayd-store-thread-{}", std::process::id()));
        let disk = FileDisk::new(&folder).unwrap();
        let (store, _) = Store::open(Arc::new(disk), StoreOptions::default()).unwrap();
        let (handle, mut answers) = StoreThread::start(store).unwrap();
        let (mut here, mut there) = (0, 0);
        for number in 1..=400u64 {
            // So that a slow disk does not decide what is tested.
            handle.append_time.set(Duration::ZERO);
            if number % 7 == 0 {
                handle.write_essentials(number.to_le_bytes().to_vec());
            }
            if let Some(persisted) = handle.append(batch(number), number % 5 != 0) {
                assert_eq!(persisted.number, BatchNumber(number));
                here += 1;
                continue;
            }
            if number % 11 == 0 {
                // Crosses the store on its way to the core.
                handle.write_essentials(number.to_le_bytes().to_vec());
            }
            let Some(Answer::Persisted(persisted, lent)) = answers.blocking_recv() else {
                panic!("no answer")
            };
            assert_eq!(persisted.number, BatchNumber(number));
            there += 1;
            if let Some(lent) = lent {
                handle.take(lent);
            }
        }
        assert!(here > 50 && there > 50, "{here} by the core, {there} by the thread");
        handle.close(Vec::new());
        assert!(matches!(answers.blocking_recv(), Some(Answer::Closed(Ok(())))));
        let disk = FileDisk::new(&folder).unwrap();
        let (mut store, found) = Store::open(Arc::new(disk), StoreOptions::default()).unwrap();
        assert_eq!((found.clean, store.last_batch()), (true, BatchNumber(400)));
        let mut rows = 0u64;
        store
            .replay(&mut |_, _, body| {
                rows += 1;
                assert_eq!(body, rows.to_le_bytes());
            })
            .unwrap();
        assert_eq!(rows, 400);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
