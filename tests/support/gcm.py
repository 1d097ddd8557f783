"""AES-GCM as NIST SP 800-38D defines it, step by step; of a library it takes single blocks of AES."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

_POLYNOMIAL = 0xE1 << 120


def gcm_encrypt(key: bytes, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
    """Return ciphertext and tag, for a nonce of 12 bytes."""
    first = nonce + b"\0\0\0\1"
    encrypted = _counted(key, first, plain)
    hashed = _ghash(int.from_bytes(_block(key, bytes(16)), "big"), associated, encrypted)
    return encrypted + _xor(hashed, _block(key, first))


def gcm_decrypt(key: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> bytes:
    """Return what was encrypted; the tag must be right."""
    plain = _counted(key, nonce + b"\0\0\0\1", sealed[:-16])
    assert gcm_encrypt(key, nonce, plain, associated) == sealed
    return plain


def _counted(key: bytes, first: bytes, text: bytes) -> bytes:
    """Add the key stream that follows the first counter block."""
    stream = b"".join(
        _block(key, first[:12] + (number + 2).to_bytes(4, "big"))
        for number in range(-(-len(text) // 16))
    )
    return _xor(text, stream[: len(text)])


def _ghash(subkey: int, associated: bytes, encrypted: bytes) -> bytes:
    lengths = b"".join((8 * len(part)).to_bytes(8, "big") for part in (associated, encrypted))
    padded = b"".join(part + bytes(-len(part) % 16) for part in (associated, encrypted)) + lengths
    total = 0
    for start in range(0, len(padded), 16):
        total = _product(total ^ int.from_bytes(padded[start : start + 16], "big"), subkey)
    return total.to_bytes(16, "big")


def _product(left: int, right: int) -> int:
    """Multiply in GF(2^128), whose lowest power is the highest bit here."""
    product = 0
    for bit in range(127, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product


def _block(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(AES(key), ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
