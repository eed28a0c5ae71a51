# SPDX-License-Identifier: Apache-2.0
"""bench/peers_options.py: the options of bench_peers.py, and the command line that they come from.

Each option that bends a measurement is also a variable of `make bench-peers`; VARIABLES says which.
"""

import argparse

# Those whose size is not a choice, with the bytes that they move.
FIXED = {"barrier": 0, "split": 0, "first_call": 8}
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", *FIXED]
BUFFERS = ["malloc", "own"]
LARGE, LARGE_ROUNDS = 16 << 20, 2  # bytes, beyond which so many rounds are enough: these take most of the time
MANY = 16  # ranks, beyond which a run has fewer cells if nobody says which
SIZES, SIZES_OF_MANY = "8 512 4K 16K 64K 256K 1M 4M 16M 64M", "8 4K 64K 1M"
COLD = "64K 1M"
WORK = "build/bench"
# option (its name in peers.json's "command"): variable of make
VARIABLES = {
    "ranks": "RANKS", "collectives": "COLLECTIVES", "sizes": "SIZES", "cold": "COLD",
    "buffers": "BUFFERS", "contenders": "CONTENDERS", "rounds": "ROUNDS", "time": "TIME", "deadline": "DEADLINE", "give_up": "GIVE_UP",
    "no_limits": "LIMITS",
}


def words(text):
    return text.replace(",", " ").split()


def whole(variable, least, unit=""):
    """The type of an option that is a whole number."""

    def read(text):
        if text.isascii() and text.isdigit() and least <= int(text) <= 1_000_000:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{variable}='{text}': allowed is a whole number from {least} to 1000000{unit}"
        )

    return read


def ranks(text):
    found = words(text)
    if not found or not all(word.isascii() and word.isdigit() and 2 <= int(word) <= 4096 for word in found):
        raise argparse.ArgumentTypeError(f"RANKS='{text}': allowed are whole numbers from 2 to 4096, such as \"2 4 8\"")
    return list(dict.fromkeys(int(word) for word in found))


def parse_size(text):
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    try:
        size = int(text[:-1]) * unit if unit else int(text)
    except ValueError:
        size = -1
    if size < 4 or size % 4 or size > 1 << 30:
        raise argparse.ArgumentTypeError(
            f"SIZES: size '{text}' is not a multiple of 4 between 4 and 1G, such as 8, 64K, 1M"
        )
    return size


def size_word(size):
    """What parse_size reads as this size."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size >> shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def sizes(text):
    if not words(text):
        raise argparse.ArgumentTypeError("SIZES is empty; allowed are multiples of 4 such as 8, 64K, 1M")
    return sorted({parse_size(word) for word in words(text)})


def cold(text):
    return [] if text == "0" else sizes(text)


def some_of(variable, known):
    def read(text):
        if not words(text) or set(words(text)) - set(known):
            raise argparse.ArgumentTypeError(f"{variable}='{text}': choose from {' '.join(known)}")
        return list(dict.fromkeys(words(text)))

    return read


def factor(text):
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"GIVE_UP='{text}': allowed is a number from 1 on")
    return value


def make_parser(about):
    parser = argparse.ArgumentParser(
        description=about.split("\n\n")[0],
        epilog="make bench-peers calls it; its variables, such as RANKS=\"2 4\", are the options in capitals.",
    )
    add = parser.add_argument
    add("--ranks", type=ranks, default="2 4 8", help="numbers of ranks (default: %(default)s)")
    add("--collectives", type=some_of("COLLECTIVES", COLLECTIVES), default=" ".join(COLLECTIVES),
        help="default: %(default)s")
    add("--sizes", type=sizes,
        help=f"bytes of the whole vector (default: {SIZES}; of more than {MANY} ranks: {SIZES_OF_MANY})")
    add("--cold", type=cold, metavar="SIZES",
        help="sizes that are also measured with data in no cache; 0: none"
        f" (default: {COLD}; none of more than {MANY} ranks)")
    add("--buffers", type=some_of("BUFFERS", BUFFERS), default=" ".join(BUFFERS),
        help="malloc, own or both (default: %(default)s)")
    add("--contenders", type=words, default="", help="only these columns (default: all)")
    add("--rounds", type=whole("ROUNDS", 1), default=3,
        help=f"default: %(default)s; at most {LARGE_ROUNDS} beyond {size_word(LARGE)}")
    add("--time", type=whole("TIME", 1, ", in milliseconds"), default=40, metavar="MS",
        help="per contender, cell and round (default: %(default)s)")
    add("--deadline", type=whole("DEADLINE", 1, ", in seconds"), default=30, metavar="S",
        help="for one such measurement (default: %(default)s)")
    add("--give-up", type=factor, default=30.0, metavar="X",
        help="not asked again in a cell: who is X times slower than the best (default: %(default)s)")
    add("--no-limits", action="store_true", help="without the limits of the machine (LIMITS=0)")
    add("--bin", default="build/bench", help="where the programs of the contenders lie (default: %(default)s)")
    add("--gyre", default="build/bin", help="where ucx-run lies (default: %(default)s)")
    add("--work", default=WORK, help="directory for what the contenders print (default: %(default)s)")
    add("--out",
        help="directory for machine.json, peers.json, peers.md and index.html (OUT=; default: a new one,"
        " bench/results/DATE-MACHINE, or where --report's file lies)")
    add("--report", metavar="FILE",
        help="measures nothing: writes peers.md and index.html anew from the peers.json of an earlier run, which is"
        " only read, and prints where Gyre is behind; all other options but --out are of no use with it")
    return parser


def parse(about):
    return make_parser(about).parse_args()


def command_line(command):
    """The make command that a peers.json's "command" comes from: every variable that is not as by default."""
    default, out = vars(make_parser("").parse_args([])), ["make bench-peers"]
    for option, variable in VARIABLES.items():
        value = command.get(option, default[option])
        if value == default[option]:
            continue
        if option == "no_limits" or value == []:
            value = "0"
        elif isinstance(value, list):
            value = " ".join(size_word(v) if option in ("sizes", "cold") else str(v) for v in value)
        else:
            value = f"{value:g}" if isinstance(value, float) else str(value)
        out.append(f'{variable}="{value}"' if " " in value else f"{variable}={value}")
    return " ".join(out)


def sizes_of(options, ranks):
    """The sizes of so many ranks, in cache and cold."""
    many = ranks > MANY
    warm = options.sizes if options.sizes is not None else sizes(SIZES_OF_MANY if many else SIZES)
    return warm, options.cold if options.cold is not None else [] if many else sizes(COLD)
