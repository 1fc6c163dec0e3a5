//! Reads the wire format of protocol buffers: enough for the few messages of the kubelet.
//!
//! A decoder of one's own, since the messages have eight fields that matter and a code generator would be the largest
//! dependency of the process. Unknown fields are skipped, as the format demands.

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed protocol buffer")]
pub struct Malformed;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    Varint(u64),
    /// A string, a nested message or packed numbers.
    Bytes(&'a [u8]),
    /// A fixed number of four or eight bytes.
    Fixed,
}

impl<'a> Field<'a> {
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed => Err(Malformed),
        }
    }

    pub fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Varint(number) => Ok(number),
            Self::Bytes(_) | Self::Fixed => Err(Malformed),
        }
    }

    /// A repeated number, packed or not.
    pub fn numbers(self, into: &mut Vec<u64>) -> Result<(), Malformed> {
        match self {
            Self::Varint(number) => into.push(number),
            Self::Bytes(mut packed) => {
                while !packed.is_empty() {
                    into.push(varint(&mut packed)?);
                }
            }
            Self::Fixed => return Err(Malformed),
        }
        Ok(())
    }
}

/// The fields of a message with their numbers; ends after the first error.
pub fn fields(mut message: &[u8]) -> impl Iterator<Item = Result<(u64, Field<'_>), Malformed>> {
    std::iter::from_fn(move || {
        if message.is_empty() {
            return None;
        }
        let read = field(&mut message);
        if read.is_err() {
            message = &[];
        }
        Some(read)
    })
}

fn field<'a>(message: &mut &'a [u8]) -> Result<(u64, Field<'a>), Malformed> {
    let tag = varint(message)?;
    let value = match tag & 7 {
        0 => Field::Varint(varint(message)?),
        1 => take(message, 8).map(|_| Field::Fixed)?,
        2 => {
            let length = usize::try_from(varint(message)?).map_err(|_| Malformed)?;
            Field::Bytes(take(message, length)?)
        }
        5 => take(message, 4).map(|_| Field::Fixed)?,
        // Groups are not used since version 3.
        _ => return Err(Malformed),
    };
    Ok((tag >> 3, value))
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = message.split_at_checked(length).ok_or(Malformed)?;
    *message = rest;
    Ok(taken)
}

fn varint(message: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0_u64;
    // Ten groups of seven bits hold any number; of the last one, only one bit counts.
    for shift in (0..70).step_by(7) {
        let (byte, rest) = message.split_first().ok_or(Malformed)?;
        *message = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(Malformed);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_of_all_wire_types_are_read_and_unknown_ones_skipped() {
        let message =
            [0x08, 0xac, 0x02, 0x12, 0x02, b'h', b'i', 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4];
        let read: Vec<_> = fields(&message).collect::<Result<_, _>>().unwrap();
        let expected =
            [(1, Field::Varint(300)), (2, Field::Bytes(b"hi")), (3, Field::Fixed), (4, Field::Fixed)];
        assert_eq!(read, expected);
        assert_eq!(read[1].1.text(), Ok("hi"));
        let mut packed = Vec::new();
        Field::Bytes(&[1, 0xac, 0x02]).numbers(&mut packed).unwrap();
        assert_eq!(packed, [1, 300]);
    }

    #[test]
    fn truncated_and_invalid_messages_are_errors() {
        let too_long = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        for message in [&[0x08][..], &[0x12, 5, 1], &[0x0b], &[0x19, 1], &too_long] {
            assert_eq!(fields(message).last(), Some(Err(Malformed)), "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let count = fields(&message).count();
            prop_assert!(count <= message.len());
        }
    }
}
