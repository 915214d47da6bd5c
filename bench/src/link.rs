//! One client connection: a non-blocking socket with an inbox of undecoded bytes and an outbox of unsent ones.
//!
//! Opening and subscribing may block (set-up is not measured); after that everything goes through `receive` and `flush`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::packet::{self, ConnectOptions, Packet};

/// How long set-up waits for an answer.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of the buffer that a caller shares among its links for `receive`.
pub const SCRATCH_BYTES: usize = 256 * 1024;

pub struct Link {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// Bytes of the outbox that are already sent.
    sent: usize,
    /// Whether the poll has been asked for writability.
    pub waits_for_write: bool,
}

impl Link {
    /// A TCP connection, blocking until it is made.
    pub fn dial(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, SETUP_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SETUP_TIMEOUT))?;
        Ok(Self { stream, inbox: Vec::new(), outbox: Vec::new(), sent: 0, waits_for_write: false })
    }

    /// Connects and waits for the CONNACK; returns the link, still blocking, and Session Present.
    pub fn open(address: SocketAddr, options: &ConnectOptions) -> io::Result<(Self, bool)> {
        let mut link = Self::dial(address)?;
        packet::encode_connect(&mut link.outbox, options);
        link.flush()?;
        let session_present = link.wait_for(|packet| match packet {
            Packet::Connack { session_present, return_code: 0 } => Some(Ok(session_present)),
            Packet::Connack { return_code, .. } => Some(Err(return_code)),
            _ => None,
        })?;
        match session_present {
            Ok(session_present) => Ok((link, session_present)),
            Err(code) => Err(io::Error::other(format!("the broker refused the connection with code {code}"))),
        }
    }

    /// Subscribes and waits for the SUBACK, on a link that is still blocking; returns the granted QoS.
    pub fn subscribe(&mut self, filter: &str, qos: u8) -> io::Result<u8> {
        packet::encode_subscribe(&mut self.outbox, 1, filter, qos);
        self.flush()?;
        let code = self.wait_for(|packet| match packet {
            Packet::Suback { id: 1, return_codes } => return_codes.first().copied(),
            _ => None,
        })?;
        if code > 2 {
            Err(io::Error::other(format!("subscription to {filter} refused with {code:#x}")))
        } else {
            Ok(code)
        }
    }

    /// Says goodbye on a link that is still blocking, and waits until the broker has closed it.
    pub fn close(mut self) -> io::Result<()> {
        packet::encode_disconnect(&mut self.outbox);
        self.flush()?;
        let mut rest = [0; 4096];
        while self.stream.read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
        Ok(())
    }

    /// Ends the blocking phase.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    /// Where packets are encoded to; `flush` sends them.
    pub const fn outbox(&mut self) -> &mut Vec<u8> {
        &mut self.outbox
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub const fn unsent(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// Sends as much of the outbox as the socket takes; true when nothing is left.
    pub fn flush(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Reads once and hands each whole packet to `handle` together with the outbox for the answers. False: the peer
    /// has closed the connection.
    pub fn receive(
        &mut self,
        scratch: &mut [u8],
        mut handle: impl FnMut(Packet<'_>, &mut Vec<u8>),
    ) -> io::Result<bool> {
        let bytes = match self.stream.read(scratch) {
            Ok(0) => return Ok(false),
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(error) => return Err(error),
        };
        let fresh = scratch.get(..bytes).expect("a read is no longer than its buffer");
        if self.inbox.is_empty() {
            let taken = decode_all(fresh, &mut self.outbox, &mut handle)?;
            self.inbox.extend_from_slice(fresh.get(taken..).unwrap_or_default());
        } else {
            self.inbox.extend_from_slice(fresh);
            let taken = decode_all(&self.inbox, &mut self.outbox, &mut handle)?;
            self.inbox.drain(..taken);
        }
        Ok(true)
    }

    /// Blocks until `answer` finds what it wants; packets before it are dropped, those after it stay in the inbox.
    fn wait_for<T>(&mut self, mut answer: impl FnMut(Packet<'_>) -> Option<T>) -> io::Result<T> {
        let mut chunk = [0; 4096];
        loop {
            while let Some((packet, taken)) = packet::decode(&self.inbox).map_err(io::Error::other)? {
                let found = answer(packet);
                self.inbox.drain(..taken);
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            match self.stream.read(&mut chunk)? {
                0 => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "the broker closed the connection"));
                }
                bytes => self.inbox.extend_from_slice(chunk.get(..bytes).unwrap_or_default()),
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn decode_all(
    bytes: &[u8],
    outbox: &mut Vec<u8>,
    handle: &mut impl FnMut(Packet<'_>, &mut Vec<u8>),
) -> io::Result<usize> {
    let mut taken = 0;
    while let Some((packet, length)) =
        packet::decode(bytes.get(taken..).unwrap_or_default()).map_err(io::Error::other)?
    {
        handle(packet, outbox);
        taken += length;
    }
    Ok(taken)
}
