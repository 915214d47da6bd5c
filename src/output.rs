//! A connection's output: bytes that wait for the socket, large bodies by reference.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

/// Bodies from this size on are not copied but shared between all that receive them.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// Room that a buffer begins with: a few small packets.
const OWNED_BYTES: usize = 512;

#[derive(Debug)]
enum Chunk {
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// Bytes in the order in which they leave. An idle connection's buffer holds no memory.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that have left.
    sent: usize,
    len: usize,
}

impl OutputBuffer {
    /// Bytes that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True when nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends what `write` writes.
    pub fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut tail = match self.chunks.pop_back() {
            Some(Chunk::Owned(tail)) => tail,
            Some(shared) => {
                self.chunks.push_back(shared);
                Vec::with_capacity(OWNED_BYTES)
            }
            None => Vec::with_capacity(OWNED_BYTES),
        };
        let before = tail.len();
        let written = write(&mut tail);
        self.len += tail.len().saturating_sub(before);
        self.chunks.push_back(Chunk::Owned(tail));
        written
    }

    /// Appends a body without copying it.
    pub fn append_shared(&mut self, body: Bytes) {
        self.len += body.len();
        self.chunks.push_back(Chunk::Shared(body));
    }

    /// The first pieces that wait, for a vectored write. Answers how many of `slices` were filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (chunk, slice) in self.chunks.iter().zip(slices.iter_mut()) {
            let skip = if filled == 0 { self.sent } else { 0 };
            *slice = IoSlice::new(chunk.bytes().get(skip..).unwrap_or_default());
            filled += 1;
        }
        filled
    }

    /// `count` bytes have left.
    pub fn advance(&mut self, mut count: usize) {
        self.len = self.len.saturating_sub(count);
        while let Some(chunk) = self.chunks.front() {
            let left = chunk.bytes().len().saturating_sub(self.sent);
            if count < left {
                self.sent += count;
                return;
            }
            count -= left;
            self.sent = 0;
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_whatever_the_writes_take() {
        for step in 1..9 {
            let mut output = OutputBuffer::default();
            output.append(|out| out.extend_from_slice(b"abc"));
            output.append_shared(Bytes::from_static(b"defgh"));
            output.append(|out| out.extend_from_slice(b"ij"));
            output.append(|out| out.push(b'k'));
            let mut sent = Vec::new();
            while !output.is_empty() {
                let mut slices = [IoSlice::new(&[]); 2];
                let filled = output.slices(&mut slices);
                let all: Vec<u8> = slices.iter().take(filled).flat_map(|s| s.iter().copied()).collect();
                let count = step.min(all.len());
                sent.extend_from_slice(&all[..count]);
                output.advance(count);
            }
            assert_eq!(sent, b"abcdefghijk");
        }
    }
}
