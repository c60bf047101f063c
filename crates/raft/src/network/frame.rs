//! Frames: the number of a call and its content, with a checksum.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec};

use crate::base::failure::{Internal, invalid_data};
use crate::network::fixed_fields::checksum;

/// The most bytes of a frame: an entry of 64 MiB, and the fields around it.
pub(crate) const FRAME_BYTES_MAX: usize = 65 << 20;
/// Bytes of the checksum and of the number of the call.
const FRAME_HEADER_BYTES: usize = 12;

const _: () = assert!(FRAME_HEADER_BYTES == size_of::<u32>() + size_of::<u64>());
const _: () = assert!(FRAME_BYTES_MAX > (64 << 20) + FRAME_HEADER_BYTES);
const _: () = assert!(FRAME_BYTES_MAX <= u32::MAX as usize);

/// A call, or its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) call: u64,
    pub(crate) content: Bytes,
}

impl Frame {
    pub(crate) fn new(call: u64, message: &impl Serialize) -> io::Result<Self> {
        let content = postcard::to_stdvec(message).map_err(io::Error::other)?;
        if content.len() + FRAME_HEADER_BYTES > FRAME_BYTES_MAX {
            return Err(invalid_data(format!("a message of {} bytes is too long", content.len())));
        }
        Ok(Self { call, content: content.into() })
    }

    pub(crate) fn message<T: DeserializeOwned>(&self) -> io::Result<T> {
        let malformed = |what: &dyn std::fmt::Display| invalid_data(format!("a message: {what}"));
        match postcard::take_from_bytes(&self.content) {
            Ok((message, [])) => Ok(message),
            Ok(_) => Err(malformed(&"bytes follow it")),
            Err(cause) => Err(malformed(&cause)),
        }
    }
}

/// The codec of frames in a stream of bytes.
#[derive(Debug)]
pub(crate) struct FrameCodec(LengthDelimitedCodec);

impl Default for FrameCodec {
    fn default() -> Self {
        let mut codec = LengthDelimitedCodec::builder();
        Self(codec.little_endian().max_frame_length(FRAME_BYTES_MAX).new_codec())
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> io::Result<Option<Frame>> {
        let Some(frame) = self.0.decode(source)? else { return Ok(None) };
        let mut frame = frame.freeze();
        if frame.len() < FRAME_HEADER_BYTES {
            return Err(invalid_data(format!("a frame of {} bytes is too short", frame.len())));
        }
        if frame.get_u32_le() != checksum(&frame) {
            return Err(invalid_data("the checksum of a frame is malformed".into()));
        }
        Ok(Some(Frame { call: frame.get_u64_le(), content: frame }))
    }
}

impl Encoder<Frame> for FrameCodec {
    type Error = io::Error;

    fn encode(&mut self, frame: Frame, target: &mut BytesMut) -> io::Result<()> {
        let len = frame.content.len() + FRAME_HEADER_BYTES;
        if len > FRAME_BYTES_MAX {
            return Err(Internal::new("a frame is made of a message that fits into it").into());
        }
        target.reserve(4 + len);
        target.put_u32_le(len as u32);
        let start = target.len();
        target.put_u32_le(0);
        target.put_u64_le(frame.call);
        target.put_slice(&frame.content);
        let crc = checksum(&target[start + 4..]);
        target[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        debug_assert_eq!(target.len() - start, len, "a frame is as long as its length says");
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
            FrameCodec::default().encode(frame, &mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let (mut frames, mut arrived, mut read) =
            (FrameCodec::default(), BytesMut::new(), Vec::new());
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
        let first = 4 + FRAME_HEADER_BYTES + 7;
        for at in 4..first {
            let mut bytes = encoded();
            bytes[at] ^= 0x40;
            assert!(FrameCodec::default().decode(&mut bytes).is_err(), "byte {at}");
        }
        // A length above the limit, and one below the header.
        for len in [u32::MAX, 11, 0] {
            let mut bytes = encoded();
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            assert!(FrameCodec::default().decode(&mut bytes).is_err(), "{len}");
        }
        let trailing = Frame { call: 1, content: Bytes::from_static(&[1, 2, 3]) };
        assert!(trailing.message::<u8>().is_err());
        assert!(trailing.message::<(u8, u8, u8, u8)>().is_err());
    }
}
