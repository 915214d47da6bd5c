//! Sockets that systemd opened: a socket unit's port is taken by the listener that it names, or whose address it has.

use std::env;
use std::net::TcpListener;

use listenfd::ListenFd;

use crate::config::Bind;

/// The sockets that were handed over and that no listener has taken yet.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    sockets: Vec<(String, TcpListener)>,
}

impl Inherited {
    /// Takes them from the environment.
    #[expect(clippy::disallowed_methods, reason = "the sockets' names come the way that the sockets come")]
    pub fn take() -> Self {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut handed_over = ListenFd::from_env();
        let mut sockets = Vec::new();
        for at in 0..handed_over.len() {
            let name = names.next().unwrap_or_default().to_owned();
            match handed_over.take_tcp_listener(at) {
                Ok(Some(socket)) => sockets.push((name, socket)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%name, %error, "a socket of systemd is no TCP port; it is not used")
                }
            }
        }
        Self { sockets }
    }

    /// The socket for a listener: one with its name, else one with its address.
    pub fn socket(&mut self, listener: &str, bind: &Bind) -> Option<TcpListener> {
        let at = self.place(listener, bind)?;
        Some(self.sockets.remove(at).1)
    }

    /// Whether there is one for a listener.
    pub fn holds(&self, listener: &str, bind: &Bind) -> bool {
        self.place(listener, bind).is_some()
    }

    fn place(&self, listener: &str, bind: &Bind) -> Option<usize> {
        let Bind::Tcp(address) = bind else { return None };
        let has_name = |(name, _): &(String, TcpListener)| name == listener;
        let has_address =
            |(_, socket): &(String, TcpListener)| socket.local_addr().is_ok_and(|own| own == *address);
        self.sockets.iter().position(has_name).or_else(|| self.sockets.iter().position(has_address))
    }

    /// Says which were taken by nobody.
    pub fn tell_unused(&self) {
        for (name, _) in &self.sockets {
            tracing::warn!(%name, "no listener has the name or the address of this socket of systemd");
        }
    }
}
