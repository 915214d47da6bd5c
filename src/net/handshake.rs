//! TLS handshakes, on a thread of their own: a thousand devices that come back at once must not hold up those that
//! are there. The socket goes to the thread, and comes back to the core with its keys agreed.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use super::stream::{Parked, Stream};
use super::tls::{Tls, TryWriter};

/// Handshakes at once; more connections wait in the system's queue. A handshake holds some 20 KiB.
const HANDSHAKES_MAX: usize = 256;

/// A client must be through within this.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes read at a time: a client's flight fits.
const READ_BYTES: usize = 4096;

/// How much the thread gives way to the core where they share a processor.
const NICENESS: i32 = 5;

struct Job {
    socket: Parked,
    config: Arc<ServerConfig>,
    reply: oneshot::Sender<io::Result<(Parked, ServerConnection)>>,
}

/// The core's handle on the thread.
#[derive(Clone, Debug)]
pub(super) struct Handshakes {
    jobs: mpsc::UnboundedSender<Job>,
    room: Arc<Semaphore>,
}

/// A place among the handshakes at once.
pub(super) type Place = OwnedSemaphorePermit;

impl Handshakes {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system makes no thread.
    pub fn start() -> io::Result<Self> {
        // The places bound what is in it.
        let (jobs, mut incoming) = mpsc::unbounded_channel::<Job>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("handshakes".into()).spawn(move || {
            give_way();
            let local = LocalSet::new();
            local.block_on(&runtime, async {
                while let Some(Job { socket, config, reply }) = incoming.recv().await {
                    spawn_local(async move {
                        let done = timeout(HANDSHAKE_TIMEOUT, shake(socket, config)).await;
                        // The core that asked may be stopping.
                        drop(reply.send(done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))));
                    });
                }
            });
        })?;
        Ok(Self { jobs, room: Arc::new(Semaphore::new(HANDSHAKES_MAX)) })
    }

    /// Waits for a place. To be asked for before a connection is accepted.
    pub async fn place(&self) -> Option<Place> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Has the handshake of a connection done.
    ///
    /// # Errors
    /// The socket fails, the peer breaks the protocol or shows no certificate that is wanted, or takes too long.
    pub async fn shake(
        &self,
        stream: Stream,
        config: Arc<ServerConfig>,
        place: Place,
    ) -> io::Result<(Stream, Tls)> {
        let (reply, answer) = oneshot::channel();
        let job = Job { socket: stream.park()?, config, reply };
        self.jobs.send(job).map_err(|_| io::Error::other("the gateway is stopping"))?;
        let (socket, connection) =
            answer.await.map_err(|_| io::Error::other("the gateway is stopping"))??;
        drop(place);
        Ok((socket.unpark()?, Tls::new(connection)))
    }
}

/// The calling thread gives way to the core. The niceness is a thread's own on Linux. Where it is not allowed nothing else changes.
pub(super) fn give_way() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "the thread keeps its priority");
    }
}

/// Leaves the processor to the core when it waits for it. Niceness alone does not: Linux lets a thread that runs go on
/// to the end of its slice, and the core was seen to wait 5 ms for one. To be called after each piece of work.
pub(super) fn step_aside() {
    thread::yield_now();
}

async fn shake(socket: Parked, config: Arc<ServerConfig>) -> io::Result<(Parked, ServerConnection)> {
    let mut stream = socket.unpark()?;
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let done = drive(&mut stream, &mut connection).await;
    if let Err(error) = done {
        // The alert says why, if the socket still takes it.
        drop(connection.write_tls(&mut TryWriter(&stream)));
        return Err(error);
    }
    Ok((stream.park()?, connection))
}

async fn drive(stream: &mut Stream, connection: &mut ServerConnection) -> io::Result<()> {
    loop {
        while connection.wants_write() {
            match connection.write_tls(&mut TryWriter(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| stream.poll_write_ready(cx)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        if !connection.is_handshaking() {
            return Ok(());
        }
        let mut bytes = [0; READ_BYTES];
        let count = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => Poll::Ready(read.map(|()| buffer.filled().len())),
                Poll::Pending => Poll::Pending,
            }
        })
        .await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut records = bytes.get(..count).unwrap_or_default();
        while !records.is_empty() {
            connection.read_tls(&mut records)?;
            connection.process_new_packets().map_err(io::Error::other)?;
            step_aside();
        }
    }
}
