//! The last moment of a socket whose peer was told why its connection ends.
//!
//! A socket that is closed while input waits in it is reset, and the reset may destroy what the peer has not read yet:
//! the very reason. So writing ends first, and what still comes is read and thrown away until the peer closes too, for a
//! short while.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::connection::yield_once;
use super::core::{Core, Socket};

/// A peer gets this long to read the reason and to close.
const TIME: Duration = Duration::from_secs(2);
/// The same when the gateway stops.
const TIME_AT_STOP: Duration = Duration::from_millis(300);
/// It may send this much meanwhile: more than lies in the buffers of both sides.
const BYTES_MAX: usize = 16 << 20;
/// So many sockets are read at once; more are closed as they are. Their connections are forgotten and count no more.
const SOCKETS_MAX: usize = 256;

/// Ends writing, and has the socket read for a while. It is closed when the last of its owners is gone.
pub(super) fn begin(core: &Rc<Core>, socket: Rc<Socket>) {
    socket.stream.borrow().shut_down_write();
    if core.leaving.get() >= SOCKETS_MAX {
        return;
    }
    core.leaving.set(core.leaving.get() + 1);
    let core = Rc::clone(core);
    spawn_local(async move {
        // Whether it closed in time or not, this is the end.
        drop(timeout(TIME, discard(&core, &socket)).await);
        core.leaving.set(core.leaving.get() - 1);
    });
}

/// Before the process ends, which closes all that is left: those who were told that it stops get a moment to read it.
pub(super) async fn end(core: &Core) {
    let read = async {
        while core.leaving.get() > 0 {
            sleep(Duration::from_millis(2)).await;
        }
    };
    drop(timeout(TIME_AT_STOP, read).await);
}

async fn discard(core: &Core, socket: &Socket) {
    let mut left = BYTES_MAX;
    while left > 0 {
        match poll_fn(|cx| poll_read(cx, core, socket)).await {
            Ok(0) | Err(_) => return,
            Ok(count) => left = left.saturating_sub(count),
        }
        yield_once().await;
    }
}

fn poll_read(cx: &mut Context<'_>, core: &Core, socket: &Socket) -> Poll<io::Result<usize>> {
    let mut scratch = core.scratch.borrow_mut();
    let mut buffer = ReadBuf::new(&mut scratch);
    ready!(socket.stream.borrow_mut().poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}
