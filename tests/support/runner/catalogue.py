# SPDX-License-Identifier: Apache-2.0
"""tests/support/runner/catalogue.py: which tests there are, how each is started, and which builds they need.
tools/run-tests documents the phases and the magic comments."""
import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
BUILD = TOP / "build"
UCX_RUN = "build/bin/ucx-run"
VENV = "build/venv/bin/python"
NEWEST = "build/torch/venv/bin/python"  # of make check-torch
LONG = bool(os.environ.get("TEST_LONG"))
MAKE = os.environ.get("MAKE", "make")
ASAN = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS") or "detect_leaks=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # Plugins of hwloc (libhwloc-plugins comes with Open MPI) leak; they are unloaded before a suppression could name them.
        "HWLOC_PLUGINS_PATH": "/nonexistent"}
TSAN = {"TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS") or "halt_on_error=1",
        # UCX's own thread, which it never joins: a leak in every child that a test forks (UCX 1.18).
        "UCX_VFS_ENABLE": "n"}
# Shell tests of these folders have a phase or a command of their own: make check-hosts, check-launch, ...
NOT_SYSTEM = {"support", "gpu", "hosts", "launch", "layouts", "verbs", "lab", "fuzz", "contributing"}


class Variant:
    """A build: one call of make, which runs before the tests that need it, niced once tests run."""

    def __init__(self, key, phase, arguments, whole, tools=(), label=None, command=None):
        self.command = command  # instead of make
        self.key, self.phase, self.arguments, self.label = key, phase, arguments, label or f"{key}/build"
        self.whole = list(whole)  # what is built where the whole phase runs
        self.tools = list(tools)  # what tests without a program of their own need
        self.goals = set()
        self.state = "idle"


class Test:
    def __init__(self, name, phase, command, *, variant="main", source=None, deadline=120, environment=None,
                 program=None, weight=1, alone=False, takes=1, skip=None, longer=False):
        self.name, self.phase, self.command, self.variant = name, phase, command, variant
        self.source, self.deadline, self.environment = source, deadline, environment or {}
        self.program, self.weight, self.alone, self.takes, self.skip = program, weight, alone, takes, skip
        self.longer = longer  # TEST_LONG=1 makes more of it
        self.process = None


# A way to build and run the same tests; label: before their names, factor: of their deadlines.
Flavour = collections.namedtuple("Flavour", "phase variant folder label factor environment")
PLAIN = Flavour("unit", "main", "build", "", 1, {})
EMULATED = Flavour("emulated", "emulated", "build/emulated", "emulated/", 1, {})
ADDRESS = Flavour("address", "address", "build/address", "address/", 4, ASAN)
THREAD = Flavour("thread", "thread", "build/thread", "thread/", 4, TSAN)
COVERAGE = Flavour("coverage", "coverage", "build/coverage", "coverage/", 4, {})
NO_TSAN = re.compile(r"/\* (one thread: TSan has nothing to see|no TSan: [^*]+%s) \*/"
                     % ("" if LONG else r"|TSan in check-long: [^*]+"))
NO_ASAN = None if LONG else re.compile(r"/\* ASan in check-long: [^*]+ \*/")


class Source:
    """A test's source file with its magic comments."""

    def __init__(self, path):
        self.path = path
        self.text = (TOP / path).read_text(errors="replace")
        self.head = "\n".join(self.text.split("\n")[:40])
        self.stem = str(path.relative_to("tests").with_suffix(""))
        self.on_device = "gpu" in path.parts[1:-1]

    def numbers(self, key):
        found = re.search(rf"\b{key}: *(\d[\d ]*)", self.head)
        return [int(n) for n in found.group(1).split()] if found else []

    def number(self, key, default):
        return (self.numbers(key) or [default])[0]

    def deadline(self, default=120):
        return 86400 if LONG and "TEST_LONG" in self.text else self.number("deadline", default)

    def longer(self, phase):
        """Whether TEST_LONG=1 makes more of it in this phase."""
        marker = {"thread": "TSan in check-long: ", "address": "ASan in check-long: ", "emulated": "guard: 2"}
        return "TEST_LONG" in self.text or phase in marker and marker[phase] in self.head

    def markers(self):
        return {"source": self, "alone": bool(self.number("alone", 0)), "takes": self.number("takes", 1)}

    def belongs_to(self, flavour):
        """Whether the flavour's phase runs it."""
        marker = {"thread": NO_TSAN, "address": NO_ASAN}.get(flavour.phase)
        return self.on_device == (flavour is EMULATED) and not (marker and marker.search(self.head))

    def programs(self):
        """The programs of tests that a script names."""
        names = re.findall(r"(?:\$B/|\")tests/([\w/]+)", self.text)
        return {f"build/tests/{name}" for name in names if (TOP / f"tests/{name}.c").exists()}

    def guard(self):
        """Whether the emulator keeps host code out of device memory: slow with many allocations."""
        return {0: "", 2: "1" if LONG else ""}.get(self.number("guard", 1), "1")


