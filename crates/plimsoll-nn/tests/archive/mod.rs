//! Archives as `torch.save` makes them, of pickles that it would not write.
#![allow(dead_code, reason = "not every test uses everything")]

/// An archive whose pickle these bytes are.
pub fn archive(pickle: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let checksum = crc32(pickle);
    let name = b"a/data.pkl";
    let common = |bytes: &mut Vec<u8>| {
        bytes.extend([20, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(checksum.to_le_bytes());
        bytes.extend((pickle.len() as u32).to_le_bytes());
        bytes.extend((pickle.len() as u32).to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
    };
    bytes.extend(b"PK\x03\x04");
    common(&mut bytes);
    bytes.extend(name);
    bytes.extend(pickle);
    let start = bytes.len() as u32;
    bytes.extend(b"PK\x01\x02\x14\x00");
    common(&mut bytes);
    bytes.extend([0; 14]);
    bytes.extend(name);
    let size = bytes.len() as u32 - start;
    bytes.extend(b"PK\x05\x06\x00\x00\x00\x00\x01\x00\x01\x00");
    bytes.extend(size.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// The checksum of archives: ISO 3309, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}

/// A string of this length in bytes.
pub fn string(length: usize) -> Vec<u8> {
    let mut bytes = b"X".to_vec();
    bytes.extend((length as u32).to_le_bytes());
    bytes.extend(vec![b'k'; length]);
    bytes
}

/// A tensor of one element on storage `0`.
pub const TENSOR: &[u8] = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQK\x00K\x01\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR";
