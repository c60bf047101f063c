//! Frames: a call's number and content, with a checksum.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec};

use crate::base::failure::invalid;
use crate::network::handshake::checksum;

/// The longest frame: an entry of 64 MiB, and what is around it.
pub(crate) const FRAME_MAX: usize = 65 << 20;
/// Checksum and number of the call.
const HEADER: usize = 12;

/// A call, or the answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) call: u64,
    pub(crate) content: Bytes,
}

impl Frame {
    pub(crate) fn new(call: u64, message: &impl Serialize) -> io::Result<Self> {
        let content = postcard::to_stdvec(message).map_err(io::Error::other)?;
        if content.len() + HEADER > FRAME_MAX {
            return Err(invalid(format!("a message of {} bytes is too long", content.len())));
        }
        Ok(Self { call, content: content.into() })
    }

    pub(crate) fn message<T: DeserializeOwned>(&self) -> io::Result<T> {
        let wrong = |what: &dyn std::fmt::Display| invalid(format!("a message: {what}"));
        match postcard::take_from_bytes(&self.content) {
            Ok((message, [])) => Ok(message),
            Ok(_) => Err(wrong(&"bytes follow it")),
            Err(cause) => Err(wrong(&cause)),
        }
    }
}

/// Frames in a stream of bytes.
#[derive(Debug)]
pub(crate) struct Frames(LengthDelimitedCodec);

impl Default for Frames {
    fn default() -> Self {
        let mut codec = LengthDelimitedCodec::builder();
        Self(codec.little_endian().max_frame_length(FRAME_MAX).new_codec())
    }
}

impl Decoder for Frames {
    type Item = Frame;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> io::Result<Option<Frame>> {
        let Some(frame) = self.0.decode(source)? else { return Ok(None) };
        let mut frame = frame.freeze();
        if frame.len() < HEADER {
            return Err(invalid(format!("a frame of {} bytes is too short", frame.len())));
        }
        if frame.get_u32_le() != checksum(&frame) {
            return Err(invalid("the checksum of a frame is wrong".into()));
        }
        Ok(Some(Frame { call: frame.get_u64_le(), content: frame }))
    }
}

impl Encoder<Frame> for Frames {
    type Error = io::Error;

    fn encode(&mut self, frame: Frame, target: &mut BytesMut) -> io::Result<()> {
        let len = frame.content.len() + HEADER;
        let len = u32::try_from(len).map_err(io::Error::other)?;
        target.reserve(4 + len as usize);
        target.put_u32_le(len);
        let start = target.len();
        target.put_u32_le(0);
        target.put_u64_le(frame.call);
        target.put_slice(&frame.content);
        let crc = checksum(&target[start + 4..]);
        target[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn encoded() -> BytesMut {
        let mut bytes = BytesMut::new();
        for call in [3, u64::MAX] {
            let frame = Frame::new(call, &("hello", call)).unwrap();
            Frames::default().encode(frame, &mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let (mut frames, mut arrived, mut read) = (Frames::default(), BytesMut::new(), Vec::new());
        for byte in encoded() {
            arrived.put_u8(byte);
            while let Some(frame) = frames.decode(&mut arrived).unwrap() {
                let message: (String, u64) = frame.message().unwrap();
                read.push((frame.call, message));
            }
        }
        let expected = [3, u64::MAX].map(|call| (call, ("hello".to_owned(), call)));
        assert_eq!(read, expected);
    }

    #[test]
    fn no_changed_byte_passes() {
        let first = 4 + HEADER + 7;
        for at in 4..first {
            let mut bytes = encoded();
            bytes[at] ^= 0x40;
            assert!(Frames::default().decode(&mut bytes).is_err(), "byte {at}");
        }
        // A length above the limit, and one below the header.
        for len in [u32::MAX, 11, 0] {
            let mut bytes = encoded();
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            assert!(Frames::default().decode(&mut bytes).is_err(), "{len}");
        }
        let trailing = Frame { call: 1, content: Bytes::from_static(&[1, 2, 3]) };
        assert!(trailing.message::<u8>().is_err());
        assert!(trailing.message::<(u8, u8, u8, u8)>().is_err());
    }
}
