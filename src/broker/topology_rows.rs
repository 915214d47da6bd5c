//! Records of named queues, exchanges and bindings: their bytes. `docs/disk-format.md` describes them.

use bytes::Bytes;

use super::exchange::{BindingArguments, Exchange, ExchangeKind, ExchangeOptions, HashOn, HeaderMatch};
use super::named::{DeadLetter, Named, QueueOptions, QueueSettings, ReadyOverflow};
use crate::ids::RowKey;
use crate::message::Value;
use crate::message::record::{Reader, put_bytes, put_integer, put_optional, read_optional};

const AUTO_DELETE: u8 = 1;
const INTERNAL: u8 = 2;
const DELAYED: u8 = 4;

/// A named queue. Only what is on flash anyway is durable and no connection's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct QueueRecord {
    pub name: Box<str>,
    pub options: QueueOptions,
    /// Number of the exchange whose delayed messages it holds back.
    pub delays: Option<u64>,
    /// Messages that came back, and how often: a delivery limit counts on over a restart.
    pub returned: Vec<(RowKey, u16)>,
}

impl QueueRecord {
    /// Appends the record: name, flags (bit 0 auto-delete), number of the exchange that it delays for plus 1 or 0,
    /// arguments, settings. Behind that, if messages came back: their count, then key and number of returns of each.
    pub fn put(
        out: &mut Vec<u8>,
        name: &str,
        named: &Named,
        delays: Option<u64>,
        returned: &[(RowKey, u16)],
    ) {
        put_bytes(out, name.as_bytes());
        out.push(if named.options.auto_delete { AUTO_DELETE } else { 0 });
        put_optional(out, delays);
        put_bytes(out, &named.options.arguments);
        put_settings(out, named.settings());
        if !returned.is_empty() {
            put_integer(out, returned.len() as u64);
            for (key, returns) in returned {
                put_integer(out, key.0);
                put_integer(out, u64::from(*returns));
            }
        }
    }

    pub fn read(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        let name = reader.string()?.into();
        let flags = reader.byte()?;
        let delays = read_optional(&mut reader)?;
        let arguments = Bytes::copy_from_slice(reader.bytes()?);
        let settings = read_settings(&mut reader)?;
        let auto_delete = flags & AUTO_DELETE != 0;
        let options = QueueOptions { durable: true, exclusive: false, auto_delete, settings, arguments };
        let mut returned = Vec::new();
        if !reader.is_empty() {
            for _ in 0..reader.integer()? {
                let key = RowKey(reader.integer()?);
                returned.push((key, u16::try_from(reader.integer()?).ok()?));
            }
        }
        reader.is_empty().then_some(Self { name, options, delays, returned })
    }
}

fn put_settings(out: &mut Vec<u8>, settings: &QueueSettings) {
    for value in [
        settings.time_to_live_ms,
        settings.expires_ms,
        settings.ready_max,
        settings.ready_bytes_max,
        settings.overflow.map(|overflow| match overflow {
            ReadyOverflow::DropOldest => 0,
            ReadyOverflow::Reject => 1,
            ReadyOverflow::RejectDeadLetter => 2,
        }),
        settings.returns_max.map(u64::from),
    ] {
        put_optional(out, value);
    }
    out.push(settings.priority_max);
    out.push(u8::from(settings.single_active));
    match &settings.dead_letter {
        None => out.push(0),
        Some(DeadLetter { exchange, address }) => {
            out.push(if address.is_some() { 2 } else { 1 });
            put_bytes(out, exchange.as_bytes());
            if let Some(address) = address {
                put_bytes(out, address.as_bytes());
            }
        }
    }
}

fn read_settings(reader: &mut Reader<'_>) -> Option<QueueSettings> {
    let mut settings = QueueSettings {
        time_to_live_ms: read_optional(reader)?,
        expires_ms: read_optional(reader)?,
        ready_max: read_optional(reader)?,
        ready_bytes_max: read_optional(reader)?,
        ..QueueSettings::default()
    };
    settings.overflow = match read_optional(reader)? {
        None => None,
        Some(0) => Some(ReadyOverflow::DropOldest),
        Some(1) => Some(ReadyOverflow::Reject),
        Some(2) => Some(ReadyOverflow::RejectDeadLetter),
        Some(_) => return None,
    };
    settings.returns_max = match read_optional(reader)? {
        None => None,
        Some(max) => Some(u32::try_from(max).ok()?),
    };
    settings.priority_max = reader.byte()?;
    settings.single_active = reader.byte()? != 0;
    settings.dead_letter = match reader.byte()? {
        0 => None,
        form @ (1 | 2) => {
            let exchange = reader.string()?.into();
            let address = if form == 2 { Some(reader.string()?.into()) } else { None };
            Some(DeadLetter { exchange, address })
        }
        _ => return None,
    };
    Some(settings)
}

/// An exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ExchangeRecord {
    pub name: Box<str>,
    pub options: ExchangeOptions,
}

