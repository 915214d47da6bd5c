//! journald's own protocol: a datagram of fields, so that `journalctl GATEWAY_CLIENT=plc-7` finds what is about one
//! client. systemd's "Native Journal Protocol".

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

const SOCKET: &str = "/run/systemd/journal/socket";

/// A way to journald.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
}

impl Journal {
    /// `None` where there is no journald.
    pub fn open() -> Option<Self> {
        Path::new(SOCKET).exists().then(UnixDatagram::unbound)?.ok().map(|socket| Self { socket })
    }

    /// Hands over an entry. `fields` have the names that the log gives them.
    pub fn send(
        &self,
        priority: u8,
        message: &str,
        module: &str,
        fields: &[(&str, String)],
    ) -> io::Result<()> {
        let datagram = datagram(priority, message, module, fields);
        self.socket.send_to(&datagram, SOCKET).map(|_| ())
    }
}

fn datagram(priority: u8, message: &str, module: &str, fields: &[(&str, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, "PRIORITY", &priority.to_string());
    put(&mut out, "SYSLOG_IDENTIFIER", "gatewayd");
    put(&mut out, "MESSAGE", message);
    put(&mut out, "CODE_MODULE", module);
    for (name, value) in fields {
        put(&mut out, &format!("GATEWAY_{}", name.to_ascii_uppercase()), value);
    }
    out
}

/// `NAME=value`, or for a value of several lines the name, its length as 64 bits little-endian, and the value.
fn put(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_journald_reads_them() {
        let fields = [("client", "plc-7".to_owned()), ("error", "a\nb".to_owned())];
        let expected = b"PRIORITY=4\nSYSLOG_IDENTIFIER=gatewayd\nMESSAGE=it ended\nCODE_MODULE=net\n\
            GATEWAY_CLIENT=plc-7\nGATEWAY_ERROR\n\x03\0\0\0\0\0\0\0a\nb\n";
        assert_eq!(datagram(4, "it ended", "net", &fields), expected);
    }
}
