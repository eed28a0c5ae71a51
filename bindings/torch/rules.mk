# SPDX-License-Identifier: Apache-2.0
# bindings/torch/rules.mk: make torch: the Python package gyre_torch in build/python, for the PyTorch of
# TORCH_PYTHON. Included by the Makefile. `make all` does not build it.
TORCH_PYTHON ?= /usr/bin/python3
TORCH_TO     ?= $(B)/python
.PHONY: torch
torch: $(LIB_SO)
	@sh bindings/torch/build '$(TORCH_PYTHON)' '$(B)/lib' '$(TORCH_TO)' || [ $$? = 77 ]
