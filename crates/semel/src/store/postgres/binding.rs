//! Channel binding (`tls-server-end-point`, RFC 5929): a hash of the server's certificate that goes into the password's
//! proof, so that a machine in between cannot pass the proof on.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// Signature algorithms with their hash, by the encoded object identifier. MD5 and SHA-1 count as SHA-256.
const HASHES: [(&[u8], Hash); 9] = [
    // RSA with MD5, SHA-1, SHA-256, SHA-384, SHA-512
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", Hash::Sha256),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", Hash::Sha384),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", Hash::Sha512),
    // ECDSA with SHA-1, SHA-256, SHA-384, SHA-512
    (b"\x2a\x86\x48\xce\x3d\x04\x01", Hash::Sha256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", Hash::Sha256),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", Hash::Sha384),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", Hash::Sha512),
];

#[derive(Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The hash of a certificate, by the hash of its signature; none if that has no single hash (Ed25519, RSA-PSS).
pub(super) fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    let (_, hash) = HASHES.iter().find(|(known, _)| *known == algorithm)?;
    Some(match hash {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

/// The object identifier of the signature: Certificate ::= SEQUENCE { tbsCertificate, SEQUENCE { algorithm, … }, … }.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (inside, _) = value(SEQUENCE, certificate)?;
    let (_, after) = value(SEQUENCE, inside)?;
    let (algorithm, _) = value(SEQUENCE, after)?;
    value(OBJECT_IDENTIFIER, algorithm).map(|(identifier, _)| identifier)
}

/// The value of the element at the beginning of some DER, and what comes after the element.
fn value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let add = |length: usize, byte: &u8| length.checked_mul(256)?.checked_add(usize::from(*byte));
            (bytes.iter().try_fold(0, add)?, rest)
        }
    };
    rest.split_at_checked(length).filter(|_| first == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As much of a certificate as is read of it.
    fn certificate(algorithm: &[u8]) -> Vec<u8> {
        let element = |tag: u8, value: &[u8]| {
            let mut all = vec![tag, 0x82, (value.len() >> 8) as u8, value.len() as u8];
            all.extend_from_slice(value);
            all
        };
        let (content, signature) = (element(0x30, &[7; 300]), element(0x30, &element(0x06, algorithm)));
        element(0x30, &[content, signature, vec![0x03, 0x01, 0x00]].concat())
    }

    #[test]
    fn a_certificate_is_hashed_like_its_signature() {
        for (algorithm, length) in
            [(HASHES[1].0, 32), (HASHES[2].0, 32), (HASHES[3].0, 48), (HASHES[8].0, 64)]
        {
            let hash = server_end_point(&certificate(algorithm)).expect("a known algorithm");
            assert_eq!(hash.len(), length);
        }
        let known = certificate(HASHES[6].0);
        assert_eq!(server_end_point(&known), Some(Sha256::digest(&known).to_vec()));
    }

    #[test]
    fn what_has_no_single_hash_is_not_bound() {
        let ed25519 = b"\x2b\x65\x70";
        assert_eq!(server_end_point(&certificate(ed25519)), None);
    }

    #[test]
    fn damaged_certificates_are_not_bound() {
        let whole = certificate(HASHES[2].0);
        for end in 0..whole.len() - 3 {
            assert_eq!(server_end_point(&whole[..end]), None, "{end}");
        }
        assert_eq!(server_end_point(&[0x30, 0xff]), None);
    }
}
