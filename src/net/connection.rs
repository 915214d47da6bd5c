//! Reading one connection: bytes go from the socket through the thread's one scratch buffer, and through the
//! connection's layers if it has any, to the gateway.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;
use tokio::task::spawn_local;

use super::core::{Core, Socket};
use super::layers::Layers;
use super::stream::Stream;
use crate::gateway::{Accept, Protocol};
use crate::ids::ConnectionId;
use crate::limits::READ_BYTES_MAX;

/// Takes an accepted socket into the gateway, or drops it when there are too many.
pub(super) fn serve(
    core: &Rc<Core>,
    stream: Stream,
    layers: Option<Box<Layers>>,
    protocol: Protocol,
    accept: Accept,
) {
    let now = core.clock.get().now();
    let Some(id) = core.gateway.borrow_mut().accept_protocol(now, protocol, accept) else { return };
    let socket = core.add_socket(id, stream, layers);
    let reader = spawn_local(read_all(Rc::clone(core), Rc::clone(&socket), id));
    socket.set_reader(reader.abort_handle());
    core.kick();
}

async fn read_all(core: Rc<Core>, socket: Rc<Socket>, id: ConnectionId) {
    if socket.layers.borrow().is_some() {
        // What came right behind the handshake.
        if !receive(&core, id, &socket, &mut []) {
            core.departures.announce(id);
            return;
        }
    }
    loop {
        if !core.gateway.borrow().wants_read(id) {
            socket.readable.notified().await;
            continue;
        }
        match poll_fn(|cx| poll_read(cx, &core, id, &socket)).await {
            Ok(0) | Err(_) => {
                core.departures.announce(id);
                return;
            }
            Ok(count) => {
                core.kick();
                if count == READ_BYTES_MAX {
                    yield_once().await;
                }
            }
        }
    }
}

/// One read, handed to the gateway while it lies in the scratch buffer. Answers the bytes read.
fn poll_read(
    cx: &mut Context<'_>,
    core: &Rc<Core>,
    id: ConnectionId,
    socket: &Rc<Socket>,
) -> Poll<io::Result<usize>> {
    let mut scratch = core.scratch.borrow_mut();
    let mut buffer = ReadBuf::new(&mut scratch);
    ready!(socket.stream.borrow_mut().poll_read(cx, &mut buffer))?;
    let bytes = buffer.filled_mut();
    let count = bytes.len();
    if count == 0 {
        return Poll::Ready(Ok(0));
    }
    if socket.layers.borrow().is_some() {
        let open = receive(core, id, socket, bytes);
        return Poll::Ready(Ok(if open { count } else { 0 }));
    }
    core.receive(id, bytes);
    Poll::Ready(Ok(count))
}

/// Passes bytes through the layers. False when the connection is over.
fn receive(core: &Rc<Core>, id: ConnectionId, socket: &Rc<Socket>, bytes: &mut [u8]) -> bool {
    let mut layers = socket.layers.borrow_mut();
    let Some(layers) = layers.as_deref_mut() else { return true };
    let received = layers.receive(bytes, &mut |bytes| core.receive(id, bytes));
    if let Err(error) = &received {
        tracing::debug!(connection = id.0, %error, "a layer of the connection failed");
    }
    let open = matches!(received, Ok(true));
    if layers.wants_write() {
        match layers.flush(&socket.stream.borrow()) {
            Ok(true) => {}
            // The rest goes as the socket takes it, unless this is the end.
            Ok(false) => core.drain_later(id, socket),
            Err(_) => return false,
        }
    }
    open
}

/// Lets the others have their turn: the task goes to the end of the line.
pub(super) async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