impl ExchangeRecord {
    /// Appends the record: name, kind, flags (bits: auto-delete, internal, delayed), alternate exchange (0, or 1 and
    /// its name), what is hashed (0 address, 1 header and name, 2 property and name), arguments.
    pub fn put(out: &mut Vec<u8>, exchange: &Exchange) {
        let options = &exchange.options;
        put_bytes(out, exchange.name.as_bytes());
        out.push(options.kind.code());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(
            flag(options.auto_delete, AUTO_DELETE)
                | flag(options.internal, INTERNAL)
                | flag(options.delayed, DELAYED),
        );
        out.push(u8::from(options.alternate.is_some()));
        if let Some(alternate) = &options.alternate {
            put_bytes(out, alternate.as_bytes());
        }
        match &options.hash_on {
            HashOn::Address => out.push(0),
            HashOn::Header(name) => {
                out.push(1);
                put_bytes(out, name.as_bytes());
            }
            HashOn::Property(name) => {
                out.push(2);
                put_bytes(out, name.as_bytes());
            }
        }
        put_bytes(out, &options.arguments);
    }

    pub fn read(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        let name = reader.string()?.into();
        let code = reader.byte()?;
        let kind = ExchangeKind::ALL.into_iter().find(|kind| kind.code() == code)?;
        let flags = reader.byte()?;
        let alternate = if reader.byte()? == 0 { None } else { Some(reader.string()?.into()) };
        let hash_on = match reader.byte()? {
            0 => HashOn::Address,
            1 => HashOn::Header(reader.string()?.into()),
            2 => HashOn::Property(reader.string()?.into()),
            _ => return None,
        };
        let arguments = Bytes::copy_from_slice(reader.bytes()?);
        let options = ExchangeOptions {
            kind,
            delayed: flags & DELAYED != 0,
            durable: true,
            auto_delete: flags & AUTO_DELETE != 0,
            internal: flags & INTERNAL != 0,
            alternate,
            hash_on,
            arguments,
        };
        reader.is_empty().then_some(Self { name, options })
    }
}

/// Where a recorded binding leads, by the number of the target's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordedTarget {
    Queue(u64),
    Exchange(u64),
}

/// A binding.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct BindingRecord {
    /// Number of the source's record.
    pub source: u64,
    pub target: RecordedTarget,
    pub key: Box<str>,
    pub arguments: BindingArguments,
}

impl BindingRecord {
    /// Appends the record: source, target (0 queue or 1 exchange, number), key, arguments, what is asked of headers
    /// (1 any or 0 all, count, names and values).
    pub fn put(&self, out: &mut Vec<u8>) {
        put_integer(out, self.source);
        let (kind, number) = match self.target {
            RecordedTarget::Queue(number) => (0, number),
            RecordedTarget::Exchange(number) => (1, number),
        };
        out.push(kind);
        put_integer(out, number);
        put_bytes(out, self.key.as_bytes());
        put_bytes(out, &self.arguments.encoded);
        out.push(u8::from(self.arguments.headers.any));
        put_integer(out, self.arguments.headers.entries.len() as u64);
        for (name, value) in &self.arguments.headers.entries {
            put_bytes(out, name.as_bytes());
            value.put(out);
        }
    }

    pub fn read(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        let source = reader.integer()?;
        let kind = reader.byte()?;
        let number = reader.integer()?;
        let target = match kind {
            0 => RecordedTarget::Queue(number),
            1 => RecordedTarget::Exchange(number),
            _ => return None,
        };
        let key = reader.string()?.into();
        let encoded = Bytes::copy_from_slice(reader.bytes()?);
        let mut headers = HeaderMatch { any: reader.byte()? != 0, entries: Vec::new() };
        for _ in 0..reader.integer()? {
            headers.entries.push((reader.string()?.into(), Value::read(&mut reader)?));
        }
        let arguments = BindingArguments { encoded, headers };
        reader.is_empty().then_some(Self { source, target, key, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Mono;

    #[test]
    fn records_read_back() {
        let settings = QueueSettings {
            time_to_live_ms: Some(0),
            expires_ms: Some(7),
            ready_max: Some(u64::from(u32::MAX)),
            ready_bytes_max: None,
            overflow: Some(ReadyOverflow::RejectDeadLetter),
            dead_letter: Some(DeadLetter { exchange: "dlx".into(), address: Some("a/b".into()) }),
            returns_max: Some(3),
            priority_max: 9,
            single_active: true,
        };
        let arguments = Bytes::from_static(b"raw");
        let options =
            QueueOptions { durable: true, exclusive: false, auto_delete: true, settings, arguments };
        let named = Named::new(options.clone(), Mono(0));
        let mut out = Vec::new();
        QueueRecord::put(&mut out, "q", &named, Some(4), &[]);
        let record = QueueRecord { name: "q".into(), options, delays: Some(4), returned: Vec::new() };
        assert_eq!(QueueRecord::read(&out), Some(record.clone()));
        for cut in 0..out.len() {
            assert_eq!(QueueRecord::read(&out[..cut]), None);
        }
        let returned = vec![(RowKey(1 << 40), 3), (RowKey(7), u16::MAX)];
        let mut out = Vec::new();
        QueueRecord::put(&mut out, "q", &named, Some(4), &returned);
        assert_eq!(QueueRecord::read(&out), Some(QueueRecord { returned, ..record }));
        let record = BindingRecord {
            source: 3,
            target: RecordedTarget::Exchange(9),
            key: "a/*/#".into(),
            arguments: BindingArguments {
                encoded: Bytes::from_static(b"x"),
                headers: HeaderMatch { any: true, entries: vec![("n".into(), Value::Integer(-1))] },
            },
        };
        let mut out = Vec::new();
        record.put(&mut out);
        assert_eq!(BindingRecord::read(&out), Some(record));
    }
}
