//! The listeners: sockets that accept, what each does with a connection, and changing them while they serve.
//!
//! A listener's socket is known by its address: settings that name the same address keep it, so that no connection
//! attempt is refused while settings change.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_local};

use super::connection;
use super::core::Core;
use super::handshake::{Handshakes, Place};
use super::http::{self, Door, Visitor};
use super::inherited::Inherited;
use super::layers::Layers;
use super::socket_path::SocketPath;
use super::stream::Stream;
use super::tls::{Tls, TlsStream};
use crate::config::{Bind, ClientCert, Listener, ListenerKind, UsernameFromCert};
use crate::gateway::{Accept, CertificateFacts, ListenerFacts, Protocol};
use crate::settings::Settings;
use crate::tls::{Certificates, client_name};
use crate::websocket::Rules;

/// After an accept failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// All listeners that are served.
pub(super) struct Listeners {
    served: RefCell<Vec<Served>>,
    /// The name of each listener that there ever was: its place is its number in the gateway.
    names: RefCell<Vec<String>>,
    /// Its thread exists once a listener speaks TLS.
    handshakes: RefCell<Option<Handshakes>>,
    http_room: Rc<Semaphore>,
    /// Sockets that systemd opened.
    inherited: RefCell<Inherited>,
    /// Ports that are held for the start and do not listen yet.
    reserved: RefCell<Vec<(SocketAddr, TcpSocket)>>,
}

/// A socket that accepts, and what it does for the time being.
struct Served {
    bind: Bind,
    active: Rc<RefCell<Rc<Active>>>,
    socket: Rc<Socket>,
    task: JoinHandle<()>,
}

/// A listener under the settings that hold.
pub(super) struct Active {
    pub listener: Listener,
    /// Its number in the gateway.
    pub index: u16,
    pub tls: Option<ActiveTls>,
}

#[derive(Clone)]
pub(super) struct ActiveTls {
    pub certificates: Certificates,
    config: Arc<ServerConfig>,
    handshakes: Handshakes,
}

enum Socket {
    Tcp(TcpListener),
    Unix(SocketPath),
}

/// Listeners that are bound already and serve once [`Listeners::commit`] says so.
pub(super) struct Prepared(Vec<(Rc<Active>, Option<Socket>)>);

/// Why a listener cannot be served.
#[derive(Debug)]
pub struct BindError {
    /// `FILE:LINE:COLUMN: KEY`, as far as there is one.
    pub place: String,
    pub bind: Bind,
    pub error: io::Error,
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: cannot listen on {}: ", self.place, self.bind)?;
        match (self.error.kind(), &self.bind) {
            (io::ErrorKind::AddrInUse, Bind::Tcp(address)) => write!(
                f,
                "another process does; `ss -ltnp sport = :{}` names it. Stop it or choose another port",
                address.port()
            ),
            (io::ErrorKind::AddrInUse, Bind::Unix(_)) => {
                f.write_str("another process does. Stop it or choose another path")
            }
            (io::ErrorKind::AlreadyExists, Bind::Unix(_)) => f.write_str(
                "a file that is no socket is there, and stays there; remove it or choose another path",
            ),
            (io::ErrorKind::AddrNotAvailable, _) => {
                f.write_str("no interface of this machine has the address; `ip address` shows what there is")
            }
            (io::ErrorKind::PermissionDenied, Bind::Tcp(_)) => f.write_str(
                "ports below 1024 need the capability CAP_NET_BIND_SERVICE; choose another port or grant it",
            ),
            (io::ErrorKind::PermissionDenied, Bind::Unix(_)) => {
                f.write_str("this user may not write to the folder; choose another or give it to the user")
            }
            (io::ErrorKind::NotFound, Bind::Unix(_)) => f.write_str("the folder does not exist; make it"),
            _ => self.error.fmt(f),
        }
    }
}

impl std::error::Error for BindError {}

impl Listeners {
    pub fn new(http_room: Rc<Semaphore>) -> Rc<Self> {
        Rc::new(Self {
            served: RefCell::new(Vec::new()),
            names: RefCell::new(Vec::new()),
            handshakes: RefCell::new(None),
            http_room,
            inherited: RefCell::new(Inherited::take()),
            reserved: RefCell::new(Vec::new()),
        })
    }

