//! Methods: class and method number, then arguments. Specification section 2.3.5.1; one file per class.
//!
//! ```text
//! u16   class
//! u16   method
//! ...   arguments, bits that follow each other packed into octets
//! ```
//!
//! The macro `methods!` turns a class's list of arguments into its structs, their decoders and their encoders, so
//! that the list is the only place where the wire order stands. Reserved arguments are ignored when read and empty
//! when written.

use std::fmt;

use super::error::{EncodeError, ProtocolError};
use super::field_table::FieldTable;
use super::frame::{FrameType, put_frame};
use super::reply_code::ReplyCode;
use super::wire::{LongString, Reader, ShortString, Writer};

/// Class and method number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MethodId {
    pub class_id: u16,
    pub method_id: u16,
}

impl MethodId {
    /// What connection.close and channel.close say when no method is at fault.
    pub const NONE: Self = Self { class_id: 0, method_id: 0 };
}

impl fmt::Display for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.class_id, self.method_id)
    }
}

/// Arguments of one method.
pub trait Arguments {
    const ID: MethodId;

    /// Appends the arguments, without the method's number.
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError>;
}

/// Appends a method frame. On error the output is as before.
pub fn encode_method(out: &mut Vec<u8>, channel: u16, arguments: &impl Arguments) -> Result<(), EncodeError> {
    encode_as(out, channel, ArgumentsOf(arguments))
}

/// Type of one argument.
trait Argument<'a>: Sized {
    fn read(reader: &mut Reader<'a>) -> Result<Self, ProtocolError>;
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError>;
}

impl Argument<'_> for bool {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
        reader.bit()
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.bit(*self);
        Ok(())
    }
}

macro_rules! integer_arguments {
    ($($type:ty),*) => {$(
        impl Argument<'_> for $type {
            fn read(reader: &mut Reader<'_>) -> Result<Self, ProtocolError> {
                reader.array().map(Self::from_be_bytes)
            }
            fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
                writer.bytes(&self.to_be_bytes());
                Ok(())
            }
        }
    )*};
}
integer_arguments!(u8, u16, u32, u64);

/// A short string that must be UTF-8: names, which end up in logs and replies.
impl<'a> Argument<'a> for &'a str {
    fn read(reader: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        reader.text()
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.short_string(self.as_bytes())
    }
}

/// A short string as it came: what goes along with a message.
impl<'a> Argument<'a> for ShortString<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        reader.short_string()
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.short_string(self.as_bytes())
    }
}

impl<'a> Argument<'a> for LongString<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        reader.long().map(LongString)
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.long(self.0)
    }
}

impl<'a> Argument<'a> for FieldTable<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        FieldTable::decode(reader.long()?)
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        writer.long(self.as_bytes())
    }
}

