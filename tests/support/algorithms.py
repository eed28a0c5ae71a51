# SPDX-License-Identifier: Apache-2.0
"""tests/support/algorithms.py: the rows of collectives/schedules/algorithms.def, for tests that try every
algorithm."""
import os
import re

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../collectives/schedules/algorithms.def")


def rows():
    """(name, set of operations, set of traits) of each algorithm, in the table's order."""
    text = re.sub(r"/\*.*?\*/", "", open(TABLE).read(), flags=re.S)
    for row in re.split(r"^ALGORITHM\(", text, flags=re.M)[1:]:
        name = row.split(",")[1].strip()
        yield name, {op.lower() for op in re.findall(r"OP\((\w+)\)", row)}, set(re.findall(r"COLL_\w+", row))
