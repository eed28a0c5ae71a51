"""tests/tools/man.py: manual pages and documents against the headers, the settings and the tools.
SPDX-License-Identifier: Apache-2.0

usage: man.py prototypes | pages VERSION | examples DIR | defaults SETTINGS.json |
              words SETTINGS.json PERF_HELP SCHEDULES
Runs in the root of the sources. Prints one line for each fault; exits with 1 if there is one."""
import glob
import json
import os
import re
import shlex
import sys

faults = 0


def fault(text):
    global faults
    faults += 1
    print(text)


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def pages():
    return sorted(glob.glob('docs/man/*.[137]'))


def section(page, name):
    """The lines of `.SH name` of a page; empty if it has none."""
    found = re.search(r'^\.SH ' + name + r'\n(.*?)(?=^\.SH |\Z)', read(page), re.M | re.S)
    return found.group(1) if found else ''


def plain(line):
    """A line of roff as its reader sees it: font macros and escapes are gone."""
    macro = re.match(r"\.([BIR]{1,2}) (.*)", line)
    if macro:
        words = shlex.split(macro.group(2).replace("'", "\\'"))
        line = ''.join(words) if len(macro.group(1)) == 2 else ' '.join(words)
    line = re.sub(r'\\f[BIRP]', '', line)
    return line.replace('\\-', '-').replace('\\&', '').replace('\\e', '\\')


def prototypes():
    """Each function of the headers has one page, whose SYNOPSIS has its prototype; pages have no others."""
    declared = {}
    for header in sorted(glob.glob('include/gyre/*.h')):
        for found in re.finditer(r'^GYRE_API\s+([^;]*);', read(header), re.M):
            text = ' '.join(found.group(1).split())
            declared[re.search(r'(gyre_\w+)\(', text).group(1)] = text
    seen = {}
    for page in sorted(glob.glob('docs/man/*.3')):
        text = ' '.join(plain(line) for line in section(page, 'SYNOPSIS').split('\n')
                        if not line.startswith(('.nf', '.fi', '.PP')))
        names = re.findall(r'gyre_\w+', re.sub(r'\\-.*', '', section(page, 'NAME'), flags=re.S))
        for part in re.sub(r'#include <[^>]*>', '', text).split(';'):
            part = ' '.join(part.split())
            if not part:
                continue
            name = re.search(r'(gyre_\w+)\(', part)
            if not name or name.group(1) not in declared:
                fault(f'{page}: "{part}" is not a function of the headers')
                continue
            name = name.group(1)
            if name in seen:
                fault(f'{page}: {name} is in {seen[name]}, too')
            seen[name] = page
            if part != declared[name]:
                fault(f'{page}: "{part}", but the header has "{declared[name]}"')
            if name not in names:
                fault(f'{page}: {name} is in SYNOPSIS but not in NAME')
        for name in names:
            if seen.get(name) != page:
                fault(f'{page}: {name} is in NAME but not in SYNOPSIS')
    for name in declared:
        if name not in seen:
            fault(f'{name} has no manual page')


def titles(version):
    """All pages have one footer, and their references to other pages of Gyre lead somewhere."""
    known = set()
    for page in pages():
        number = page[-1]
        for name in re.findall(r'[\w-]+', re.sub(r'\\-.*', '', section(page, 'NAME'), flags=re.S)):
            known.add((name, number))
    for page in pages():
        name, number = os.path.basename(page).rsplit('.', 1)
        lines = [line for line in read(page).split('\n') if not line.startswith(("'\\\"", '.\\"'))]
        title = re.fullmatch(r'\.TH (\S+) (\d) \d{4}-\d\d-\d\d "Gyre (\S+)" "Gyre Manual"', lines[0])
        if not title:
            fault(f'{page}: the title "{lines[0]}" is not .TH NAME SECTION DATE "Gyre VERSION" "Gyre Manual"')
            continue
        if (title.group(1), title.group(2)) != (name.upper(), number):
            fault(f'{page}: its title is {title.group(1)}({title.group(2)})')
        if title.group(3) != version:
            fault(f'{page}: it says that this is Gyre {title.group(3)}, but gyre-doctor says {version}')
        for other, where in re.findall(r'^\.BR "?([\w-]+)"? \((\d)\)?', read(page), re.M):
            if re.match(r'gyre|ucx-run', other) and (other, where) not in known:
                fault(f'{page}: there is no page {other}({where})')


def examples(folder):
    """Writes each page's EXAMPLE as a program; prints nothing else than its faults."""
    for page in sorted(glob.glob('docs/man/*.3')):
        blocks = re.findall(r'^\.nf\n(.*?)^\.fi', section(page, 'EXAMPLE'), re.M | re.S)
        if len(blocks) != 1:
            fault(f'{page}: {len(blocks)} examples instead of one')
            continue
        lines = [line[4:] if line.startswith('    ') else line for line in blocks[0].split('\n')]
        with open(os.path.join(folder, os.path.basename(page)[:-2] + '.c'), 'w', encoding='utf-8') as file:
            file.write('\n'.join(plain(line) for line in lines))


