# SPDX-License-Identifier: Apache-2.0
# bindings/torch/rules.mk: make torch: the Python package gyre_torch in build/python, for the PyTorch of
# TORCH_PYTHON; wheel-torch: as a wheel; check-torch: a suite with the newest PyTorch, of PyPI; bench-torch: next to
# Gloo. Included by the Makefile. `make all` builds none of it.
TORCH_PYTHON ?= /usr/bin/python3
TORCH_TO     ?= $(B)/python
.PHONY: torch wheel-torch check-torch bench-torch
torch: $(LIB_SO)
	@sh bindings/torch/build '$(TORCH_PYTHON)' '$(B)/lib' '$(TORCH_TO)' || [ $$? = 77 ]
wheel-torch: $(LIB_SO)
	$(Q)bindings/torch/make-wheel '$(TORCH_PYTHON)' '$(B)/lib' '$(B)/torch'
check-torch: $(LIB_SO) $(addprefix $(B)/,bin/ucx-run bin/gyre-train bin/gyre-generate bin/gyre-tokenize tests/model/mp_hf)
	$(Q)tests/torch/check-torch '$(B)'
bench-torch: torch $(B)/bin/ucx-run
	$(Q)PYTHONPATH='$(TORCH_TO)' OMP_NUM_THREADS=1 $(B)/bin/ucx-run -n $(or $(RANKS),2) '$(TORCH_PYTHON)' -W ignore \
	    bench/torch_compare.py