def sources(pattern):
    return [Source(p.relative_to(TOP)) for p in sorted((TOP / "tests").rglob(pattern)) if p.is_file()]


def few_ranks(source):
    """Three, or where a program is not for three, the most of its own up to six."""
    named = source.numbers("ranks")
    return [3] if 3 in named else [max((n for n in named if n <= 6), default=3)]


class Catalogue:
    """All tests of the selected phases."""

    def __init__(self, options, left_out):
        self.options, self.left_out = options, left_out
        self.tests = []
        self.unit_sources = sources("test_*.c")
        self.mp_sources = sources("mp_*.c")
        self.fuzz_sources = sources("fuzz_*.c")

    def add(self, *arguments, **options):
        self.tests.append(Test(*arguments, **options))

    def add_program(self, source, flavour, name, deadline, *, before=(), after=(), environment=(), **options):
        """A test that is the program of its source; before: what starts it, after: its arguments."""
        program = f"{flavour.folder}/tests/{source.stem}"
        missing = "not part of this build" if str(source.path) in self.left_out else None
        guard = {"EMULATED_GUARD": source.guard()} if flavour is EMULATED else {}
        options.setdefault("longer", source.longer(flavour.phase))
        self.add(flavour.label + name, flavour.phase, [*before, program, *after], variant=flavour.variant,
                 program=program, deadline=deadline, skip=missing, **source.markers(),
                 environment={**flavour.environment, **guard, **dict(environment)}, **options)

    def units(self, flavour):
        for source in self.unit_sources:
            if not source.belongs_to(flavour):
                continue
            self.add_program(source, flavour, source.stem, source.deadline() * flavour.factor)

    def corpora(self, flavour):
        for source in self.fuzz_sources:
            name = source.path.stem[len("fuzz_"):]
            self.add_program(source, flavour, f"fuzz/{name}", 60 * flavour.factor,
                             after=[f"tests/fuzz/corpus/{name}"])

    def ranks(self, flavour, numbers=None, **options):
        for source in self.mp_sources:
            if not source.belongs_to(flavour):
                continue
            deadline = source.deadline() * flavour.factor
            more = source.numbers("and in check-long") if LONG else []
            for n in numbers(source) if numbers else source.numbers("ranks") or [2, 4]:
                self.add_ranks(source, flavour, n, deadline, "", {}, **options)
            for n in [] if numbers else more:
                self.add_ranks(source, flavour, n, deadline, "", {}, longer=True)
            for n in [] if numbers else source.numbers("over UCX"):
                # over loopback: other interfaces may come and go, and take UCX's connections with them
                self.add_ranks(source, flavour, n, deadline, " over UCX",
                               {"GYRE_TRANSPORT": "ucx", "UCX_NET_DEVICES": "lo"})

    def add_ranks(self, source, flavour, n, deadline, suffix, environment, **options):
        self.add_program(source, flavour, f"{source.stem} -n {n}{suffix}", deadline + 10, weight=n,
                         before=[UCX_RUN, "-n", str(n), "--tag", "--timeout", str(deadline)],
                         environment=environment, **options)

    def script(self, source, phase, variant, label, interpreter, environment, default=120, **options):
        self.add(label + str(source.path.relative_to("tests")), phase, [interpreter, str(source.path)],
                 variant=variant, deadline=source.deadline(default), environment=environment,
                 weight=2 if self.options.jobs >= 4 else 1, longer=source.longer(phase), **source.markers(),
                 **options)

    def phase_layers(self):
        self.add("layers", "layers", ["/usr/bin/python3", "tools/check-layers"], variant=None, deadline=60)

    def phase_words(self):
        words = TOP / "tools/check-words"
        if words.exists():
            self.add("words", "words", [str(words)], variant=None, deadline=60)

    def phase_format(self):
        self.add("format", "format", [sys.executable, "tools/run-tests", "--check-format"], variant=None)

    def phase_lint(self):
        self.add("lint", "lint", [MAKE, "lint-quick"], variant=None, deadline=600, skip=other_linter())

    def phase_build(self):
        pass  # the variant itself

    def phase_minimal(self):
        tools = "build/minimal/bin"
        self.add("minimal/gyre-doctor", "minimal", [f"{tools}/gyre-doctor"], variant="minimal", deadline=60)
        self.add("minimal/gyre-perf", "minimal", [
            f"{tools}/ucx-run", "-n", "2", "--timeout", "60", f"{tools}/gyre-perf", "all_reduce",
            "-b", "8", "-e", "64K", "-f", "8", "-c", "1"], variant="minimal", deadline=90, weight=2)

    def phase_unit(self):
        self.units(PLAIN)

    def phase_ranks(self):
        self.ranks(PLAIN._replace(phase="ranks"))

    def phase_emulated(self):
        report = ask_make("report")
        cuda = next((line for line in report.splitlines() if line.startswith("CUDA=")), "CUDA=?")
        if not cuda.startswith("CUDA=1"):
            self.add("emulated", "emulated", [], variant=None, skip=cuda)
            return
        self.units(EMULATED)
        self.ranks(EMULATED)
        for source in sources("*.sh"):
            if source.on_device:
                self.script(source, "emulated", "emulated", "emulated/", "bash",
                            {"B": str(BUILD), "TOP": str(TOP)})

    def phase_system(self):
        environment = {"B": str(BUILD), "TOP": str(TOP), "MAKE": MAKE}
        for source in sources("*.sh"):
            if source.path.parts[1] not in NOT_SYSTEM and not source.on_device:
                self.script(source, "system", "main", "", "bash", environment)
        for source in sources("*_compare.py"):
            # PyTorch's threads would spin for each other in models that are this small.
            alone = {**environment, "OMP_NUM_THREADS": "1"}
            self.script(source, "system", "references", "", VENV, alone, 300)
            more = re.search(r"^# newest transformers, too: (.+)$", source.head, re.M)
            if more:
                there = any(TOP.glob("build/torch/venv/lib/python3*/site-packages/transformers"))
                self.script(source, "system", "main", "newest/", NEWEST, {**alone, "NEWEST": "1"}, 300,
                            skip=None if there else f"no newest transformers (make check-torch): {more.group(1)}")

    def phase_address(self):
        self.units(ADDRESS)
        self.corpora(ADDRESS)
        if LONG:
            self.ranks(ADDRESS, few_ranks, longer=True)
        source = Source(Path("tests/tools/test_ucx_run.sh"))
        self.add("address/tools/test_ucx_run.sh", "address", ["bash", str(source.path)], variant="address",
                 deadline=480, environment={**ASAN, "B": str(BUILD / "address")}, **source.markers())

    def phase_thread(self):
        if subprocess.run(["pkg-config", "--max-version=1.17", "ucx"], stderr=subprocess.DEVNULL).returncode == 0:
            # This UCX hooks madvise, which a thread calls as it ends, after TSan has put its state away. From 1.18 on it
            # does not matter; without hooks that UCX crashes where a connection with offers is cut
            # (ucs_rcache_region_invalidate).
            TSAN["UCX_MEM_MMAP_HOOK_MODE"] = "none"
        self.units(THREAD)
        self.ranks(THREAD, lambda source: [2])

    def phase_coverage(self):
        self.units(COVERAGE)
        self.corpora(COVERAGE)
        self.ranks(COVERAGE)

    def phase_fuzz(self):
        """What a target finds stays in build/fuzz/found, what it learns in build/fuzz/corpus."""
        found = BUILD / "fuzz/found"
        seconds = int(os.environ.get("FUZZ_SECONDS") or 60)
        for source in self.fuzz_sources:
            name = source.path.stem[len("fuzz_"):]
            corpus = BUILD / "fuzz/corpus" / name
            if not self.options.list:
                found.mkdir(parents=True, exist_ok=True)
                corpus.mkdir(parents=True, exist_ok=True)
            program = f"build/fuzz/fuzz_{name}"
            missing = "not part of this build" if str(source.path) in self.left_out else None
            self.add(f"fuzz/{name}, {seconds} s", "fuzz", [
                program, f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=3000", "-max_len=16384",
                "-error_exitcode=1", "-print_final_stats=1", f"-artifact_prefix={found}/{name}-", str(corpus),
                f"tests/fuzz/corpus/{name}"],
                variant="fuzz", program=program, deadline=240 + seconds, takes=seconds, source=source, skip=missing)


