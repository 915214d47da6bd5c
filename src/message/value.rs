//! A typed value as bindings ask for it and messages carry it in their headers, whatever protocol wrote it.

use super::record::{Reader, put_bytes, put_integer};

/// A value. Numbers of all widths are one kind, as clients differ in the widths that they choose.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Void,
    Bool(bool),
    Integer(i64),
    Float(f64),
    /// Text, or any bytes.
    Bytes(Box<[u8]>),
    /// Something composed, as its protocol encoded it.
    Other(Box<[u8]>),
}

impl Value {
    /// Appends the stored form: kind (byte), then the value.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Void => out.push(0),
            Self::Bool(value) => out.extend_from_slice(&[1, u8::from(*value)]),
            Self::Integer(value) => {
                out.push(2);
                put_integer(out, value.cast_unsigned());
            }
            Self::Float(value) => {
                out.push(3);
                put_integer(out, value.to_bits());
            }
            Self::Bytes(bytes) => {
                out.push(4);
                put_bytes(out, bytes);
            }
            Self::Other(bytes) => {
                out.push(5);
                put_bytes(out, bytes);
            }
        }
    }

    /// Reads what [`Value::put`] wrote.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(match reader.byte()? {
            0 => Self::Void,
            1 => Self::Bool(reader.byte()? != 0),
            2 => Self::Integer(reader.integer()?.cast_signed()),
            3 => Self::Float(f64::from_bits(reader.integer()?)),
            4 => Self::Bytes(reader.bytes()?.into()),
            5 => Self::Other(reader.bytes()?.into()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_as_they_were() {
        let values = [
            Value::Void,
            Value::Bool(true),
            Value::Integer(-7),
            Value::Float(0.5),
            Value::Bytes(b"text".as_slice().into()),
            Value::Other(b"\x00\xff".as_slice().into()),
        ];
        let mut out = Vec::new();
        for value in &values {
            value.put(&mut out);
        }
        let mut reader = Reader::new(&out);
        for value in &values {
            assert_eq!(Value::read(&mut reader).as_ref(), Some(value));
        }
        assert!(reader.is_empty());
    }
}
