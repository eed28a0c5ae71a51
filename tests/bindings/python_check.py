# SPDX-License-Identifier: Apache-2.0
"""tests/bindings/python_check.py: what a rank of python_ranks.py counts and compares with."""
import numpy as np

checks = errors = 0


def check(what, good):
    """Counts, and prints what is not good."""
    global checks, errors
    checks += 1
    if not good:
        errors += 1
        print(f"FAILED: {what}", flush=True)


def equal(what, have, want):
    check(f"{what}: {have!r} instead of {want!r}", np.array_equal(np.asarray(have), np.asarray(want)))


def raises(what, exception, texts, function, *args, **named):
    """The call raises `exception`, whose text has each of `texts`."""
    try:
        function(*args, **named)
    except exception as error:
        check(f"{what}: the text is '{error}'", all(text in str(error) for text in texts.split("|")))
    except Exception as error:  # pylint: disable=broad-except
        check(f"{what}: raised {error!r}", False)
    else:
        check(f"{what}: no exception", False)


def both(comm, name, *args, **named):
    """The call in its blocking form, then in the other one, then as a plan."""
    yield lambda *a, **k: getattr(comm, name)(*a, *args, **named, **k)
    yield lambda *a, **k: getattr(comm, "i" + name)(*a, *args, **named, **k).wait()
    yield lambda *a, **k: getattr(comm, "plan_" + name)(*a, *args, **named, **k)()


def finish():
    """Prints the counts; the program's exit status."""
    print(f"{checks} checks, {errors} failed", flush=True)
    return 1 if errors or not checks else 0
