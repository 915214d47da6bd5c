//! TLS on one socket after its handshake: records in, clear text out, and back. Owned by a connection of the gateway
//! or, as [`TlsStream`], by one of HTTP. The handshake is `handshake`'s.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Stream;

/// Clear text that is taken at once: it fits what rustls keeps of records that wait for the socket.
pub(super) const PLAIN_BYTES_MAX: usize = 32 * 1024;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Tls(Box<ServerConnection>);

impl Tls {
    pub fn new(connection: ServerConnection) -> Self {
        Self(Box::new(connection))
    }

    /// Takes records as they came and hands their clear text to `plain`, piece by piece. False at the end of the
    /// peer's data.
    ///
    /// # Errors
    /// The peer breaks the protocol, or `plain` fails. An alert then waits to be sent.
    pub fn receive(
        &mut self,
        mut records: &[u8],
        plain: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        loop {
            let open = self.take_plain(plain)?;
            if records.is_empty() || !open {
                return Ok(open);
            }
            if self.0.read_tls(&mut records)? == 0 {
                return Ok(true);
            }
            self.0.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Hands over clear text that waits.
    fn take_plain(&mut self, plain: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<bool> {
        loop {
            let mut reader = self.0.reader();
            let taken = match reader.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(bytes) => {
                    plain(bytes)?;
                    bytes.len()
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            reader.consume(taken);
        }
    }

    /// Makes records of `bytes`; answers how many it took.
    ///
    /// # Errors
    /// None that is known; rustls' writer may say one.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.writer().write(bytes)
    }

    /// The peer is told, once, that nothing more comes.
    pub fn close(&mut self) {
        self.0.send_close_notify();
    }

    /// True while records wait for the socket.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Writes the records that wait. False when the socket takes no more now.
    ///
    /// # Errors
    /// The socket's.
    pub fn flush(&mut self, stream: &Stream) -> io::Result<bool> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut TryWriter(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The certificates that the client showed.
    pub fn client_chain(&self) -> Option<&[CertificateDer<'static>]> {
        self.0.peer_certificates()
    }
}

/// A socket as a blocking writer that never blocks.
pub(super) struct TryWriter<'a>(pub &'a Stream);

impl Write for TryWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket as a blocking reader that never blocks; the task is woken when there is more.
struct TryReader<'a, 'b> {
    stream: &'a mut Stream,
    cx: &'a mut Context<'b>,
}

impl Read for TryReader<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match self.stream.poll_read(self.cx, &mut buffer) {
            Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// A socket with TLS for those who want [`AsyncRead`] and [`AsyncWrite`].
#[derive(Debug)]
pub(super) struct TlsStream {
    stream: Stream,
    tls: Tls,
}

impl TlsStream {
    pub const fn new(stream: Stream, tls: Tls) -> Self {
        Self { stream, tls }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.tls.flush(&self.stream)? {
            ready!(self.stream.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match this.tls.0.reader().read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let mut reader = TryReader { stream: &mut this.stream, cx };
            match this.tls.0.read_tls(&mut reader) {
                // The end without a farewell: HTTP's own lengths say whether something is missing.
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
            let processed = this.tls.0.process_new_packets();
            // Answers of the protocol, and the alert of a failure; what does not go now goes with the next write.
            let _flushed = this.tls.flush(&this.stream)?;
            processed.map_err(io::Error::other)?;
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        let count = this.tls.write(bytes.get(..PLAIN_BYTES_MAX).unwrap_or(bytes))?;
        // What the socket does not take now is drained before the next write, or by the flush.
        let _flushed = this.tls.flush(&this.stream)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_drain(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.tls.close();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}
