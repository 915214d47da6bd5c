//! The core thread's shared state and its round: sockets in, batches out, one write per connection.
//!
//! ```text
//! (1) each ready socket: read up to 64 KiB, decode, endpoint, broker      (tasks in `connection`)
//! (2) close the batch if the store is idle,─┐  (a lone small one is appended here, when a sync is quick)
//!     hand readings to the series store     │
//! (3) take `Persisted`                      ├─ `Core::round`, after all sockets that were ready together
//! (4) one write for each dirty connection  ─┘
//! ```
//!
//! The runtime has one thread and runs tasks in the order in which they were woken, so a round that the first of
//! many ready sockets asks for comes after the last of them. That is the group commit.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep_until, timeout};

use super::clock::Clock;
use super::departures::Departures;
use super::farewell;
use super::followers::Followers;
use super::http::BODIES_MAX;
use super::layers::Layers;
use super::reload::Reloader;
use super::rooms::Rooms;
use super::series_thread::SeriesThread;
use super::store_thread::{Answer, Copied, CopyStep, StoreThread};
use super::stream::Stream;
use super::workers::PasswordWorkers;
use crate::broker::BacklogRequest;
use crate::gateway::{End, Gateway, Output, StoreCondition, Ticket};
use crate::ids::ConnectionId;
use crate::limits;
use crate::time::Now;

/// Pieces of output handed to one write call.
const SLICES_MAX: usize = 16;

/// An HTTP request waits so long for the flash.
const KEPT_TIMEOUT: Duration = Duration::from_secs(15);

/// A refused or ending client gets this long to take its last bytes.
const LINGER: Duration = Duration::from_secs(5);

/// What the tasks of the core thread share. Nothing is borrowed across an await.
pub(super) struct Core {
    pub gateway: RefCell<Gateway>,
    pub clock: Cell<Clock>,
    pub scratch: RefCell<Box<[u8]>>,
    sockets: RefCell<HashMap<ConnectionId, Rc<Socket>>>,
    pub store: StoreThread,
    pub series: SeriesThread,
    pub rooms: Rooms,
    /// Bodies that are received at once.
    pub body_room: Semaphore,
    /// Backups at once: one.
    pub backup_room: Arc<Semaphore>,
    /// Who waits for a step of a copy of the store.
    copied: RefCell<Option<oneshot::Sender<Result<Copied, String>>>>,
    /// The store's thread has answered something since the watchdog was fed.
    pub store_answers: Cell<bool>,
    /// HTTP requests that wait until something is on flash.
    kept: RefCell<HashMap<Ticket, oneshot::Sender<()>>>,
    /// Who follows topics.
    pub followers: Followers,
    passwords: PasswordWorkers,
    reloader: RefCell<Option<Rc<Reloader>>>,
    /// Reads that brought something since the last round.
    reads: Cell<u32>,
    /// Asks for a round.
    wake: Notify,
    /// Connections whose peer is gone.
    pub departures: Departures,
    /// Sockets whose connection is over and that are still read.
    pub leaving: Cell<usize>,
}

/// The socket of a connection, as the round sees it.
pub(super) struct Socket {
    /// In a box: two small pieces fill the gaps that the runtime's aligned tasks leave, one larger does not.
    pub stream: RefCell<Box<Stream>>,
    /// TLS and WebSocket, where they are spoken.
    pub layers: RefCell<Option<Box<Layers>>>,
    /// The connection may be read again.
    pub readable: Notify,
    reader: Cell<Option<AbortHandle>>,
    /// A task waits for the socket to take more.
    draining: Cell<bool>,
    closing: Cell<bool>,
}

impl Core {
    pub fn new(
        gateway: Gateway,
        clock: Clock,
        store: StoreThread,
        series: SeriesThread,
        passwords: PasswordWorkers,
    ) -> Rc<Self> {
        Rc::new(Self {
            gateway: RefCell::new(gateway),
            clock: Cell::new(clock),
            scratch: RefCell::new(vec![0; limits::READ_BYTES_MAX].into()),
            sockets: RefCell::new(HashMap::new()),
            store,
            series,
            rooms: Rooms::new(),
            body_room: Semaphore::new(BODIES_MAX),
            backup_room: Arc::new(Semaphore::new(1)),
            copied: RefCell::new(None),
            store_answers: Cell::new(true),
            kept: RefCell::new(HashMap::new()),
            followers: Followers::default(),
            passwords,
            reloader: RefCell::new(None),
            reads: Cell::new(0),
            wake: Notify::new(),
            departures: Departures::default(),
            leaving: Cell::new(0),
        })
    }

