#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exact sums and averages of hostile inputs, by the kernels and by Python's fractions: the same bits. The cases come from
`test_exact print`, which also says what the fields of a line are."""
import fractions
import os
import subprocess
import sys

# bits of the fraction and of the exponent
FORMATS = {"half": (10, 5), "bfloat16": (7, 8), "float": (23, 8), "double": (52, 11)}


class Format:
    def __init__(self, fraction, exponent):
        self.fraction, self.exponent = fraction, exponent
        self.sign = 1 << (fraction + exponent)
        self.infinity = ((1 << exponent) - 1) << fraction
        self.nan = self.infinity | 1 << (fraction - 1)
        self.least = 2 - (1 << (exponent - 1)) - fraction  # the smallest positive value is 2 to this power

    def value(self, bits):
        """A fraction."""
        size = bits & ~self.sign
        field, m = size >> self.fraction, size & ((1 << self.fraction) - 1)
        if field:
            field, m = field - 1, m | 1 << self.fraction
        value = m * fractions.Fraction(2) ** (self.least + field)
        return -value if bits & self.sign else value

    def nearest(self, value):
        """The bits nearest to a fraction that is not zero."""
        size = abs(value)
        power = size.numerator.bit_length() - size.denominator.bit_length() - self.fraction - 1
        if size / fractions.Fraction(2) ** power >= 1 << (self.fraction + 1):
            power += 1
        power = max(power, self.least)
        m = round(size / fractions.Fraction(2) ** power)  # ties to even
        # a significand that rounds up to the next power of two carries into the exponent by itself
        bits = m + ((power - self.least) << self.fraction)
        return min(bits, self.infinity) | (self.sign if value < 0 else 0)

    def expected(self, op, inputs):
        sizes = [x & ~self.sign for x in inputs]
        infinities = {x for x, size in zip(inputs, sizes) if size == self.infinity}
        if max(sizes) > self.infinity or len(infinities) == 2:
            return self.nan
        if infinities:
            return infinities.pop()
        if set(inputs) == {self.sign}:
            return self.sign
        total = sum(map(self.value, inputs)) / (len(inputs) if op == "avg" else 1)
        return self.nearest(total) if total else 0


def main():
    program = os.path.join(os.environ.get("B", "build"), "tests/collectives/kernels/test_exact")
    lines = subprocess.run([program, "print"], check=True, capture_output=True, text=True).stdout.splitlines()
    bad = 0
    for line in lines:
        name, op, *numbers = line.split()
        *inputs, got = (int(number, 16) for number in numbers)
        expected = Format(*FORMATS[name]).expected(op, inputs)
        if got != expected:
            bad += 1
            print(f"expected {expected:x}: {line}")
    print(f"{len(lines)} cases, {bad} wrong")
    return 1 if bad or len(lines) < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
