//! What lies between a socket and the gateway's bytes where it is not nothing: TLS, WebSocket, or one in the other.
//! A plain connection has none of it and pays nothing for it.

use std::io::{self, IoSlice};

use super::stream::Stream;
use super::tls::{PLAIN_BYTES_MAX, Tls};
use crate::websocket::{self, CloseCode, Frames, Rules, Upgrade};

/// See the module's head.
#[derive(Debug)]
pub(super) struct Layers {
    tls: Option<Tls>,
    web_socket: Option<WebSocket>,
    /// Bytes of a WebSocket without TLS that wait for the socket. With TLS rustls keeps them.
    pending: Vec<u8>,
}

#[derive(Debug)]
enum WebSocket {
    /// The request so far.
    Request(Vec<u8>, Rules),
    Frames(Frames),
    /// The farewell was sent.
    Closed,
}

impl Layers {
    /// `None` where bytes go as they are.
    pub fn new(tls: Option<Tls>, web_socket: Option<Rules>) -> Option<Box<Self>> {
        if tls.is_none() && web_socket.is_none() {
            return None;
        }
        let web_socket = web_socket.map(|rules| WebSocket::Request(Vec::new(), rules));
        Some(Box::new(Self { tls, web_socket, pending: Vec::new() }))
    }

    /// Takes bytes as they came from the socket and hands the gateway's to `data`. False when the peer has said that
    /// nothing more comes. Answers of the layers may then wait, see [`Layers::wants_write`].
    ///
    /// # Errors
    /// The peer breaks a protocol: what is to be told waits to be sent.
    pub fn receive(&mut self, bytes: &mut [u8], data: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let Self { tls, web_socket, .. } = self;
        let mut replies = Vec::new();
        let received = match (tls, web_socket) {
            (Some(tls), None) => tls.receive(bytes, &mut |plain| {
                data(plain);
                Ok(())
            }),
            (Some(tls), Some(web_socket)) => {
                tls.receive(bytes, &mut |plain| web_socket.receive(&mut plain.to_vec(), &mut replies, data))
            }
            (None, Some(web_socket)) => web_socket.receive(bytes, &mut replies, data).map(|()| true),
            (None, None) => Ok(true),
        };
        self.put(&replies)?;
        received
    }

    /// True while something waits for the socket.
    pub fn wants_write(&self) -> bool {
        !self.pending.is_empty() || self.tls.as_ref().is_some_and(Tls::wants_write)
    }

    /// Writes what waits. False when the socket takes no more now.
    ///
    /// # Errors
    /// The socket's.
    pub fn flush(&mut self, stream: &Stream) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            return tls.flush(stream);
        }
        let mut sent = 0;
        while let Some(rest) = self.pending.get(sent..).filter(|rest| !rest.is_empty()) {
            match stream.try_write(rest) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if sent == self.pending.len() {
            // An idle connection owns no buffer.
            self.pending = Vec::new();
            return Ok(true);
        }
        self.pending.drain(..sent);
        Ok(false)
    }

    /// Takes some of the gateway's output; answers how much. To be called when nothing waits.
    ///
    /// # Errors
    /// None that is known; rustls' writer may say one.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let taken = total.min(PLAIN_BYTES_MAX);
        match &self.web_socket {
            // Nothing is owed to who has not asked for a WebSocket yet, or has left it: it is dropped.
            Some(WebSocket::Request(..) | WebSocket::Closed) => return Ok(total),
            Some(WebSocket::Frames(_)) => {
                let mut header = Vec::with_capacity(websocket::HEADER_BYTES_MAX);
                websocket::put_data_header(&mut header, taken);
                self.put(&header)?;
            }
            None => {}
        }
        let mut rest = taken;
        for slice in slices {
            let now = slice.get(..rest.min(slice.len())).unwrap_or_default();
            self.put(now)?;
            rest -= now.len();
        }
        Ok(taken)
    }

    /// The peer is told that the connection is over.
    ///
    /// # Errors
    /// None that is known; rustls' writer may say one.
    pub fn close(&mut self) -> io::Result<()> {
        if matches!(self.web_socket, Some(WebSocket::Frames(_))) {
            self.web_socket = Some(WebSocket::Closed);
            let mut farewell = Vec::new();
            websocket::put_close(&mut farewell, CloseCode::Normal);
            self.put(&farewell)?;
        }
        if let Some(tls) = &mut self.tls {
            tls.close();
        }
        Ok(())
    }

    /// The TLS layer.
    pub const fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            self.pending.extend_from_slice(bytes);
            return Ok(());
        };
        while !bytes.is_empty() {
            let count = tls.write(bytes)?;
            if count == 0 {
                return Err(io::Error::other("too much waits for the socket"));
            }
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }
}

impl WebSocket {
    fn receive(
        &mut self,
        bytes: &mut [u8],
        replies: &mut Vec<u8>,
        data: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        if let Self::Request(head, rules) = self {
            // More than a head can only be frames that came with it, up to the size of one read.
            head.extend_from_slice(bytes);
            match websocket::answer(head, *rules) {
                Upgrade::Incomplete => return Ok(()),
                Upgrade::Refused(refusal) => {
                    replies.extend_from_slice(refusal.response.as_bytes());
                    *self = Self::Closed;
                    return Err(io::Error::other(refusal.why));
                }
                Upgrade::Accepted { head_bytes, response } => {
                    replies.extend_from_slice(response.as_bytes());
                    let mut rest = head.split_off(head_bytes);
                    *self = Self::Frames(Frames::default());
                    return self.receive(&mut rest, replies, data);
                }
            }
        }
        let Self::Frames(frames) = self else { return Ok(()) };
        frames.receive(bytes, replies, data).map_err(|code| {
            *self = Self::Closed;
            io::Error::other(match code {
                CloseCode::Normal => "the peer closed the WebSocket",
                CloseCode::Unsupported => "text came over the WebSocket",
                CloseCode::ProtocolError => "the peer breaks the rules of WebSocket",
            })
        })
    }
}
