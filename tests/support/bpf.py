"""Runs a filter of system calls as the kernel would: classic BPF, with what such filters use."""

from __future__ import annotations

import struct

X86_64, AARCH64, I386, ARM = 0xC000003E, 0xC00000B7, 0x40000003, 0x40000028

ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000


def errno(number: int) -> int:
    """Return the action that answers with an error."""
    return 0x00050000 | number


def decide(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return what the filter answers to a call. Raises `ValueError` for what the kernel would not load."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    values = [argument & 0xFFFF_FFFF_FFFF_FFFF for argument in padded]
    call = struct.pack("<IIQ6Q", number, architecture, 0, *values)
    instructions = list(struct.iter_unpack("<HBBI", program))
    if not 0 < len(instructions) <= 4096:
        raise ValueError(f"{len(instructions)} instructions")
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        match code:
            case 0x20:
                if value % 4 or value > len(call) - 4:
                    raise ValueError(f"a load at {value}")
                (accumulator,) = struct.unpack_from("<I", call, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                position += if_true if accumulator == value else if_false
            case 0x35:
                position += if_true if accumulator >= value else if_false
            case 0x06:
                return int(value)
            case _:
                raise ValueError(f"instruction {code:#x}")
