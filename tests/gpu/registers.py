#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/registers.py BUILD: registers and spills that documents and comments name, against what nvcc reported as it
compiled (BUILD/obj/**/*.cu.usage), for sm_90. Prints what differs, and what would be right."""
import re
import subprocess
import sys
from pathlib import Path

BUILD = Path(sys.argv[1])
REPORT = re.compile(r"entry function '(\S+)' for 'sm_90a?'\n.*?(\d+) bytes spill stores, (\d+) bytes spill loads\n"
                    r".*?Used (\d+) registers(.*?)\n", re.S)
ATTENTION, PRODUCTS, LAYERS = "model/gpu/attention/", "model/gpu/products/matmul", "model/gpu/layers/"
BF16 = "(<unsigned short>)?"  # of kernels that have one form, that
wrong = checked = 0


def kernels(file, pattern):
    """[(registers, stored, loaded, static shared memory)] of the kernels of a file whose names match, in the order of the
    names."""
    found = {}
    for name, stored, loaded, registers, rest in REPORT.findall((BUILD / f"obj/{file}.cu.usage").read_text()):
        plain = subprocess.check_output(["c++filt", "-p", name], text=True).strip()
        if re.fullmatch(pattern, plain):
            shared = re.search(r"(\d+) bytes smem", rest)
            found[plain] = (int(registers), int(stored), int(loaded), int(shared[1]) if shared else 0)
    if not found:
        sys.exit(f"nvcc reported no kernel {pattern} in {file}.cu")
    return [found[name] for name in sorted(found, key=lambda n: [int(w) for w in re.findall(r"\d+", n)])]


def spills(some):
    each = [f"{stored} + {loaded}" if stored + loaded else "none" for _, stored, loaded, _ in some]
    return "none" if set(each) == {"none"} else ", ".join(each)


def says(file, text):
    global wrong, checked
    checked += 1
    plain = " ".join(Path(file).read_text().replace("\n *", " ").split())
    if text not in plain:
        wrong += 1
        print(f"{file} does not say: {text}")


def row(label, some, span=False):
    registers = [r for r, *_ in some]
    cell = f"{min(registers)} to {max(registers)}" if span else ", ".join(map(str, registers))
    says("docs/gpu-training.md", f"| {label} | {cell} | {spills(some)} |")


def layer(label, file, *names):
    """A row of the kernels between products."""
    some = [k for name in names for k in kernels(file, name)]
    says("docs/gpu-training.md", f"| {label} | {', '.join(str(k[0]) for k in some)} | {spills(some)} | {some[0][3]} |")


def wgmma():
    """Rows of wgmma.cu: shared memory as it launches them, and the blocks of a multiprocessor (65,536 registers in units of 8
    per thread, 227 KiB of which the driver takes 1 for each block) that both leave."""
    for label, pattern, threads, tiles, stats in (("forward", r"wgmma_forward<\d+>", 256, 6, 0),
                                                  ("dk and dv", r"wgmma_backward<\d+, 1>", 128, 6, 1024),
                                                  ("dq", r"wgmma_backward<\d+, 0>", 128, 6, 512)):
        some = kernels(ATTENTION + "wgmma", pattern)
        shared = [tiles * 64 * D * 2 + stats for D in (64, 128)]
        blocks = [min(65536 // (-(-k[0] // 8) * 8 * threads), 227 * 1024 // (s + 1024)) for k, s in zip(some, shared)]
        says("docs/gpu-training.md", f"| {label} | {', '.join(str(k[0]) for k in some)} | {spills(some)} | "
             f"{', '.join(f'{s / 1024:g}' for s in shared)} | {', '.join(map(str, blocks))} |")


def main():
    row("products, bf16, 128 x 128 (4 transpositions)", kernels(PRODUCTS, r"product_bf16<., ., 128, 128>"), span=True)
    row("products, bf16, 64 x 64", kernels(PRODUCTS, r"product_bf16<., ., 64, 64>"), span=True)
    row("products, fp32, 128 x 128 and 64 x 64", kernels(PRODUCTS, r"product_f32<.>")[::-1])
    row("attention forward, bf16, heads up to 64, 96, 128", kernels(ATTENTION + "mma", r"forward<\d+>"))
    row("attention backward, bf16, dk and dv", kernels(ATTENTION + "mma", r"backward<\d+, 1>"))
    row("attention backward, bf16, dq", kernels(ATTENTION + "mma", r"backward<\d+, 0>"))
    wgmma()
    row("attention, fp32: forward, dk and dv, dq", kernels(ATTENTION + "f32", r"forward") +
        kernels(ATTENTION + "f32", r"backward<1>") + kernels(ATTENTION + "f32", r"backward<0>"))

    layer("`loss_rows`", LAYERS + "loss", "loss_rows" + BF16)
    for name in "embed_back", "widen":
        layer(f"`{name}`", LAYERS + "vocabulary", name + BF16)
    layer("`norm_forward`", LAYERS + "norm", "norm_forward" + BF16)
    layer("`norm_backward`, `join_pieces`", LAYERS + "norm_back", "norm_backward" + BF16, "join_pieces")
    layer("`sum_pieces` (only with dropout)", LAYERS + "norm_back", "sum_pieces" + BF16)
    layer("`sum_blocks`, `sum_partials`", PRODUCTS, "sum_blocks", "sum_partials")
    for name in "adamw", "exact":
        layer(f"`{name}`", "optim/gpu/kernels", name + "<float>")

    adding, exact = ([k for file in sorted(Path("collectives/gpu/sums").glob(name))
                      for k in kernels(str(file.with_suffix("")), r"rounds_kernel<.*>")]
                     for name in ("sum_*.cu", "exact_*.cu"))
    span = f"{min(adding)[0]} to {max(adding)[0]}"
    says("docs/gpu.md", f"a kernel that adds has {span} per thread")
    says("collectives/gpu/shots/rounds.h", f"a kernel that adds has {span} a thread")
    says("docs/gpu.md", f"(`nvcc --resource-usage`, nvcc 13.0, sm_90; {spills(adding)} spilled)")
    says("docs/gpu.md", f"A kernel that rounds sums once has {min(exact)[0]} to {max(exact)[0]}.")
    says("docs/gpu.md", f"{spills(adding + exact)} spilled")
    moving = kernels("collectives/gpu/sums/moves", r"rounds_kernel<only_moves>")
    says("docs/gpu.md", f"The kernel that only moves has {moving[0][0]}.")
    short = [k for file in [*sorted(Path("collectives/gpu/sums").glob("sum_*.cu")), Path("collectives/gpu/sums/moves.cu")]
             for k in kernels(str(file.with_suffix("")), r"ll_kernel<.*>")]
    says("docs/gpu.md", f"| registers (nvcc 13.0, sm_90) | {span}; {moving[0][0]} if nothing is added | "
         f"{' to '.join(dict.fromkeys(str(f(short)[0]) for f in (min, max)))} |")
    says("docs/gpu.md", f"{spills(short)} spilled")
    schedule = kernels("collectives/gpu/plans/schedule", r"schedule_kernel")
    says("collectives/gpu/plans/schedule.cu",
         f"{schedule[0][0]} registers for sm_90 (nvcc 13.0), {spills(schedule)} spilled")
    print(f"{checked} figures, {wrong} wrong")
    return wrong > 0


sys.exit(main())
