# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/python_docs.py: a rank that runs the examples in the docstrings of the package gyre, and compares the
names of its stub with those of the package."""
import ast
import doctest
import inspect
import os
import sys

import gyre
import numpy

OWNERS = (gyre, gyre.Comm, gyre.Request, gyre.Memory, gyre.Exact, gyre.Plan, gyre.Operation, gyre.UserType, gyre.Buckets)


def documented():
    """(name, docstring) of everything public."""
    for owner in OWNERS:
        for name, value in sorted(vars(owner).items()):
            if not name.startswith("_") and callable(value):
                yield f"{owner.__name__}.{name}", value.__doc__ or ""


def examples(comm):
    """The number of examples that failed."""
    failed = ran = 0
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for name, text in documented():
        if not text:
            print(f"{name} has no docstring")
            failed += 1
        result = runner.run(parser.get_doctest(text, {"gyre": gyre, "numpy": numpy, "comm": comm}, name, None, 0))
        failed += result.failed
        ran += result.attempted
    for name in vars(gyre.Comm):
        if inspect.ismethoddescriptor(vars(gyre.Comm)[name]) and not name.startswith("_") and f"i{name}" in vars(gyre.Comm):
            if ">>>" not in getattr(gyre.Comm, name).__doc__ and name != "recv":
                print(f"{name} has no example")
                failed += 1
    if ran < 170:
        print(f"only {ran} examples ran")
        failed += 1
    return failed


def parameters(node):
    """The names of a function's parameters in a stub."""
    return [a.arg for a in node.args.args + node.args.kwonlyargs]


def stub():
    """The number of differences between the stub and the package."""
    path = os.path.join(os.path.dirname(gyre.__file__), "__init__.pyi")
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    names, functions, wrong = set(), {}, 0
    for node in tree.body:
        body, prefix = (node.body, f"gyre.{node.name}.") if isinstance(node, ast.ClassDef) else ([node], "gyre.")
        names.update([node.name] if isinstance(node, ast.ClassDef) else [])
        for part in body:
            if isinstance(part, ast.FunctionDef):
                functions[prefix + part.name] = parameters(part)
            elif isinstance(part, ast.AnnAssign):
                names.add(part.target.id)
    names.update(name.rsplit(".", 1)[1] for name in functions if name.count(".") == 1)
    for name in vars(gyre):
        if not name.startswith("_") and not inspect.ismodule(getattr(gyre, name)) and name not in names \
                and name != "wait_in_asyncio":
            print(f"the stub lacks gyre.{name}")
            wrong += 1
    for owner in OWNERS[1:]:
        for name, value in vars(owner).items():
            path = f"gyre.{owner.__name__}.{name}"
            if name.startswith("_") or not callable(value):
                continue
            if path not in functions:
                print(f"the stub lacks {path}")
                wrong += 1
            elif value.__text_signature__ if hasattr(value, "__text_signature__") else False:
                given = [p for p in inspect.signature(value).parameters]
                if given != functions[path]:
                    print(f"{path} has {given}, and in the stub {functions[path]}")
                    wrong += 1
    return wrong


def main():
    with gyre.init() as comm:
        wrong = examples(comm) + stub()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
