//! One accepted socket, TCP or in the file system, owned whole: the round writes it and one task reads it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::{Shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// TCP probes a connection on which nothing came for so long. A client with a keep-alive of its protocol speaks more
/// often; the others cost a packet each five minutes.
const PROBE_AFTER: Duration = Duration::from_mins(5);
/// Between two probes without an answer, and how many there are before the connection is given up.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const PROBES: u32 = 4;

/// See the module's head.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket on its way from one runtime to another.
#[derive(Debug)]
pub(super) enum Parked {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Small packets must not wait for each other, and a peer whose network is gone and that owes no keep-alive of its
    /// protocol must be found out some time. Without the options both only come later.
    pub fn set_options(&self) {
        if let Self::Tcp(stream) = self {
            drop(stream.set_nodelay(true));
            let _unset = set_keep_alive(stream);
        }
    }

    /// Nothing more is sent. The peer reads what was sent before, and then the end.
    pub fn shut_down_write(&self) {
        // It fails when the peer has gone before.
        let _gone = match self {
            Self::Tcp(stream) => rustix::net::shutdown(stream, Shutdown::Write),
            Self::Unix(stream) => rustix::net::shutdown(stream, Shutdown::Write),
        };
    }

    /// Reads into `buffer`, as [`AsyncRead`] does.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }

    /// Ready when the socket may take more.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Writes what the socket takes now.
    ///
    /// # Errors
    /// The system's; `WouldBlock` when it takes nothing.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// The same for several pieces.
    ///
    /// # Errors
    /// The system's; `WouldBlock` when it takes nothing.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(slices),
            Self::Unix(stream) => stream.try_write_vectored(slices),
        }
    }

    /// Takes the socket out of this thread's runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn park(self) -> io::Result<Parked> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(Parked::Tcp),
            Self::Unix(stream) => stream.into_std().map(Parked::Unix),
        }
    }
}

fn set_keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)
}

impl Parked {
    /// Puts the socket into this thread's runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn unpark(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::poll_read(self.get_mut(), cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
