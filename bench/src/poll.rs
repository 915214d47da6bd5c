//! Readiness of many sockets: a thin cover of Linux epoll, level-triggered, one token a socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

const EVENTS_PER_WAIT: usize = 1024;

/// One ready socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    pub token: usize,
    pub readable: bool,
    pub writable: bool,
}

/// The set of sockets that are waited for.
pub struct Poll {
    epoll: OwnedFd,
    buffer: Vec<MaybeUninit<epoll::Event>>,
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, buffer: vec![MaybeUninit::uninit(); EVENTS_PER_WAIT] })
    }

    pub fn add(&self, source: impl AsFd, token: usize, writable: bool) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, data(token), flags(writable))?)
    }

    pub fn modify(&self, source: impl AsFd, token: usize, writable: bool) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, data(token), flags(writable))?)
    }

    /// Waits until something is ready or `timeout` has passed, and appends what is ready to `ready`.
    pub fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let events = match epoll::wait(&self.epoll, self.buffer.as_mut_slice(), timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            // The event is a packed struct: copy its fields out.
            let (event_flags, event_data) = (event.flags, event.data);
            let failed = event_flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            ready.push(Ready {
                token: usize::try_from(event_data.u64()).unwrap_or(usize::MAX),
                readable: failed || event_flags.contains(epoll::EventFlags::IN),
                writable: event_flags.contains(epoll::EventFlags::OUT),
            });
        }
        Ok(())
    }
}

fn data(token: usize) -> epoll::EventData {
    epoll::EventData::new_u64(token as u64)
}

fn flags(writable: bool) -> epoll::EventFlags {
    let base = epoll::EventFlags::IN;
    if writable { base | epoll::EventFlags::OUT } else { base }
}
