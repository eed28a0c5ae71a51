# SPDX-License-Identifier: Apache-2.0
"""tools/gpu/main.py: what gpu-check and gpu-first do alike: is there a GPU, the head of the results, and the
checks one after the other."""
import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from base import Lost
from checks import Checks, find_cublaslt
from report import Report
from run import Runner


class No(Exception):
    """Why nothing can be checked here, in one line."""


def version_of(here):
    """What the bundle says of itself, after it has been found to suit this machine."""
    try:
        with open(f"{here}/VERSION", encoding="utf-8") as file:
            version = dict(line.rstrip("\n").partition(" ")[::2] for line in file)
        os.stat(f"{here}/tests/list")
    except OSError as error:
        raise No(f"{here} is not what make gpu-bundle packs: {error}") from None
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise No(
            f"the programs are for Linux on x86_64, and this is {platform.system()} on {platform.machine()}")
    needed = version["needs-glibc"]
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    except (ValueError, AttributeError, IndexError):
        raise No(f"the programs need glibc {needed} or later, and here is none") from None
    if [int(part) for part in glibc.split(".")] < [int(part) for part in needed.split(".")]:
        raise No(
            f"the programs need glibc {needed} or later, and here is {glibc}: "
            "build the bundle on this machine, make gpu-bundle")
    return dict(version, glibc=glibc)


def find_device(here, work):
    """The name of the GPU, by gyre-doctor."""
    path = f"{work}/doctor.json"
    said = ""
    try:
        said = subprocess.run([f"{here}/bin/gyre-doctor", "--json", path], capture_output=True, text=True,
                              timeout=60, errors="replace", check=False).stderr
        with open(path, encoding="utf-8") as file:
            findings = {found["name"]: found["value"] for found in json.load(file)["findings"]}
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        raise No(f"gyre-doctor does not run here: {said.strip().rpartition(chr(10))[2] or error}") from None
    if "CUDA 0" not in findings:
        raise No(
            f"nothing to check: {re.sub('^none: ', '', findings.get('CUDA', 'gyre-doctor names no GPU'))}")
    return findings["CUDA 0"]


def first_lines(command, count=8):
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return "\n".join(out.strip().splitlines()[:count])


def head_of(name, version, device):
    """What the results begin with, for people and as JSON."""
    driver = ""
    if os.path.exists("/proc/driver/nvidia/version"):
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            driver = " ".join(file.readline().removeprefix("NVRM version:").split())
    smi = first_lines(("nvidia-smi", "--format=csv,noheader", "--query-gpu=name,driver_version,memory.total,"
                       "clocks.max.sm,clocks.max.memory,power.limit,mig.mode.current"))
    environment = " ".join(f"{key}={value}" for key, value in sorted(os.environ.items())
                           if re.match("(GYRE|UCX|CUDA|EMULATED)_", key))
    host, kernel = platform.node(), f"{platform.system()} {platform.release()}"
    now = time.gmtime()
    built = f"commit {version['commit']}, packed {version['packed']} on {version['built-on']}"
    lines = [f"Gyre {version['version']}, {built}",
             f"{time.strftime('%Y-%m-%d %H:%M UTC', now)}, {kernel}, {host}, {os.cpu_count()} processors, "
             f"glibc {version['glibc']}; {name}",
             f"GPU: {device}" + (f"; driver: {driver}" if driver else "")]
    lines += [f"nvidia-smi: {smi}"] if smi else []
    lines += [f"environment: {environment}"] if environment else []
    return lines, dict(gyre=version["version"], commit=version["commit"], packed=version["packed"],
                       date=time.strftime("%Y-%m-%dT%H:%M:%SZ", now), host=host, kernel=kernel,
                       glibc=version["glibc"], device=device, driver=driver, nvidia_smi=smi,
                       environment=environment)


def ended(number, _):
    raise SystemExit(128 + number)


def main(name, here, wanted, nothing, out=".", seconds=460, quick=False, factor=1, repeat=1, list_only=False,
         tests=()):
    """name: of the files. wanted(name, asked): is the check asked for? nothing: what to say if none is.
    tests: those that the sanitizers look at. Returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    work = tempfile.mkdtemp()
    runner = None
    try:
        version = version_of(here)
        if list_only:
            for check in Checks(None, None, here, work, "", quick, tests).all():
                if wanted(check.name, check.asked):
                    print(check.name)
            return 0
        # what Gyre measures of this machine is not kept in anybody's home
        os.environ["XDG_CACHE_HOME"] = f"{work}/cache"
        device = find_device(here, work)
        emulated = device.startswith("emulated")
        lines, head = head_of(name, version, device)
        try:
            report = Report(out, name, head, quick, emulated)
            runner = Runner(here, report.paths["log"], seconds, factor)
        except OSError as error:
            raise No(f"cannot write to '{out}': {error.strerror}") from None
        for line in lines:
            report.say(line)
        if emulated:
            report.say(
                "EMULATED: the kernels ran on the CPU. Nothing below was seen on a GPU, and no figure stands "
                "for one.")
        if quick:
            report.say("quick: small sizes; nothing is held against a goal")
        report.say()
        checks = Checks(runner, report, here, work, device, quick, tests)
        checks.cublaslt = os.environ.get("GYRE_CUBLASLT", "") if emulated else find_cublaslt()
        asked_for = [check for check in checks.all() if wanted(check.name, check.asked)]
        if not asked_for:
            report.say(f"nothing was checked: {nothing}")
        try:
            for check in asked_for * repeat:
                runner.part, checks.rest = check.name, check.rest
                try:
                    check.method(check.name)
                except (AttributeError, LookupError, OSError, TypeError, ValueError,
                        subprocess.SubprocessError) as error:  # no output of a program may end the others
                    note = f"{name} itself, {type(error).__name__}: {error}"
                    report.result(None, check.name, "what it printed", "failed", note=note)
                    runner.write(traceback.format_exc())
            report.complete = True
        except Lost:
            pass
        report.close(runner.times)
        print(f"{name}: " + ", ".join(report.paths.values()), file=sys.stderr)
        return 0 if asked_for and not report.wrong() else 1
    except No as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        if runner:
            runner.end()
        shutil.rmtree(work, ignore_errors=True)


def positive(text):
    """The type of an option: a number above 0."""
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is not above 0")
    return value