# In the order in which their tests start.
PHASES = ["build", "layers", "words", "format", "lint", "unit", "ranks", "minimal", "emulated", "system", "address",
          "thread", "coverage", "fuzz"]


def builds_for(tests, options):
    """The builds that these tests need, in order, each with its goals."""
    main, *more = variants = [
        Variant("main", "build", [], ["all", "tests-of-check"], ["all"], label="build"),
        Variant("references", "system", [], [], label="references",
                command=["sh", "tools/setup", "references"]),
        # MPI_KINDS: libgyre-mpi asks for none of these parts, so it is that of the main build
        Variant("minimal", "minimal", ["B=build/minimal", "SHARE=build", "CUDA=0", "VERBS=0", "SENTENCEPIECE=0", "MPI_KINDS="],
                ["all"], ["all"]),
        Variant("emulated", "emulated", [], ["emulated"], ["emulated"]),
        Variant("address", "address", ["SANITIZE=address"], [], ["build/address/bin/ucx-run", "build/address/examples/survive"],
                label="build with ASan and UBSan"),
        Variant("thread", "thread", ["SANITIZE=thread"], [], label="build with TSan"),
        Variant("coverage", "coverage", ["SANITIZE=coverage"], [], label="build with gcov's counters"),
        Variant("fuzz", "fuzz", [], ["fuzz"])]
    for variant in variants:
        mine = [t for t in tests if t.variant == variant.key and not t.skip]
        variant.goals.update(t.program for t in mine if t.program)
        if any(not t.program for t in mine):
            variant.goals.update(variant.tools)
        if any(t.command[0] == UCX_RUN for t in mine):
            main.goals.add(UCX_RUN)
        if variant.key == "emulated" and any(not t.program for t in mine):
            main.goals.add("all")
        if variant.command and mine:
            variant.goals.add(variant.key)
            main.goals.add("all")
        for test in mine:
            if not test.program and test.source:
                main.goals.update(test.source.programs())
        everything = variant.phase in options.phases and not (options.pattern or options.quick or LONG)
        if everything and (mine or variant is main):
            variant.goals.update(variant.whole)
    return [v for v in [main, *more] if v.goals]


def environment_of_builds():
    """Ours, but builds bring their own -j and are no part of the make that called us."""
    environment = {k: v for k, v in os.environ.items() if k not in ("SANITIZE", "MAKELEVEL", "MFLAGS")}
    flags = re.sub(r" ?--jobserver-[a-z]+=\S*|(^| )-j\d*", "", environment.get("MAKEFLAGS", ""))
    environment["MAKEFLAGS"] = flags
    # What jobs measure of the machine is kept below build/, not in the user's home directory.
    environment["XDG_CACHE_HOME"] = str(BUILD / "cache")
    return environment


def other_linter():
    """Why this is not the linter whose findings were settled, or None: versions differ in what they find."""
    if not shutil.which("clang-tidy"):
        return "clang-tidy is not installed"
    if " version 14." not in subprocess.check_output(["clang-tidy", "--version"], text=True):
        return "the sources are clean for clang-tidy 14, and here is another one"
    return None


def ask_make(goal):
    done = subprocess.run([MAKE, "-s", goal], cwd=TOP, env=environment_of_builds(), stdout=subprocess.PIPE,
                          text=True)
    if done.returncode:
        sys.exit(f"run-tests: make {goal} failed")
    return done.stdout