    /// Holds the ports that `settings` name, before anything is read from flash or written to it: a start that cannot
    /// listen wears nothing out. Nobody is served yet: connections are refused until [`Self::prepare`].
    ///
    /// # Errors
    /// What cannot be bound.
    pub fn reserve(&self, settings: &Settings) -> Result<(), BindError> {
        let mut reserved = Vec::new();
        for listener in settings.config.enabled_listeners() {
            let held = match &listener.bind {
                bind if self.inherited.borrow().holds(&listener.name, bind) => Ok(None),
                Bind::Tcp(address) => bind_port(*address).map(|socket| Some((*address, socket))),
                Bind::Unix(path) => SocketPath::check(path).map(|()| None),
            };
            let place = || settings.places.show(&format!("listener.{}.bind", listener.name));
            let held =
                held.map_err(|error| BindError { place: place(), bind: listener.bind.clone(), error })?;
            reserved.extend(held);
        }
        self.reserved.replace(reserved);
        Ok(())
    }

    fn bind_socket(&self, bind: &Bind) -> io::Result<Socket> {
        match bind {
            Bind::Tcp(address) => {
                let mut reserved = self.reserved.borrow_mut();
                let at = reserved.iter().position(|(held, _)| held == address);
                let socket = match at {
                    Some(at) => reserved.swap_remove(at).1,
                    None => bind_port(*address)?,
                };
                socket.listen(1024).map(Socket::Tcp)
            }
            Bind::Unix(path) => SocketPath::bind(path).map(Socket::Unix),
        }
    }

    /// Binds what `settings` name and is not bound yet. Nothing is served differently before [`Self::commit`].
    ///
    /// # Errors
    /// What cannot be bound; what was bound for it is let go again.
    pub async fn prepare(
        self: &Rc<Self>,
        core: &Rc<Core>,
        settings: &Settings,
    ) -> Result<Prepared, BindError> {
        let mut prepared = Vec::new();
        for listener in settings.config.enabled_listeners() {
            let place = |key: &str| settings.places.show(&format!("listener.{}.{key}", listener.name));
            let failed =
                |key: &str, error| BindError { place: place(key), bind: listener.bind.clone(), error };
            let tls = self.tls(listener, settings).map_err(|why| failed("tls", io::Error::other(why)))?;
            let active = Active { listener: listener.clone(), index: self.index(&listener.name), tls };
            let is_bound = self.served.borrow().iter().any(|served| served.bind == listener.bind);
            let socket = if is_bound {
                None
            } else {
                let inherited = self.inherited.borrow_mut().socket(&listener.name, &listener.bind);
                let socket = match inherited {
                    Some(socket) => from_systemd(socket),
                    None => self.bind_beside(core, &listener.bind, settings).await,
                };
                Some(socket.map_err(|error| failed("bind", error))?)
            };
            prepared.push((Rc::new(active), socket));
        }
        Ok(Prepared(prepared))
    }

    /// Says which sockets of systemd no listener has taken.
    pub fn tell_unused(&self) {
        self.inherited.borrow().tell_unused();
    }

    /// Serves what was prepared and nothing else. Connections that were accepted stay.
    pub fn commit(self: &Rc<Self>, core: &Rc<Core>, Prepared(prepared): Prepared) {
        let mut before = std::mem::take(&mut *self.served.borrow_mut());
        let mut served = Vec::new();
        for (active, socket) in prepared {
            let bind = active.listener.bind.clone();
            if let Some(at) = before.iter().position(|old| old.bind == bind) {
                let old = before.swap_remove(at);
                if old.active.borrow().listener != active.listener {
                    log(&active.listener, &old.socket, "listening anew");
                }
                old.active.replace(active);
                served.push(old);
            } else if let Some(socket) = socket {
                log(&active.listener, &socket, "listening");
                served.push(self.serve(core, bind, active, socket));
            }
        }
        for old in before {
            tracing::info!(listener = %old.active.borrow().listener.name, address = %old.bind, "no longer listening");
            old.stop();
        }
        self.served.replace(served);
        self.tell(core);
    }

    /// Has `status` show what is open.
    fn tell(&self, core: &Core) {
        let served = self.served.borrow();
        let shown = served.iter().map(|served| {
            let active = served.active.borrow();
            ListenerFacts {
                name: active.listener.name.clone(),
                kind: active.listener.kind.name(),
                address: served.socket.address().unwrap_or_else(|| served.bind.to_string()),
                tls: active.tls.is_some(),
                certificate: active.tls.as_ref().map(|tls| CertificateFacts {
                    name: active.listener.tls.clone().unwrap_or_default(),
                    not_before: tls.certificates.validity.not_before,
                    not_after: tls.certificates.validity.not_after,
                }),
            }
        });
        let mut gateway = core.gateway.borrow_mut();
        let mut facts = gateway.facts().clone();
        facts.listeners = shown.collect();
        gateway.set_facts(facts);
    }

    /// The listeners that are served now.
    pub fn active(&self) -> Vec<Rc<Active>> {
        self.served.borrow().iter().map(|served| Rc::clone(&served.active.borrow())).collect()
    }

