#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/system/documents.sh: what documents say and a program can check: links lead somewhere, docs/README.md
# lists every page, files that they name exist, defaults of settings are those of the library, each GYRE_
# name exists.
. "$(dirname "$0")/../support/lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
unset "${!GYRE_@}"
run "$B/bin/gyre-doctor" --settings
want "gyre-doctor --settings" 0
mv "$W/out" "$W/settings"
cat >"$W/look.py" <<'END'
import glob, os, re, sys

pages = sorted({p for p in glob.glob("**/*.md", recursive=True) if not p.startswith("build")})
documents = glob.glob("docs/*.md") + glob.glob("docs/tutorials/*.md") + glob.glob("docs/contributing/*.md")
manuals = glob.glob("docs/man/*")
text = {p: open(p).read() for p in pages + manuals}

# ---- links, and the index
for page in pages:
    for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"(?s)```.*?```", "", text[page])):
        if "://" not in target and not os.path.exists(os.path.join(os.path.dirname(page), target)):
            print(f"{page}: {target} does not exist")
for page in glob.glob("docs/*.md") + glob.glob("docs/tutorials/*.md"):
    name = page.removeprefix("docs/")
    if name != "README.md" and f"]({name})" not in text["docs/README.md"]:
        print(f"docs/README.md does not list {name}")

# ---- files of the tree; NAME and test_first.c stand for a file that the reader makes
rooms = "base|topo|comm|collectives|model|optim|pipeline|tools|tests|bench|include|examples|docs"
for page in documents + manuals + ["README.md", "CONTRIBUTING.md"]:
    for name in sorted(set(re.findall(rf"(?<![\w/.-])(?:{rooms})/[\w./-]+\.[a-z]+\b", text[page]))):
        if "NAME" not in name and "test_first" not in name and not os.path.exists(name):
            print(f"{page}: {name} does not exist")

# ---- settings: "| `NAME` | default |" below a head with that word, and "`NAME` (300 s)", "(`NAME`, 300 s)"
default = {}
for line in open(sys.argv[1]).read().splitlines():
    if not line.startswith("GYRE_"):
        continue # the head, or more of a meaning
    name, _, value = re.split(r"  +", line)[:3]
    default[name] = "" if value == "-" else value
checked = 0
def compare(page, name, value):
    global checked
    checked += 1
    if name in default and default[name] != re.sub(r" s$", "", value.strip()):
        print(f"{page}: the default of {name} is {default[name] or 'empty'}, not {value}")
for page in documents:
    head = ""
    for line in text[page].splitlines():
        if not line.startswith("|"):
            head = ""
        head = head or line
        row = re.match(r"\| `(GYRE_\w+)` \| ([^|]*) \|", line)
        if row and re.match(r"\|[^|]*\| default \|", head):
            compare(page, row[1], row[2])
    for name, value in re.findall(r"`(GYRE_\w+)`(?: \(|, )(\d+[KMG]?(?: s)?)\)", text[page]):
        compare(page, name, value)
if checked < 10:
    print(f"only {checked} defaults of settings were found in documents")

# ---- names: of settings, or in code
headers = [p for p in glob.glob("**/*.h", recursive=True) if not p.startswith("build")]
source = "".join(open(p).read() for p in headers + ["Makefile", "libgyre.map"])
known = set(default) | set(re.findall(r"\bGYRE_\w+", re.sub(r"(?s)/\*.*?\*/", "", source)))
# variables that bindings read by themselves
for p in glob.glob("bindings/*/*.c"):
    known |= set(re.findall(r'"(GYRE_\w+)"', open(p).read()))
known |= {name.upper() for name in re.findall(r"\bgyre_\w+", source)}  # heads of manual pages
for page in documents + manuals:
    for name in sorted(set(re.findall(r"\bGYRE_[A-Z0-9_]*[A-Z0-9]\b(?![*_])", text[page]))):
        if name not in known:
            print(f"{page}: {name} is neither a setting nor a name of the code")