    /// The way to new settings, once there is one.
    pub fn set_reloader(&self, reloader: Rc<Reloader>) {
        self.reloader.replace(Some(reloader));
    }

    /// The way to new settings.
    pub fn reloader(&self) -> Option<Rc<Reloader>> {
        self.reloader.borrow().clone()
    }

    /// The connections that have layers between their socket and the gateway.
    pub fn layered(&self) -> Vec<(ConnectionId, Rc<Socket>)> {
        let sockets = self.sockets.borrow();
        let layered = sockets.iter().filter(|(_, socket)| socket.layers.borrow().is_some());
        layered.map(|(id, socket)| (*id, Rc::clone(socket))).collect()
    }

    /// A connection's socket joins; `reader` is the task that reads it.
    pub fn add_socket(&self, id: ConnectionId, stream: Stream, layers: Option<Box<Layers>>) -> Rc<Socket> {
        let socket = Rc::new(Socket {
            stream: RefCell::new(Box::new(stream)),
            layers: RefCell::new(layers),
            readable: Notify::new(),
            reader: Cell::new(None),
            draining: Cell::new(false),
            closing: Cell::new(false),
        });
        self.sockets.borrow_mut().insert(id, Rc::clone(&socket));
        socket
    }

    /// Takes what a socket said.
    pub fn receive(&self, id: ConnectionId, bytes: &[u8]) {
        self.reads.set(self.reads.get().saturating_add(1));
        self.gateway.borrow_mut().receive(self.clock.get().now(), id, bytes);
    }

    /// Waits until what `ticket` names is on flash. False when that takes too long.
    pub async fn wait_kept(&self, ticket: Ticket) -> bool {
        let (sender, kept) = oneshot::channel();
        self.kept.borrow_mut().insert(ticket, sender);
        // The output that names the ticket is taken in the round that this asks for, or in a later one.
        self.kick();
        let is_kept = timeout(KEPT_TIMEOUT, kept).await.is_ok();
        self.kept.borrow_mut().remove(&ticket);
        is_kept
    }

    /// Does a step of a copy of the store; answers what it brought, or why the copy is over. For the one backup.
    pub async fn copy(&self, step: CopyStep) -> Result<Copied, String> {
        let (sender, copied) = oneshot::channel();
        self.copied.replace(Some(sender));
        self.store.copy(step);
        copied.await.unwrap_or_else(|_| Err("the gateway is stopping".to_owned()))
    }

    /// Asks for a round, after the tasks that are ready now.
    pub fn kick(&self) {
        self.wake.notify_one();
    }