def defaults(settings):
    """Defaults that pages give are those of the table of settings. Documents: tests/system/documents.sh."""
    table = {row['name']: row for row in settings}
    found = 0

    def check(where, name, said):
        nonlocal found
        found += 1
        said = said.strip(' `')
        if name not in table:
            fault(f'{where}: there is no setting {name}')
            return
        value = table[name]['default']
        plain_value = re.sub(r' (s|bytes)$', '', said)
        same = said.split(':')[0] == 'empty' if value == '' else plain_value == value
        if not same:
            fault(f'{where}: the default of {name} is "{value}", not "{said}"')

    for page in pages():
        for name, said in re.findall(r'^\.BR (GYRE_\w+) " \(default ([^)]*)\)"$', read(page), re.M):
            check(page, name, said)
        for name in re.findall(r'\bGYRE_[A-Z][A-Z_]*\b', section(page, 'SETTINGS')):
            if name not in table:
                fault(f'{page}: there is no setting {name}')
    if found < 15:
        fault(f'only {found} defaults were found in pages')


def words(settings, help_text, schedules):
    """Lists of names in pages and documents are those of the tables."""
    def same(where, what, said, known):
        if sorted(said) != sorted(known):
            fault(f'{where}: the {what} are {" ".join(sorted(known))}, not {" ".join(sorted(said))}')

    units = {row['name']: row['unit'] for row in settings}
    page = section('docs/man/gyre.7', 'SETTINGS')

    def entry(name):
        return re.search(r'^\.BR ' + name + r' .*\n((?:.*\n)*?)(?=\.TP|\Z)', page, re.M).group(1)

    def listed(text):
        return re.findall(r'[a-z]+', re.sub(r'\b(and|or)\b', '', text))

    tools = re.findall(r'^\.BR ([\w-]+) \(1\)$', section('docs/man/gyre.7', 'TOOLS'), re.M)
    same('docs/man/gyre.7', 'tools', tools,
         [os.path.basename(page)[:-2] for page in pages() if page.endswith('.1')])
    forced = help_text.split('algorithms that --algo can force')[1].split('\n  sendrecv')[0]
    algorithms = set(re.findall(r'[a-z]+', ' '.join(re.findall(r'^ {21}(.*)$', forced, re.M))))
    same('docs/man/gyre.7', 'algorithms',
         listed(re.search(r'The algorithms are ([^;]*);', entry('GYRE_ALGO')).group(1)), algorithms)
    for name, pattern in (('GYRE_TRANSPORT', r'reach each other: ([^.]*)\.'),
                          ('GYRE_LOG', r'logged: ([^.]*)\.'),
                          ('GYRE_QUORUM', r'^([^:]*):')):
        same('docs/man/gyre.7', f'words of {name}', listed(re.search(pattern, entry(name)).group(1)),
             units[name].split('|'))
    transports = units['GYRE_TRANSPORT'].split('|')
    said = re.search(r'\\-\\-transport " ([a-z|]+)"', read('docs/man/gyre-perf.1')).group(1)
    same('docs/man/gyre-perf.1', 'transports', said.split('|'), transports)
    said = re.search(r'--transport ([a-z|]+)', help_text).group(1)
    same('gyre-perf --help', 'transports', said.split('|'), transports)
    for where, pattern in (('docs/man/gyre-plan.1', r'^(gpipe.*), or all\.$'),
                           ('docs/man/gyre-plan.1', r'^(gpipe.*)\. With search: only this one\.$'),
                           ('docs/man/gyre-train.1', r'^\.BR "\\-\\-schedule (.*)$'),
                           ('docs/pipeline.md', None)):
        text = read(where).replace(' (the default)', '')
        if pattern:
            text = re.search(pattern, text, re.M).group(1).replace('\\', '')
            said = [word for word in re.findall(r'[a-z0-9][a-z0-9-]*', text) if word != 'or']
        else:
            said = re.findall(r'^\| `([a-z0-9-]+)`', text, re.M)
        same(where, 'schedules', said, schedules)


def main(args):
    if args[0] == 'prototypes':
        prototypes()
    elif args[0] == 'pages':
        titles(args[1])
    elif args[0] == 'examples':
        examples(args[1])
    elif args[0] == 'defaults':
        defaults(json.loads(read(args[1]))['settings'])
    elif args[0] == 'words':
        words(json.loads(read(args[1]))['settings'], read(args[2]), read(args[3]).split())
    else:
        sys.exit(__doc__)
    return faults > 0


sys.exit(main(sys.argv[1:]))