    /// Whether nameless clients may enter, by the number of each listener that there ever was.
    pub fn anonymous(&self) -> Vec<bool> {
        let active = self.active();
        let may = |index: usize| {
            active.iter().any(|one| usize::from(one.index) == index && one.listener.allow_anonymous)
        };
        (0..self.names.borrow().len()).map(may).collect()
    }

    /// The gateway stops: paths of sockets are removed.
    pub fn close(&self) {
        for served in self.served.borrow_mut().drain(..) {
            served.stop();
        }
    }

    fn serve(self: &Rc<Self>, core: &Rc<Core>, bind: Bind, active: Rc<Active>, socket: Socket) -> Served {
        let active = Rc::new(RefCell::new(active));
        let socket = Rc::new(socket);
        let task = accept(Rc::clone(core), Rc::clone(self), Rc::clone(&active), Rc::clone(&socket));
        Served { bind, active, socket, task: spawn_local(task) }
    }

    /// The number of a listener: it keeps it as long as the process lives.
    fn index(&self, name: &str) -> u16 {
        let mut names = self.names.borrow_mut();
        let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    /// What a listener's handshakes need; what did not change stays, and with it the tickets of those who come back.
    fn tls(&self, listener: &Listener, settings: &Settings) -> Result<Option<ActiveTls>, String> {
        let Some(name) = &listener.tls else { return Ok(None) };
        let certificates = settings
            .certificates
            .get(name)
            .ok_or_else(|| format!("the certificates of {name} are missing"))?;
        let is_same = |active: &Rc<Active>| {
            let tls = active.tls.as_ref()?;
            let same = tls.certificates.fingerprint == certificates.fingerprint
                && active.listener.client_cert == listener.client_cert;
            same.then(|| tls.clone())
        };
        if let Some(known) = self.active().iter().find_map(is_same) {
            return Ok(Some(known));
        }
        let config = certificates.server_config(listener.client_cert)?;
        let handshakes = self.handshakes().map_err(|error| error.to_string())?;
        Ok(Some(ActiveTls { certificates: certificates.clone(), config, handshakes }))
    }

    fn handshakes(&self) -> io::Result<Handshakes> {
        let mut handshakes = self.handshakes.borrow_mut();
        if let Some(handshakes) = &*handshakes {
            return Ok(handshakes.clone());
        }
        Ok(handshakes.insert(Handshakes::start()?).clone())
    }

    /// Binds an address. One that is going to be let go may be in its way, as `127.0.0.1:1883` is of `[::]:1883`:
    /// then it goes first, and comes back if that did not help.
    async fn bind_beside(
        self: &Rc<Self>,
        core: &Rc<Core>,
        bind: &Bind,
        settings: &Settings,
    ) -> io::Result<Socket> {
        let error = match self.bind_socket(bind) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
            bound => return bound,
        };
        let stays = |bind: &Bind| settings.config.enabled_listeners().any(|listener| listener.bind == *bind);
        let in_the_way = |served: &Served| match (&served.bind, bind) {
            (Bind::Tcp(old), Bind::Tcp(new)) => old.port() == new.port() && !stays(&served.bind),
            _ => false,
        };
        let at = self.served.borrow().iter().position(in_the_way);
        let Some(at) = at else { return Err(error) };
        let old = self.served.borrow_mut().swap_remove(at);
        let Served { bind: old_bind, active, socket, task } = old;
        drop(socket);
        task.abort();
        // It has ended, and closed the socket, once this says that it was cancelled.
        drop(task.await);
        let bound = self.bind_socket(bind);
        if bound.is_err()
            && let Ok(socket) = self.bind_socket(&old_bind)
        {
            let active = active.borrow().clone();
            let again = self.serve(core, old_bind, active, socket);
            self.served.borrow_mut().push(again);
        }
        bound
    }
}

impl Served {
    fn stop(self) {
        self.task.abort();
        if let Socket::Unix(path) = &*self.socket {
            path.remove();
        }
    }
}

impl Socket {
    /// A connection, and a name for its other end.
    async fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(socket) => {
                let (stream, peer) = socket.accept().await?;
                Ok((Stream::Tcp(stream), peer.to_string()))
            }
            Self::Unix(socket) => {
                let (stream, _) = socket.listener.accept().await?;
                let user = stream.peer_cred().map(|peer| peer.uid());
                Ok((
                    Stream::Unix(stream),
                    user.map_or_else(|_| "unix".to_owned(), |uid| format!("unix:uid={uid}")),
                ))
            }
        }
    }

    fn address(&self) -> Option<String> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok().map(|address| address.to_string()),
            Self::Unix(_) => None,
        }
    }
}

