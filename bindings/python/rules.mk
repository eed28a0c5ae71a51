# SPDX-License-Identifier: Apache-2.0
# bindings/python/rules.mk: make wheel, make bench-python. Included by the Makefile.
.PHONY: wheel bench-python
wheel: $(LIB_SO)
	$(Q)bindings/python/make-wheel $(B)

bench-python: wheel
	$(Q)bindings/python/bench $(B)
