# SPDX-License-Identifier: Apache-2.0
"""Reads TensorBoard's event files: TFRecords and their checksums, and the few messages, written from their specifications and
knowing nothing of pipeline/report/tensorboard.c.

    events.py FOLDER LOG [LOG...]   FOLDER's files say what the logs of the run's parts say; exit code 1 and why if not

The last LOG is that of the newest file. Where the package `tensorboard` is installed, its own reader must agree."""
import json
import math
import os
import re
import struct
import sys


def crc32c(data):
    """Bit by bit, polynomial 0x1EDC6F41 reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of every catalogue of CRCs


def unmask(masked):
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF


def records(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        head = data[at:at + 8]
        (length,) = struct.unpack("<Q", head)
        (check,) = struct.unpack("<I", data[at + 8:at + 12])
        assert unmask(check) == crc32c(head), f"{path}: checksum of a length at {at}"
        body = data[at + 12:at + 12 + length]
        (check,) = struct.unpack("<I", data[at + 12 + length:at + 16 + length])
        assert len(body) == length and unmask(check) == crc32c(body), f"{path}: checksum of a record at {at}"
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of a protocol buffer; numbers and blocks of bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            (value,) = struct.unpack("<d", data[at:at + 8])
            at += 8
        elif wire == 5:
            (value,) = struct.unpack("<f", data[at:at + 4])
            at += 4
        else:
            assert wire == 2, f"wire type {wire}"
            length, at = varint(data, at)
            value = data[at:at + length]
            assert len(value) == length
            at += length
        yield key >> 3, value


def read(path):
    """version, the step at which the session starts, {tag: [(step, value), ...]}"""
    version = start = None
    scalars = {}
    before = 0.0
    for i, record in enumerate(records(path)):
        event = dict(fields(record))
        assert event[1] >= before, "wall times go backwards"
        before = event[1]
        step = event.get(2, 0)
        assert (3 in event) == (i == 0), "the version is the first event, and no other"
        if 3 in event:
            version = event[3].decode()
        if 7 in event:
            assert dict(fields(event[7])) == {1: 1}, "SessionLog.START"
            start = step
        for number, block in fields(event.get(5, b"")):
            assert number == 1
            value = dict(fields(block))
            scalars.setdefault(value[1].decode(), []).append((step, value[2]))
    return version, start, scalars


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def main(folder, logs):
    names = sorted(os.listdir(folder))
    assert len(names) == len(logs), (names, logs)
    keys = {"loss/train": "loss", "loss/validation": "val_loss", "learning_rate": "lr", "grad_norm": "grad_norm",
            "loss_scale": "loss_scale", "skipped": "skipped", "tokens_per_second": "tokens_per_second", "mfu": "mfu",
            "batch": "batch", "experts/balance_loss": "balance_loss", "experts/dropped": "dropped",
            "loss/z": "z_loss", "experts/z_loss": "router_z_loss"}
    for name, log in zip(names, logs):
        assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\.[^/]+", name), name
        version, start, scalars = read(os.path.join(folder, name))
        assert version == "brain.Event:2", version
        lines = [json.loads(line) for line in open(log)]
        resumed = [i for i, line in enumerate(lines) if "resumed" in line]
        begun = lines[resumed[-1]]["resumed"] if resumed else 0
        steps = [line for line in lines[resumed[-1] if resumed else 0:] if "step" in line]
        assert start == begun + 1, (start, begun)
        assert len(steps) > 0
        for tag, key in keys.items():
            want = [(line["step"], line[key]) for line in steps if line.get(key) is not None]
            have = scalars.get(tag, [])
            assert [s for s, _ in have] == [s for s, _ in want], (tag, have, want)
            for (_, x), (_, y) in zip(have, want):
                # the log rounds what depends on clocks
                exact = key not in ("tokens_per_second", "mfu")
                assert x == single(y) if exact else math.isclose(x, y, rel_tol=1e-2, abs_tol=1e-4), (tag, x, y)
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return  # the caller leaves it out
    accumulator = EventAccumulator(folder, size_guidance={"scalars": 0})
    accumulator.Reload()
    steps = [e.step for e in accumulator.Scalars("loss/train")]
    assert steps == sorted(set(steps)), f"the curve is not one: {steps}"
    print(f"tensorboard reads {len(steps)} steps")


main(sys.argv[1], sys.argv[2:])