fn log(listener: &Listener, socket: &Socket, what: &str) {
    tracing::info!(
        listener = %listener.name,
        kind = %listener.kind.name(),
        tls = listener.tls.as_deref(),
        address = %socket.address().unwrap_or_else(|| listener.bind.to_string()),
        "{what}"
    );
}

fn from_systemd(socket: std::net::TcpListener) -> io::Result<Socket> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket).map(Socket::Tcp)
}

/// Binds a port, at which nobody is served before it listens.
fn bind_port(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(
    core: Rc<Core>,
    listeners: Rc<Listeners>,
    active: Rc<RefCell<Rc<Active>>>,
    socket: Rc<Socket>,
) {
    loop {
        // A thousand that come at once take turns with the messages of those that are there, and the connection taken
        // before has its place among the pages' only once its task has run.
        tokio::task::yield_now().await;
        // Those who wait for room wait in the system's queue.
        if active.borrow().listener.kind == ListenerKind::Http {
            drop(listeners.http_room.acquire().await);
        }
        // Asked for before each connection: the settings may change while it waits.
        let handshakes = active.borrow().tls.as_ref().map(|tls| tls.handshakes.clone());
        let place = match handshakes {
            Some(handshakes) => handshakes.place().await,
            None => None,
        };
        let (stream, peer) = match socket.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors: those that are open go on; a tight loop would not help them.
                tracing::warn!(listener = %active.borrow().listener.name, %error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        stream.set_options();
        let now = Rc::clone(&active.borrow());
        match &now.tls {
            None => welcome(&core, &listeners, &now, stream, None, peer),
            Some(tls) => {
                let (core, listeners, tls) = (Rc::clone(&core), Rc::clone(&listeners), tls.clone());
                let shaking = shake(core, listeners, tls, (Rc::clone(&now), stream, peer), place);
                spawn_local(shaking);
            }
        }
    }
}

async fn shake(
    core: Rc<Core>,
    listeners: Rc<Listeners>,
    tls: ActiveTls,
    (active, stream, peer): (Rc<Active>, Stream, String),
    place: Option<Place>,
) {
    // Without a place the listener began to speak TLS while it waited for this connection.
    let place = match place {
        Some(place) => Some(place),
        None => tls.handshakes.place().await,
    };
    let Some(place) = place else { return };
    match tls.handshakes.shake(stream, tls.config, place).await {
        Ok((stream, tls)) => welcome(&core, &listeners, &active, stream, Some(tls), peer),
        Err(error) => {
            tracing::info!(listener = %active.listener.name, %peer, %error, "TLS handshake failed");
        }
    }
}

/// Hands a connection over to what its listener speaks.
fn welcome(
    core: &Rc<Core>,
    listeners: &Listeners,
    active: &Active,
    stream: Stream,
    tls: Option<Tls>,
    peer: String,
) {
    let listener = &active.listener;
    let user = match user_of(tls.as_ref(), listener) {
        Ok(user) => user,
        Err(why) => {
            tracing::warn!(listener = %listener.name, %peer, "{why}");
            return;
        }
    };
    if listener.kind == ListenerKind::Http {
        let lets_anybody_in = listener.allow_anonymous && !listener.is_local();
        let door = Door::Tcp(Rc::new(Visitor { peer: peer.into(), user, lets_anybody_in }));
        let room = Rc::clone(&listeners.http_room);
        match tls {
            Some(tls) => http::serve(core, TlsStream::new(stream, tls), door, room),
            None => http::serve(core, stream, door, room),
        }
        return;
    }
    let protocol = if listener.kind == ListenerKind::Amqp { Protocol::Amqp091 } else { Protocol::Mqtt };
    let only_local_pages =
        listener.allow_anonymous && matches!(listener.bind, Bind::Tcp(_)) && listener.is_local();
    let rules = (listener.kind == ListenerKind::Ws).then_some(Rules { only_local_pages });
    let accept = Accept {
        allow_anonymous: listener.allow_anonymous,
        peer: peer.into(),
        listener: active.index,
        user: user.map(Into::into),
    };
    connection::serve(core, stream, Layers::new(tls, rules), protocol, accept);
}

/// The user name that a client's certificate gives it.
fn user_of(tls: Option<&Tls>, listener: &Listener) -> Result<Option<String>, &'static str> {
    let chain = tls.and_then(Tls::client_chain).and_then(<[_]>::first);
    let asks =
        listener.client_cert != ClientCert::None && listener.username_from_cert != UsernameFromCert::None;
    let Some(certificate) = chain.filter(|_| asks) else { return Ok(None) };
    match client_name(certificate, listener.username_from_cert) {
        Some(name) => Ok(Some(name)),
        None => {
            Err("the client's certificate has no name that username_from_cert asks for: connection closed")
        }
    }
}