/// Declares a class: `number Name<'a> [reserved before] { argument: type, ... (reserved after) }` for each method.
macro_rules! methods {
    (
        $(#[$class_meta:meta])*
        class $class_id:literal, Method $(<$class_lifetime:lifetime>)?;
        $(
            $(#[$meta:meta])*
            $method_id:literal $name:ident $(<$lifetime:lifetime>)? {
                $([$($before:ty),+])?
                $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
                $(($($after:ty),+))?
            }
        )+
    ) => {
        /// Number of the class.
        pub const CLASS_ID: u16 = $class_id;

        $(#[$class_meta])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub enum Method $(<$class_lifetime>)? {
            $($name($name $(<$lifetime>)?),)+
        }

        impl $(<$class_lifetime>)? Method $(<$class_lifetime>)? {
            /// Class and method number.
            #[must_use]
            pub const fn id(&self) -> MethodId {
                match self {
                    $(Self::$name(_) => <$name $(<$lifetime>)? as Arguments>::ID,)+
                }
            }

            pub(super) fn read(
                method_id: u16,
                reader: &mut methods!(@reader $($class_lifetime)?),
            ) -> Result<Option<Self>, ProtocolError> {
                Ok(Some(match method_id {
                    $($method_id => Self::$name($name::read(reader)?),)+
                    _ => return Ok(None),
                }))
            }

            pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
                match self {
                    $(Self::$name(arguments) => arguments.write(writer),)+
                }
            }
        }

        $(
            $(#[$meta])*
            #[derive(Clone, Copy, PartialEq, Debug)]
            pub struct $name $(<$lifetime>)? {
                $($(#[$field_meta])* pub $field: $type,)*
            }

            impl $(<$lifetime>)? $name $(<$lifetime>)? {
                fn read(
                    reader: &mut methods!(@reader $($lifetime)?),
                ) -> Result<Self, ProtocolError> {
                    $($(let _ = <$before as Argument<'_>>::read(reader)?;)+)?
                    $(let $field = Argument::read(reader)?;)*
                    $($(let _ = <$after as Argument<'_>>::read(reader)?;)+)?
                    let _ = &reader;
                    Ok(Self { $($field,)* })
                }
            }

            impl $(<$lifetime>)? Arguments for $name $(<$lifetime>)? {
                const ID: MethodId = MethodId { class_id: $class_id, method_id: $method_id };

                fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
                    $($(<$before as Argument<'_>>::write(&<$before>::default(), writer)?;)+)?
                    $(Argument::write(&self.$field, writer)?;)*
                    $($(<$after as Argument<'_>>::write(&<$after>::default(), writer)?;)+)?
                    let _ = &writer;
                    Ok(())
                }
            }
        )+
    };
    (@reader $lifetime:lifetime) => { Reader<$lifetime> };
    (@reader) => { Reader<'_> };
}

pub mod access;
pub mod basic;
pub mod channel;
pub mod confirm;
pub mod connection;
pub mod exchange;
pub mod queue;
pub mod tx;

/// A method of any class.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Method<'a> {
    Connection(connection::Method<'a>),
    Channel(channel::Method<'a>),
    Access(access::Method<'a>),
    Exchange(exchange::Method<'a>),
    Queue(queue::Method<'a>),
    Basic(basic::Method<'a>),
    Confirm(confirm::Method),
    Tx(tx::Method),
}

impl<'a> Method<'a> {
    /// Reads the payload of a method frame. An unknown method is 503; arguments that cannot be read, or bytes behind
    /// them, are 501 with the method's number.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(payload);
        let class_id = u16::from_be_bytes(reader.array()?);
        let method_id = u16::from_be_bytes(reader.array()?);
        let id = MethodId { class_id, method_id };
        Self::read(id, &mut reader)
            .and_then(|method| reader.finish().map(|()| method))
            .map_err(|error| error.at(id))
    }

    fn read(id: MethodId, reader: &mut Reader<'a>) -> Result<Self, ProtocolError> {
        let method_id = id.method_id;
        let method = match id.class_id {
            connection::CLASS_ID => connection::Method::read(method_id, reader)?.map(Self::Connection),
            channel::CLASS_ID => channel::Method::read(method_id, reader)?.map(Self::Channel),
            access::CLASS_ID => access::Method::read(method_id, reader)?.map(Self::Access),
            exchange::CLASS_ID => exchange::Method::read(method_id, reader)?.map(Self::Exchange),
            queue::CLASS_ID => queue::Method::read(method_id, reader)?.map(Self::Queue),
            basic::CLASS_ID => basic::Method::read(method_id, reader)?.map(Self::Basic),
            confirm::CLASS_ID => confirm::Method::read(method_id, reader)?.map(Self::Confirm),
            tx::CLASS_ID => tx::Method::read(method_id, reader)?.map(Self::Tx),
            _ => None,
        };
        method.ok_or(ProtocolError {
            reply_code: ReplyCode::CommandInvalid,
            detail: "unknown method",
            method: id,
        })
    }

    /// Class and method number.
    #[must_use]
    pub const fn id(&self) -> MethodId {
        match self {
            Self::Connection(method) => method.id(),
            Self::Channel(method) => method.id(),
            Self::Access(method) => method.id(),
            Self::Exchange(method) => method.id(),
            Self::Queue(method) => method.id(),
            Self::Basic(method) => method.id(),
            Self::Confirm(method) => method.id(),
            Self::Tx(method) => method.id(),
        }
    }

    /// Appends a method frame. On error the output is as before.
    pub fn encode(&self, out: &mut Vec<u8>, channel: u16) -> Result<(), EncodeError> {
        encode_as(out, channel, self)
    }
}

/// What a method frame is written from: a method known by its type, or one of any class.
trait Payload {
    fn id(&self) -> MethodId;
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError>;
}

struct ArgumentsOf<'m, A>(&'m A);

impl<A: Arguments> Payload for ArgumentsOf<'_, A> {
    fn id(&self) -> MethodId {
        A::ID
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.0.write(writer)
    }
}

impl Payload for &Method<'_> {
    fn id(&self) -> MethodId {
        Method::id(self)
    }
    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Method::Connection(method) => method.write(writer),
            Method::Channel(method) => method.write(writer),
            Method::Access(method) => method.write(writer),
            Method::Exchange(method) => method.write(writer),
            Method::Queue(method) => method.write(writer),
            Method::Basic(method) => method.write(writer),
            Method::Confirm(method) => method.write(writer),
            Method::Tx(method) => method.write(writer),
        }
    }
}

fn encode_as(out: &mut Vec<u8>, channel: u16, payload: impl Payload) -> Result<(), EncodeError> {
    put_frame(out, FrameType::Method, channel, usize::MAX, |out| {
        let id = payload.id();
        out.extend_from_slice(&id.class_id.to_be_bytes());
        out.extend_from_slice(&id.method_id.to_be_bytes());
        payload.write(&mut Writer::new(out))
    })
}
