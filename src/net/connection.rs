//! Reading one TCP connection: bytes go from the socket through the thread's one scratch buffer to the gateway.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::spawn_local;

use super::core::{Core, Socket};
use crate::gateway::{Accept, Protocol};
use crate::ids::ConnectionId;
use crate::limits::READ_BYTES_MAX;

/// Takes an accepted socket into the gateway, or drops it when there are too many.
pub(super) fn serve(core: &Rc<Core>, stream: TcpStream, protocol: Protocol, accept: Accept) {
    // Small packets must not wait for each other; without the option they only come later.
    drop(stream.set_nodelay(true));
    let now = core.clock.get().now();
    let Some(id) = core.gateway.borrow_mut().accept_protocol(now, protocol, accept) else { return };
    let (read, write) = stream.into_split();
    let socket = core.add_socket(id, write);
    let reader = spawn_local(read_all(Rc::clone(core), Rc::clone(&socket), id, read));
    socket.set_reader(reader.abort_handle());
    core.kick();
}

async fn read_all(core: Rc<Core>, socket: Rc<Socket>, id: ConnectionId, mut read: OwnedReadHalf) {
    loop {
        if !core.gateway.borrow().wants_read(id) {
            socket.readable.notified().await;
            continue;
        }
        match poll_fn(|cx| poll_read(cx, &core, id, &mut read)).await {
            Ok(0) | Err(_) => {
                core.peer_closed(id);
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
    core: &Core,
    id: ConnectionId,
    read: &mut OwnedReadHalf,
) -> Poll<io::Result<usize>> {
    let mut scratch = core.scratch.borrow_mut();
    let mut buffer = ReadBuf::new(&mut scratch);
    ready!(Pin::new(read).poll_read(cx, &mut buffer))?;
    let bytes = buffer.filled();
    if !bytes.is_empty() {
        core.receive(id, bytes);
    }
    Poll::Ready(Ok(bytes.len()))
}

/// Lets the others have their turn: the task goes to the end of the line.
async fn yield_once() {
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
