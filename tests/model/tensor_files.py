# SPDX-License-Identifier: Apache-2.0
"""tests/model/tensor_files.py: tensors of float in safetensors files, read and written from the format's description; for
scripts that compare Gyre with PyTorch."""
import json
import os
import struct

import torch


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.to(torch.float32).contiguous().numpy().tobytes())


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = values.reshape(entry["shape"]).clone()
    return tensors


def read_folder(folder):
    """The tensors of one file, or of all that an index names."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_safetensors(os.path.join(folder, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        names = set(json.load(file)["weight_map"].values())
    return {k: v for name in sorted(names) for k, v in read_safetensors(os.path.join(folder, name)).items()}