    /// Runs rounds for ever.
    pub async fn rounds(self: Rc<Self>) {
        let sleep = sleep_until(Instant::now() + Duration::from_secs(3600));
        tokio::pin!(sleep);
        let mut armed = None;
        loop {
            let next = self.gateway.borrow().poll_timeout();
            if next != armed
                && let Some(at) = next
            {
                sleep.as_mut().reset(self.clock.get().instant(at).into());
            }
            armed = next;
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = &mut sleep, if armed.is_some() => {
                    armed = None;
                    let now = self.clock.get().now();
                    self.gateway.borrow_mut().handle_timeout(now);
                }
            }
            self.round();
        }
    }

    /// Steps 2 to 4 of a round.
    pub fn round(self: &Rc<Self>) {
        let now = self.clock.get().now();
        // One socket had something to say since the last round: nobody waits while the core itself waits for the flash.
        let alone = self.reads.take() == 1;
        let batch = self.gateway.borrow_mut().close_batch(now);
        if let Some(batch) = batch
            && let Some(persisted) = self.store.append(batch, alone)
        {
            self.gateway.borrow_mut().persisted(self.clock.get().now(), persisted);
        }
        while let Some(request) = self.next_backlog_request(now) {
            self.store.backlog(request);
        }
        let readings = self.gateway.borrow_mut().series_requests(now);
        if !readings.is_empty() {
            self.series.request(readings);
        }
        self.followers.tell(&self.gateway);
        loop {
            while let Some(id) = self.next_dirty() {
                self.send(id);
            }
            let Some(output) = self.next_output() else { return };
            self.act(output);
        }
    }

    /// The store's thread has an answer.
    pub fn store_answered(&self, answer: Answer) {
        let now = self.clock.get().now();
        self.store_answers.set(true);
        if matches!(answer, Answer::Alive) {
            self.store.lives();
            return;
        }
        let mut gateway = self.gateway.borrow_mut();
        match answer {
            Answer::Alive => {}
            Answer::Persisted(persisted, lent) => {
                if let Some(lent) = lent {
                    self.store.take(lent);
                }
                gateway.persisted(now, persisted);
            }
            Answer::Failing(why) => {
                tracing::error!(%why, "the flash fails; acknowledgements wait");
                gateway.store_condition(StoreCondition::Failing(why));
            }
            Answer::Recovered => {
                tracing::warn!("the flash works again");
                gateway.store_condition(StoreCondition::Working);
            }
            Answer::Damaged(salvaged) => {
                for damage in &salvaged.damage {
                    tracing::error!(%damage, "the store is damaged and written anew");
                }
                gateway.store_condition(StoreCondition::Working);
                gateway.write_anew(now, salvaged);
            }
            Answer::BacklogChanged(changed) => gateway.backlog_changed(now, changed),
            Answer::BacklogRead(rows) => gateway.backlog_read(now, rows),
            Answer::Copied(copied) => {
                if self.copied.take().is_some_and(|waiter| waiter.send(copied).is_err()) {
                    tracing::debug!("who waited for a copy has gone away");
                }
            }
            Answer::Closed(result) => {
                if let Err(error) = result {
                    tracing::error!(%error, "the store did not close cleanly");
                }
            }
        }
        drop(gateway);
        self.kick();
    }

    /// A password was checked.
    pub fn password_checked(&self, id: ConnectionId, genuine: bool, password: &[u8]) {
        let now = self.clock.get().now();
        self.gateway.borrow_mut().verified(now, id, genuine, password);
        self.kick();
    }

    fn next_backlog_request(&self, now: Now) -> Option<BacklogRequest> {
        self.gateway.borrow_mut().backlog_request(now)
    }

    fn next_dirty(&self) -> Option<ConnectionId> {
        self.gateway.borrow_mut().poll_dirty()
    }

    fn next_output(&self) -> Option<Output> {
        self.gateway.borrow_mut().poll_output()
    }

    fn socket(&self, id: ConnectionId) -> Option<Rc<Socket>> {
        self.sockets.borrow().get(&id).cloned()
    }

    fn act(self: &Rc<Self>, output: Output) {
        match output {
            Output::VerifyPassword { connection, challenge, password } => {
                self.passwords.verify(connection, challenge, password);
            }
            Output::LockedOut { connection } => {
                let gateway = self.gateway.borrow();
                if let Some(client) = gateway.client(connection) {
                    tracing::warn!(
                        user = client.user_name.as_deref(),
                        peer = %client.peer,
                        "locked out after too many wrong passwords"
                    );
                }
            }
            Output::Read { connection } => {
                if let Some(socket) = self.socket(connection) {
                    socket.readable.notify_one();
                }
            }
            Output::Joined { connection } => {
                let gateway = self.gateway.borrow();
                if let Some(client) = gateway.client(connection) {
                    tracing::debug!(
                        connection = connection.0,
                        client = %client.client_identifier,
                        peer = %client.peer,
                        "client connected"
                    );
                }
            }
            Output::Close { connection, end } => self.close(connection, &end),
            Output::Kept { ticket } => {
                let waiter = self.kept.borrow_mut().remove(&ticket);
                if waiter.is_some_and(|waiter| waiter.send(()).is_err()) {
                    tracing::debug!("who waited for the flash has gone away");
                }
            }
        }
    }

    /// Writes what a connection has to send, as far as its socket takes it.
    fn send(self: &Rc<Self>, id: ConnectionId) {
        let Some(socket) = self.socket(id) else { return };
        if socket.draining.get() {
            return;
        }
        match self.try_send(id, &socket) {
            Ok(true) => {}
            Ok(false) => self.drain_later(id, &socket),
            Err(_) => self.peer_closed(id),
        }
    }

    /// Has the rest sent as the socket takes it.
    pub fn drain_later(self: &Rc<Self>, id: ConnectionId, socket: &Rc<Socket>) {
        if !socket.draining.replace(true) {
            spawn_local(Rc::clone(self).drain(id, Rc::clone(socket)));
        }
    }

    /// True when everything was taken.
    fn try_send(&self, id: ConnectionId, socket: &Socket) -> io::Result<bool> {
        let now = self.clock.get().now();
        let mut gateway = self.gateway.borrow_mut();
        let stream = socket.stream.borrow();
        if let Some(layers) = socket.layers.borrow_mut().as_deref_mut() {
            return send_through(layers, &stream, &mut gateway, (now, id));
        }
        loop {
            let Some(output) = gateway.output(id) else { return Ok(true) };
            if output.is_empty() {
                return Ok(true);
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = output.slices(&mut slices);
            let slices = slices.get(..filled).unwrap_or_default();
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            let sent = match slices {
                [one] => stream.try_write(one),
                many => stream.try_write_vectored(many),
            };
            match sent {
                Ok(count) => {
                    gateway.sent(now, id, count);
                    if count < offered {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends as the socket takes it.
    async fn drain(self: Rc<Self>, id: ConnectionId, socket: Rc<Socket>) {
        loop {
            let taken = match socket.writable().await {
                Ok(()) => self.try_send(id, &socket),
                Err(error) => Err(error),
            };
            match taken {
                Ok(false) => {}
                Ok(true) => break,
                Err(_) => {
                    socket.draining.set(false);
                    self.peer_closed(id);
                    return;
                }
            }
        }
        socket.draining.set(false);
        self.kick();
    }

    /// The peer is gone.
    pub fn peer_closed(&self, id: ConnectionId) {
        let now = self.clock.get().now();
        self.gateway.borrow_mut().peer_closed(now, id);
        self.kick();
    }

    fn close(self: &Rc<Self>, id: ConnectionId, end: &End) {
        {
            let gateway = self.gateway.borrow();
            if let Some(client) = gateway.client(id) {
                tracing::debug!(
                    connection = id.0,
                    client = %client.client_identifier,
                    peer = %client.peer,
                    reason = %end,
                    "connection ended"
                );
            }
        }
        let Some(socket) = self.socket(id) else {
            self.gateway.borrow_mut().remove(id);
            return;
        };
        if socket.closing.replace(true) {
            return;
        }
        if end.is_peer_closed() {
            self.forget(id, &socket);
            return;
        }
        match self.try_send(id, &socket) {
            Ok(true) if end.is_by_peer() => self.forget(id, &socket),
            Ok(true) => self.leave(id, socket),
            Ok(false) => drop(spawn_local(Rc::clone(self).linger(id, socket))),
            Err(_) => self.forget(id, &socket),
        }
    }

    /// Gives a slow peer a moment to take the last bytes.
    async fn linger(self: Rc<Self>, id: ConnectionId, socket: Rc<Socket>) {
        let drained = async {
            while socket.writable().await.is_ok() {
                if !matches!(self.try_send(id, &socket), Ok(false)) {
                    return;
                }
            }
        };
        // Whether it took them or not, the connection is over.
        drop(timeout(LINGER, drained).await);
        self.leave(id, socket);
    }

    /// Ends a connection whose peer was told why, so that it can read that.
    fn leave(self: &Rc<Self>, id: ConnectionId, socket: Rc<Socket>) {
        self.forget(id, &socket);
        farewell::begin(self, socket);
    }

    fn forget(&self, id: ConnectionId, socket: &Socket) {
        if let Some(reader) = socket.reader.take() {
            reader.abort();
        }
        if let Some(layers) = socket.layers.borrow_mut().as_deref_mut() {
            // A farewell that the socket does not take at once is not worth waiting for.
            drop(layers.close().and_then(|()| layers.flush(&socket.stream.borrow())));
        }
        self.sockets.borrow_mut().remove(&id);
        self.gateway.borrow_mut().remove(id);
    }
}

/// Sends output through the layers of a connection. True when everything was taken.
fn send_through(
    layers: &mut Layers,
    stream: &Stream,
    gateway: &mut Gateway,
    (now, id): (Now, ConnectionId),
) -> io::Result<bool> {
    while layers.flush(stream)? {
        let Some(output) = gateway.output(id).filter(|output| !output.is_empty()) else { return Ok(true) };
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = output.slices(&mut slices);
        let count = layers.send(slices.get(..filled).unwrap_or_default())?;
        gateway.sent(now, id, count);
    }
    Ok(false)
}

impl Socket {
    /// Ready when the socket takes more.
    async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.stream.borrow().poll_write_ready(cx)).await
    }

    /// The task that reads the socket; it ends with it.
    pub fn set_reader(&self, reader: AbortHandle) {
        self.reader.set(Some(reader));
    }
}