# ---- tables: each name stands in the pages that list such names
text["model/network/hf_config.h"] = open("model/network/hf_config.h").read()
plain = {p: t.replace("\\-", "-") for p, t in text.items()}
tables = [("collectives/schedules/algorithms.def", r"^ALGORITHM\(\w+, (\w+)", ["docs/man/gyre.7"]),
          ("pipeline/schedules/kinds.def", r'^KIND\(\w+, \w+, "([^"]+)"',
           ["docs/man/gyre-plan.1", "docs/man/gyre-train.1", "docs/pipeline.md", "docs/planning.md"]),
          ("model/network/families.def", r'^FAMILY\(\w+, "(\w+)"',
           ["docs/models.md", "model/network/hf_config.h"]),
          ("base/redops.def", r"^REDOP(?:_HOST)?\(\w+, (\w+)", ["docs/man/gyre-perf.1"]),
          ("base/redops.def", r"^REDOP(?:_HOST)?\((\w+)", ["docs/man/gyre_type_size.3"]),
          ("tools/gyre-perf/report.c", r'^    \{"(\w+)", \w+_of,', ["docs/man/gyre-perf.1"])]
for table, row, places in tables:
    names = re.findall(row, open(table).read(), flags=re.M)
    if len(names) < 5:
        print(f"{table}: only {len(names)} rows were found")
    for name in names:
        for page in places:
            if not re.search(rf"(?<![\w-])(GYRE_)?{name}(?![\w-])", plain[page]):
                print(f"{page} does not name {name} of {table}")
words = re.search(r'^SETTING\(TRANSPORT, .* CHOICE, "auto", "([^"]+)"', open("base/settings/table.def").read(), re.M)
for name in words[1].split("|"):
    for page in ("docs/transports.md", "docs/man/gyre.7", "docs/man/gyre-perf.1"):
        row = r"^\| `%s`" if page.endswith(".md") else r"^How ranks reach.*\b%s\b" if page.endswith(".7") \
            else r"-transport .*\b%s\b"
        if not re.search(row % name, plain[page], re.M):
            print(f"{page} does not name {name} of GYRE_TRANSPORT")
for name in default:
    if not any(re.search(rf"\b{name}\b", text[page]) for page in documents + manuals):
        print(f"no document names the setting {name}")
END
python3 "$W/look.py" "$W/settings" >"$W/found" 2>&1 || bad "look.py: $(tail -1 "$W/found")"
cat "$W/found"
check "documents are right" [ ! -s "$W/found" ]

# What only long suites use, and who moves code may forget: the toys of docs/contributing/, the functions of tools/coverage.
command -v git >/dev/null || leave_out "patches of tests/contributing: git is not here"
for patch in tests/contributing/*.patch; do
    ! command -v git >/dev/null || check "$patch applies" git apply --check "$patch"
done
check "what tools/coverage names is in its files" tools/coverage names

# It does notice.
sed -i 's/^\(GYRE_TIMEOUT *[^ ]*  *\)300 /\1301 /; /^GYRE_QUORUM /d' "$W/settings"
python3 "$W/look.py" "$W/settings" >"$W/found"
sed 's/^KIND(1F1B, 1f1b, "1f1b"/KIND(2F2B, 2f2b, "2f2b"/' pipeline/schedules/kinds.def >"$W/kinds.def"
sed "s|pipeline/schedules/kinds.def|$W/kinds.def|" "$W/look.py" >"$W/other.py"
python3 "$W/other.py" "$W/settings" >"$W/other"
sed 's/shm|ucx|verbs/shm|ucx|verbs|tin/' base/settings/table.def >"$W/table.def"
sed "s|base/settings/table.def|$W/table.def|" "$W/look.py" >"$W/other.py"
python3 "$W/other.py" "$W/settings" >"$W/transports"
check "a transport that pages lack is noticed" [ "$(grep -c 'does not name tin of' "$W/transports")" = 3 ]
check "a row that no page names is noticed" grep -q '^docs/pipeline.md does not name 2f2b' "$W/other"
check "a wrong default is noticed" grep -q '^docs/failures.md: the default of GYRE_TIMEOUT is 301' "$W/found"
check "a setting that is gone is noticed" grep -q '^docs/failures.md: GYRE_QUORUM is neither' "$W/found"
finish
